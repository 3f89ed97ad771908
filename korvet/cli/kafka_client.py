"""A Kafka client for commands: requests to brokers, each on one connection per broker.

Rules
- A request is sent in the highest version that both sides have.
- Settings have librdkafka's names: a file as for `kcat -F` or `rpk -X` can be used.
- A password is in that file or in KORVET_PASSWORD, never on the command line, which `ps` shows.
"""

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from korvet.base.errors import ErrorCode
from korvet.config.setting import StartError
from korvet.library.values import KorvetError
from korvet.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    frame,
)
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from korvet.wire.messages.sasl_handshake import SaslHandshakeRequest
from korvet.wire.schema import MalformedRequest, Message, decode, encode, response_of

CLIENT_ID = "korvet-cli"
PASSWORD_VARIABLE = "KORVET_PASSWORD"
TIMEOUT_S = 30.0
MAX_RESPONSE = 256 << 20
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MAX_ITERATIONS = 1_000_000
_FIRST = re.compile(
    r"r=([!-+\--~]+),s=((?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/=]{4}),i=([1-9]\d{0,8})(?:,.*)?"
)
_NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_ATTEMPTS, _RETRY_S = 150, 0.2
_DEFAULTS = {
    "security.protocol": "plaintext",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "",
    "sasl.password": "",
    "sasl.password.file": "",
    "ssl.ca.location": "",
    "ssl.certificate.location": "",
    "ssl.key.location": "",
    "ssl.key.password": "",
}
_SYNONYMS = {"sasl.mechanisms": "sasl.mechanism", "metadata.broker.list": "bootstrap.servers"}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


class ClientSettings(NamedTuple):
    """The brokers to begin with, and how to connect to each."""

    addresses: tuple[tuple[str, int], ...]
    values: Mapping[str, str]

    @classmethod
    def read(cls, brokers: str, file: str | None, environ: Mapping[str, str]) -> Self:
        """Return the settings of a file of `name=value` lines. Raises StartError."""
        return cls.of({} if file is None else _read_file(Path(file)), brokers, environ, str(file))

    @classmethod
    def of(
        cls,
        named: Mapping[str, str],
        brokers: str,
        environ: Mapping[str, str],
        source: str,
        *,
        is_profile: bool = False,
    ) -> Self:
        """Return the settings with these names; `source` has them. Raises StartError.

        The environment's password has priority over that of a profile, and that of a file over it.
        """
        given = dict(named)
        own = given.pop("bootstrap.servers", "")
        brokers = brokers or own
        unknown = sorted(given.keys() - _DEFAULTS.keys())
        if unknown:
            raise StartError(
                f"{source}: {unknown[0]} is no setting of commands; known are "
                f"bootstrap.servers, {', '.join(_DEFAULTS)}."
            )
        values = {**_DEFAULTS, **given}
        password = environ.get(PASSWORD_VARIABLE, "")
        if is_profile and password:
            values["sasl.password"] = password
        elif values["sasl.password.file"] and not values["sasl.password"]:
            values["sasl.password"] = _read_password(Path(values["sasl.password.file"]))
        values["sasl.password"] = values["sasl.password"] or password
        values["security.protocol"] = values["security.protocol"].lower()
        if values["security.protocol"] not in _PROTOCOLS:
            raise StartError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}.")
        if values["sasl.mechanism"] not in ("PLAIN", *_SCRAM):
            raise StartError(f"sasl.mechanism must be PLAIN or one of {', '.join(_SCRAM)}.")
        if not brokers:
            raise StartError("No broker is named: give --brokers HOST:PORT.")
        return cls(tuple(map(_address, brokers.split(","))), values)

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of TLS connections. Raises StartError for files it cannot use."""
        if not self.values["security.protocol"].endswith("ssl"):
            return None
        certificate = self.values["ssl.certificate.location"]
        try:
            context = ssl.create_default_context(cafile=self.values["ssl.ca.location"] or None)
            if certificate:
                context.load_cert_chain(
                    certificate,
                    self.values["ssl.key.location"] or None,
                    self.values["ssl.key.password"] or None,
                )
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"The files of ssl.* cannot be used: {error}.") from None
        return context


def _read_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}.") from None
    rows = [line.split("=", 1) for line in map(str.strip, lines) if line and line[0] not in "#;"]
    if any(len(row) < 2 for row in rows):
        raise StartError(f"{path}: each line is NAME=VALUE.")
    pairs = {name.strip(): value.strip() for name, value in rows}
    return {_SYNONYMS.get(name, name): value for name, value in pairs.items()}


def _read_password(path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"The password's file {path} cannot be read: {error}.") from None


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        host, port = port, "9092"
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise StartError(f"{text!r} is no address of a broker: HOST:PORT, separated by commas.")
    return host.strip("[]"), int(port)


class Connection:
    """A connection to one broker: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0
        self._lock = asyncio.Lock()
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, host: str, port: int, settings: ClientSettings) -> Self:
        """Connect, ask for the versions and authenticate. Raises StartError."""
        tls = settings.tls()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                streams = await asyncio.open_connection(host, port, ssl=tls)
        except (OSError, TimeoutError) as error:
            raise StartError(f"There is no connection to {host}:{port}: {error}.") from None
        connection = cls(*streams)
        try:
            answer = await connection.send(ApiVersionsRequest(client_software_name=CLIENT_ID), 0)
            connection._versions = {
                row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
            }
            if settings.values["security.protocol"].startswith("sasl"):
                await _authenticate(connection, settings.values)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def call(self, request: Message, below: int | None = None) -> Any:
        """Return the response to a request, of a version below one if given. Raises StartError."""
        info = type(request).__message__
        lowest, highest = self._versions.get(info.key, (0, -1))
        version = min(highest, info.versions[1] if below is None else below - 1)
        if version < max(lowest, info.versions[0]):
            raise StartError(f"The broker has no {info.name.removesuffix('Request')} API for this.")
        return await self.send(request, version)

    async def send(self, request: Message, version: int) -> Any:
        """Return the response to a request of that version. Raises StartError."""
        key = type(request).__message__.key
        try:
            async with self._lock, asyncio.timeout(TIMEOUT_S):
                self._number += 1
                header = RequestHeader(key, version, self._number, CLIENT_ID)
                body = encode(request, version)
                self._writer.write(frame(encode_request_header(header), body))
                await self._writer.drain()
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 0 < size <= MAX_RESPONSE:
                    raise StartError(
                        "This is no Kafka broker, or it wants TLS: see --client-config."
                    )
                data = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise StartError(
                "The broker has closed the connection: does its listener want TLS or SASL? See "
                "--client-config."
            ) from None
        except TimeoutError:
            raise StartError(f"The broker has not answered for {TIMEOUT_S:.0f} s.") from None
        try:
            _, at = decode_response_header(key, version, data)
            return decode(response_of(type(request)), data, version, at)
        except MalformedRequest as error:
            raise StartError(f"The broker's response cannot be decoded: {error}.") from None

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()


async def _authenticate(connection: Connection, values: Mapping[str, str]) -> None:
    mechanism, user, password = (
        values[f"sasl.{name}"] for name in ("mechanism", "username", "password")
    )
    if not user or not password:
        raise StartError(
            "A user has sasl.username in the --client-config or profile, and its password in "
            f"sasl.password, sasl.password.file or the environment's {PASSWORD_VARIABLE}."
        )
    answer = await connection.send(SaslHandshakeRequest(mechanism=mechanism), 1)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise StartError(f"The broker has no SASL mechanism {mechanism}; it has {offered}.")
    if mechanism == "PLAIN":
        await _token(connection, f"\0{user}\0{password}".encode())
        return
    digest, nonce = _SCRAM[mechanism], secrets.token_urlsafe(18)
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = (await _token(connection, f"n,,{bare}".encode())).decode()
    match = _FIRST.fullmatch(first)
    if match is None or not match[1].startswith(nonce) or int(match[3]) > _MAX_ITERATIONS:
        raise StartError("The broker's SCRAM message is invalid.")
    salt, rounds = base64.b64decode(match[2]), int(match[3])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = f"c=biws,r={match[1]}"
    message = f"{bare},{first},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    last = await _token(connection, f"{without_proof},p={proof.decode()}".encode())
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, digest))
    if not hmac.compare_digest(last, expected):
        raise StartError("The broker does not know the password: it is another server.")


async def _token(connection: Connection, token: bytes) -> bytes:
    answer = await connection.call(SaslAuthenticateRequest(auth_bytes=token))
    if answer.error_code:
        raise StartError(f"{answer.error_message or ErrorCode(answer.error_code).message}")
    return bytes(answer.auth_bytes)


class KafkaClient:
    """Connections to the brokers of a cluster."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> Self:
        try:
            answer = await self.call(MetadataRequest(topics=[]))
        except BaseException:
            await self.__aexit__()
            raise
        self._brokers = {row.node_id: (row.host, row.port) for row in answer.brokers}
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections.values():
            await connection.close()

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers."""
        return sorted(self._brokers)

    async def call(
        self, request: Message, broker: int | None = None, below: int | None = None
    ) -> Any:
        """Return the response of that broker, by default of any. Raises StartError.

        `below` is the first version that is not sent.
        """
        if broker is not None:
            if broker not in self._brokers:
                known = ", ".join(map(str, self.brokers))
                raise StartError(f"There is no broker {broker}; there are {known}.")
            return await (await self._connection(*self._brokers[broker])).call(request, below)
        failed: StartError | None = None
        for address in self._connections or self._settings.addresses:
            try:
                connection = await self._connection(*address)
            except StartError as error:
                failed = error
                continue
            return await connection.call(request, below)
        assert failed is not None, "the settings have an address"
        raise failed

    async def coordinator(self, kind: int, name: str) -> int:
        """Return the broker that coordinates a group (0) or a transactional id (1)."""
        request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
        for _ in range(_ATTEMPTS):
            answer = await self.call(request)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code not in _NOT_YET:
                break
            await asyncio.sleep(_RETRY_S)
        check(found)
        self._brokers[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    async def _connection(self, host: str, port: int) -> Connection:
        address = host, port
        if address not in self._connections:
            self._connections[address] = await Connection.open(host, port, self._settings)
        return self._connections[address]


def check(row: Any) -> None:
    """Raise KorvetError with Kafka's sentence if a response, or a row of one, has an error."""
    check_code(row.error_code, getattr(row, "error_message", None))


def check_code(code: int, reason: str | None = None) -> None:
    """Raise KorvetError with the reason, or Kafka's sentence, if the code is that of an error."""
    if code:
        error = ErrorCode(code)
        sentence = reason or error.message or error.name
        raise KorvetError(error, f"{sentence.rstrip('.')} ({error.name}).")
