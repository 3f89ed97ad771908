"""Check Avro in `korvet produce` and `korvet consume`, and with Confluent's serializers."""

import builtins
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from korvet import Korvet as Log
from korvet import Record
from korvet.testing import Broker
from tests.cli.conftest import Korvet
from tests.support.redis_servers import TestServer
from tests.support.schema_registry import CUP, Registry, schema_registry

Clients = Callable[[SchemaRegistryClient], SchemaRegistryClient]
MINT = {"tea": "mint", "guest": {"name": "ann"}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "cup.avsc").write_text(json.dumps(CUP))
    (tmp_path / "key.avsc").write_text('"string"')
    return tmp_path


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        yield made


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Enter clients of a registry, and close their connections at the end."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def broker(valkey_server: TestServer) -> Iterator[Broker]:
    with Broker(redis=valkey_server.url) as made:
        yield made


def test_a_record_of_confluents_serializer_is_printed_as_json(
    korvet: Korvet, log: Log, registry: Registry, broker: Broker, clients: Clients
) -> None:
    client = clients(SchemaRegistryClient({"url": registry.url}))
    producer = SerializingProducer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,  # a later test reads stderr
            "key.serializer": AvroSerializer(client, '"string"'),
            "value.serializer": AvroSerializer(client, json.dumps(CUP)),
        }
    )
    producer.produce("orders", key="ann", value=MINT, partition=0)
    producer.produce("orders", key="bo", value={"tea": "oolong", "guest": {}}, partition=0)
    assert producer.flush(10) == 0
    code, out, said = korvet("consume", "orders", "--registry", registry.url, "-f", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, said) == (0, "")
    assert [(row["key"], row["value"]["guest"]) for row in rows] == [
        ("ann", {"name": "ann"}),
        ("bo", {"name": None}),
    ]
    code, out, _ = korvet("consume", "orders", "--registry", registry.url, "--key", "ann")
    assert (code, json.loads(out)) == (0, MINT)
    assert registry.requests.count("GET /schemas/ids/2") == 2  # once by each command


def test_confluents_deserializer_reads_what_produce_appends(
    korvet: Korvet, log: Log, registry: Registry, broker: Broker, clients: Clients, files: Path
) -> None:
    given = ("--registry", registry.url, "--schema", str(files / "cup.avsc"))
    keys = ("--key-schema", str(files / "key.avsc"), "-K", ":")
    line = b'"ann":' + json.dumps(MINT).encode()
    assert korvet("produce", "orders", *given, *keys, stdin=line)[0] == 0
    assert sorted(registry.versions) == ["orders-key", "orders-value"]
    # The latest schemas of the subjects, without files.
    again = json.dumps({"key": "bo", "value": {"tea": "white", "guest": {"name": None}}})
    words = ("produce", "orders", "--registry", registry.url, "-f", "json")
    assert korvet(*words, stdin=again.encode())[0] == 0
    assert korvet(*words, stdin=b'{"key": "bo", "value": null}')[0] == 0

    client = clients(SchemaRegistryClient({"url": registry.url}))
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "key.deserializer": AvroDeserializer(client),
            "value.deserializer": AvroDeserializer(client),
        }
    )
    consumer.subscribe(["orders"])
    found: list[Any] = []
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append((message.key(), message.value()))
        if len(found) == 3:
            break
    consumer.close()
    assert sorted(found, key=str) == sorted(
        [("ann", MINT), ("bo", {"tea": "white", "guest": {"name": None}}), ("bo", None)], key=str
    )


def test_bare_avro_is_read_and_written_by_a_file(korvet: Korvet, log: Log, files: Path) -> None:
    given = ("--schema", str(files / "cup.avsc"))
    assert korvet("produce", "orders", *given, stdin=json.dumps(MINT).encode())[0] == 0
    (stored,) = [row for part in (0, 1) for row in log.fetch("orders", part, 0).records]
    assert stored.value == b"\x08mint\x02\x06ann"
    assert json.loads(korvet("consume", "orders", *given)[1]) == MINT
    code, _, said = korvet("produce", "orders", *given, stdin=b'\n{"tea": 7}')
    assert code == 2 and "Line 1 has a value that is not Avro" in said and "guest" in said
    log.produce("orders", [Record(b"\xff")])
    code, out, said = korvet("consume", "orders", *given)
    assert code == 1 and "ff" in out.split() and "end too early" in said


def test_without_the_registry_values_are_hex_with_a_sentence(
    korvet: Korvet, log: Log, registry: Registry
) -> None:
    long_key = (5).to_bytes(8, "big")  # of a LongSerializer: it only looks like Avro
    log.append("orders", 0, [Record(b"\0\0\0\0\x07ab\xff", long_key), Record(b"text", b"k")])
    code, out, said = korvet("consume", "orders", "--registry", registry.url, "-f", r"%s\n")
    assert (code, out) == (1, "00000000076162ff\ntext\n")
    assert said.count("has no schema 7") == 1
    code, out, said = korvet("consume", "orders", "-f", "json", "--registry", "http://127.0.0.1:9")
    assert code == 1 and said.count("does not answer") == 1
    assert json.loads(out.splitlines()[0])["value"] == {"base64": "AAAAAAdhYv8="}


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_without_the_package_one_sentence_names_the_extra(
    korvet: Korvet, log: Log, files: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("fastavro"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    code, out, said = korvet(command, "orders", "--schema", str(files / "cup.avsc"))
    assert (code, out) == (2, "")
    assert said == "korvet: Avro needs the package fastavro: install korvet[avro].\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--schema", "absent.avsc"), "absent.avsc cannot be read: No such file"),
        (("--registry", "http://ann:pw@host"), "without a password"),
    ],
)
def test_a_schema_or_a_url_that_is_none_is_refused(
    korvet: Korvet, log: Log, words: tuple[str, str], sentence: str
) -> None:
    for command in ("consume", "produce"):
        code, _, said = korvet(command, "orders", *words)
        assert code == 2 and sentence in said and "pw" not in said.replace("password", "")
