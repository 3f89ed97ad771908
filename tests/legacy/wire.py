"""A Kafka 0.7 client for tests that exposes the bytes of requests and responses."""

import gzip
import socket
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)
LATEST, EARLIEST = -1, -2


def message(payload: bytes, *, magic: int = 1, codec: int = 0) -> bytes:
    """Return one message of a message set."""
    head = bytes([magic]) if magic == 0 else bytes([magic, codec])
    body = head + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def gzipped(*payloads: bytes) -> bytes:
    """Return the payloads as one compressed message."""
    return message(gzip.compress(b"".join(map(message, payloads)), mtime=0), codec=1)


def payloads(data: bytes) -> list[bytes]:
    """Return the payloads of the whole messages in an uncompressed message set."""
    return [body for _, body in messages(data)]


def messages(data: bytes) -> list[tuple[int, bytes]]:
    """Return (codec, payload) of each whole message in a message set."""
    found, at = [], 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if at + 4 + length > len(data):
            break
        head = 5 if data[at + 4] == 0 else 6
        codec = 0 if data[at + 4] == 0 else data[at + 5]
        found.append((codec, data[at + 4 + head : at + 4 + length]))
        at += 4 + length
    return found


def size_of(data: bytes, count: int) -> int:
    """Return the size in bytes of the first `count` messages of a set."""
    at = 0
    for _ in range(count):
        at += 4 + struct.unpack_from(">i", data, at)[0]
    return at


def place(topic: str, partition: int) -> bytes:
    """Encode a topic and a partition as in every request."""
    raw = topic.encode()
    return struct.pack(">h", len(raw)) + raw + struct.pack(">i", partition)


def frame(kind: int, body: bytes) -> bytes:
    """Return a request, its length first."""
    return struct.pack(">ih", len(body) + 2, kind) + body


def produce(topic: str, data: bytes, partition: int = 0) -> bytes:
    return frame(PRODUCE, place(topic, partition) + struct.pack(">i", len(data)) + data)


def fetch(topic: str, offset: int, most: int = 1 << 20, partition: int = 0) -> bytes:
    return frame(FETCH, place(topic, partition) + struct.pack(">qi", offset, most))


def offsets(topic: str, time: int, most: int = 10, partition: int = 0) -> bytes:
    return frame(OFFSETS, place(topic, partition) + struct.pack(">qi", time, most))


def several(kind: int, requests: Sequence[bytes]) -> bytes:
    """Combine single requests into a multi-request."""
    return frame(kind, struct.pack(">h", len(requests)) + b"".join(r[6:] for r in requests))


@dataclass
class Client:
    """A connection of a Kafka 0.7 client."""

    address: str
    timeout: float = 10.0

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), self.timeout)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Read one response, without its length. Returns b"" if the broker has closed."""
        head = self._exactly(4)
        return self._exactly(struct.unpack(">i", head)[0]) if head else b""

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                return b""
            found += more
        return found

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return the error code and the rest of the response."""
        self.send(request)
        answer = self.receive()
        assert answer, "the connection was closed"
        return struct.unpack_from(">h", answer)[0], answer[2:]

    def fetch(
        self, topic: str, offset: int, most: int = 1 << 20, partition: int = 0
    ) -> tuple[int, bytes]:
        return self.ask(fetch(topic, offset, most, partition))

    def offsets(self, topic: str, time: int, most: int = 10, partition: int = 0) -> list[int]:
        error, rest = self.ask(offsets(topic, time, most, partition))
        assert error == 0, error
        (count,) = struct.unpack_from(">i", rest)
        return list(struct.unpack(f">{count}q", rest[4:]))

    def ended(self) -> bool:
        """Return whether the broker closes the connection."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
