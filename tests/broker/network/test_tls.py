"""Check TLS listeners over sockets: accepted and refused clients."""

import json
import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from cryptography.x509.oid import ExtendedKeyUsageOID

from korvet.broker import connection
from korvet.testing import Broker
from tests.support.certificates import DAY, Authority, Certificate
from tests.support.raw_client import until

AUTHORITY = Authority.make()
MIDDLE = AUTHORITY.sign("middle", ca=True)
SERVER = AUTHORITY.sign("broker")
CLIENT = AUTHORITY.sign("client")
LISTENERS = ("REQUIRED", "REQUESTED", "NONE", "OLD", "PLAINTEXT")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    SERVER.write(folder / "broker.pem")
    CLIENT.write(folder / "client.pem")
    (folder / "ca.pem").write_text(AUTHORITY.pem)
    return folder


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    settings = {
        "listener.security.protocol.map": "REQUIRED:SSL,REQUESTED:SSL,NONE:SSL,OLD:SSL",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.required.ssl.client.auth": "required",
        "listener.name.requested.ssl.client.auth": "requested",
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.old.ssl.handshake.timeout.ms": "50",
        "listener.name.required.ssl.principal.mapping.rules": "RULE:CN=(c.*)/$1/U",
        "max.connections.per.user.overrides": "CLIENT 3:0",
        "audit.topic": "audit",
    }
    with Broker(topics={"t": 1, "audit": 1}, settings=settings, listeners=LISTENERS) as broker:
        yield broker


def ask(broker: Broker, listener: str, context: ssl.SSLContext) -> bytes:
    """Return the start of the response to ApiVersions 0."""
    host, port = broker.address(listener).split(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as line,
        context.wrap_socket(line, server_hostname="localhost") as tls,
    ):
        tls.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        return tls.recv(10)


def client_context(folder: Path, certificate: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(certificate.write(folder / "one.pem"))
    return context


ANSWER = struct.pack(">ih", 7, 0)
STRANGER = Authority.make().sign("client")
SELF_SIGNED = Authority.make("client")
REFUSED = {
    "none": None,
    "of another authority of that name": STRANGER,
    "self-signed": SELF_SIGNED,
    "expired": AUTHORITY.sign("client", starts=-2 * DAY, ends=-DAY),
    "not yet valid": AUTHORITY.sign("client", starts=DAY, ends=2 * DAY),
    "for servers only": AUTHORITY.sign("client", usage=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    "without its intermediate": Certificate((row := MIDDLE.sign("client")).certificate, row.key),
    "without a mapping rule": AUTHORITY.sign("other"),
}


@pytest.mark.parametrize("certificate", REFUSED)
def test_a_certificate_that_is_not_valid_gets_no_answer(
    broker: Broker, folder: Path, certificate: str
) -> None:
    context = client_context(folder, REFUSED[certificate])
    try:
        answer = ask(broker, "REQUIRED", context)
    except OSError:
        answer = b""
    assert answer == b""


@pytest.mark.parametrize("name", ["of another authority of that name", "expired"])
def test_a_bad_certificate_is_refused_where_none_is_needed(
    broker: Broker, folder: Path, name: str
) -> None:
    with pytest.raises(OSError, match=r"alert|reset"):
        ask(broker, "REQUESTED", client_context(folder, REFUSED[name]))


ACCEPTED = [
    ("REQUIRED", CLIENT, "User:CLIENT"),
    ("REQUIRED", MIDDLE.sign("client 2"), "User:CLIENT 2"),
    ("REQUESTED", CLIENT, "User:CN=client"),
    ("REQUESTED", None, "User:ANONYMOUS"),
    ("NONE", STRANGER, "User:ANONYMOUS"),
    ("NONE", None, "User:ANONYMOUS"),
]


@pytest.mark.parametrize(("listener", "certificate", "principal"), ACCEPTED)
def test_the_principal_is_that_of_the_certificate(
    broker: Broker,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    listener: str,
    certificate: Certificate | None,
    principal: str,
) -> None:
    sessions: list[Any] = []
    begin = connection.begin
    monkeypatch.setattr(
        connection, "begin", lambda *given: (sessions.append(given[2]), begin(*given))[1]
    )
    context = client_context(folder, certificate)
    assert ask(broker, listener, context)[4:] == ANSWER
    (session,) = sessions
    assert (str(session.principal), session.listener, session.protocol) == (
        principal,
        listener,
        "SSL",
    )


def test_a_certificate_whose_user_has_too_many_connections_is_refused(
    broker: Broker, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = client_context(folder, AUTHORITY.sign("client 3"))
    with suppress(ConnectionResetError, ssl.SSLEOFError):
        assert ask(broker, "REQUIRED", context) == b""
    fields = caplog.records[-1].__dict__["fields"]
    assert str(fields["principal"]) == "User:CLIENT 3"
    assert fields["reason"] == "too many connections of the user"
    assert ask(broker, "REQUIRED", client_context(folder, CLIENT))[4:] == ANSWER


def test_a_refused_certificate_is_an_audit_event(broker: Broker, folder: Path) -> None:
    with pytest.raises(OSError, match=r"alert|reset"):
        ask(broker, "REQUIRED", client_context(folder))

    def reasons() -> list[str]:
        found = [json.loads(row.value or b"") for row in broker.log.records("audit", 0)]
        return [event["reason"] for event in found if event["mechanism"] == "SSL"]

    assert until(lambda: "peer did not return a certificate" in reasons())


@pytest.mark.parametrize(
    ("listener", "version", "served"),
    [
        ("NONE", ssl.TLSVersion.TLSv1_3, True),
        ("NONE", ssl.TLSVersion.TLSv1_2, True),
        ("NONE", ssl.TLSVersion.TLSv1_1, False),
        ("OLD", ssl.TLSVersion.TLSv1_2, True),
        ("OLD", ssl.TLSVersion.TLSv1_3, False),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_version_that_is_not_enabled_is_refused(
    broker: Broker, folder: Path, listener: str, version: ssl.TLSVersion, served: bool
) -> None:
    context = client_context(folder)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    try:
        assert ask(broker, listener, context)[4:] == ANSWER
        assert served
    except ssl.SSLError as error:
        assert not served, error


HUNG_UP = [
    ("NONE", struct.pack(">ihhih", 10, 18, 0, 7, -1), "the client does not use TLS"),
    ("NONE", b"GET / HTTP/1.1\r\n\r\n", "the client does not use TLS"),
    ("PLAINTEXT", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "this is TLS, and the port"),
    ("OLD", b"\x16", "not complete within ssl.handshake.timeout.ms"),
    ("OLD", b"", "not complete within ssl.handshake.timeout.ms"),
    ("NONE", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "TLS handshake failed"),
]


@pytest.mark.parametrize(("listener", "sent", "reason"), HUNG_UP)
def test_a_client_of_another_protocol_is_hung_up_on_with_one_log_line(
    broker: Broker, caplog: pytest.LogCaptureFixture, listener: str, sent: bytes, reason: str
) -> None:
    host, port = broker.address(listener).split(":")
    with (
        caplog.at_level(logging.INFO, "korvet"),
        socket.create_connection((host, int(port)), timeout=10) as line,
    ):
        line.sendall(sent)
        while line.recv(100):
            pass
    (record,) = caplog.records
    assert record.getMessage() == "connection closed"
    assert reason in str(vars(record))


def test_a_client_that_connects_and_leaves_is_not_logged(
    broker: Broker, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = broker.address("NONE").split(":")
    with caplog.at_level(logging.INFO, "korvet"):
        socket.create_connection((host, int(port)), timeout=10).close()
        assert ask(broker, "NONE", client_context(folder))[4:] == ANSWER
    assert caplog.records == []


def test_librdkafka_produces_and_consumes(broker: Broker, folder: Path) -> None:
    client = {
        "bootstrap.servers": broker.address("REQUIRED"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.pem"),
    }
    values = [b"%d" % number * 1000 for number in range(1000)] + [b"x" * 900_000] * 5
    producer = Producer(client)
    for value in values:
        producer.produce("t", value)
    assert producer.flush(30) == 0
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while len(found) < len(values):
        batch = consumer.consume(len(values), 0.1)
        assert all(message.error() is None for message in batch)
        found += [message.value() for message in batch]
    consumer.close()
    assert sorted(found) == sorted(values)
