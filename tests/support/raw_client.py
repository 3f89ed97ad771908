"""A client that sends what a test gives it: whole requests, or any bytes."""

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import psutil

from korvet import apis
from korvet.apis import Api
from korvet.wire import batch_builder, compression
from korvet.wire.headers import RequestHeader
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.records import Record
from korvet.wire.schema import Message, decode, encode
from tests.support.wire_client import decode_response_header, encode_request_header, frame

PATIENCE = 60.0
CLIENT_ID = "peer"
ROWS = {row.name: row for row in apis.TABLE}
API_VERSIONS = bytes.fromhex("0012 0000 00000001 ffff")
"""ApiVersions version 0, the smallest request."""


def request(
    name: str, version: int, body: Message, correlation_id: int = 1, client_id: str = CLIENT_ID
) -> bytes:
    """Return the request as a frame's content."""
    head = RequestHeader(ROWS[name].key, version, correlation_id, client_id)
    return encode_request_header(head) + encode(body, version)


class Peer:
    """A connection to a broker."""

    def __init__(self, address: str, *, receive: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if receive is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.settimeout(PATIENCE)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def name(self) -> str:
        """The address of this end, as the broker logs it."""
        return "{}:{}".format(*self.socket.getsockname())

    def send(self, *contents: bytes) -> None:
        """Send each content as one frame."""
        self.socket.sendall(b"".join(frame(each) for each in contents))

    def answer(self) -> bytes:
        """Receive the next response and return its content."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def ask(self, name: str, version: int, body: Message, client_id: str = CLIENT_ID) -> Any:
        """Send a request and return the body of its response."""
        self.send(request(name, version, body, client_id=client_id))
        return self.response(ROWS[name], version)[1]

    def response(self, row: Api, version: int) -> tuple[int, Any]:
        """Receive the next response; return its correlation id and body."""
        return parsed(self.answer(), row, version)

    def ended(self) -> bool:
        """Return whether the broker closes the connection; bytes before the end are dropped."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self.socket.recv(min(size - len(found), 1 << 20))
            if not part:
                raise EOFError(f"the broker closed after {len(found)} of {size} bytes")
            found += part
        return bytes(found)


@contextmanager
def crowd(address: str, count: int) -> Iterator[list[Peer]]:
    """Open that many connections."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(address)) for _ in range(count)]


def parsed(content: bytes, row: Api, version: int) -> tuple[int, Any]:
    """Return the correlation id and the body of a response."""
    correlation_id, at = decode_response_header(row.key, version, content)
    return correlation_id, decode(row.response, content, version, at)


def alive(address: str) -> bool:
    """Return whether a new client gets a response."""
    with Peer(address) as peer:
        peer.send(API_VERSIONS)
        return peer.answer()[:4] == b"\0\0\0\1"


def batch(
    values: Iterable[bytes | None],
    codec: int = compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a record batch as a producer sends it."""
    rows: list[Record] = [
        (at, 1_700_000_000_000, None, value, []) for at, value in enumerate(values)
    ]
    return bytes(batch_builder.build(rows, codec=codec, producer=producer))


def to_produce(
    topic: str, data: bytes | Sequence[bytes], *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    """Return a request with these batches, one for each partition from `partition` on."""
    batches = [data] if isinstance(data, bytes) else data
    rows = [
        PartitionProduceData(index=partition + at, records=each) for at, each in enumerate(batches)
    ]
    wanted = [TopicProduceData(name=topic, partition_data=rows)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=wanted)


def to_fetch(
    topic: str,
    offset: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 52_428_800,
    partition_max_bytes: int = 52_428_800,
    partitions: int = 1,
) -> FetchRequest:
    """Return a request for the first `partitions` of a topic."""
    rows = [
        FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for number in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=rows)],
    )


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    found: int = psutil.Process(pid).memory_info().rss
    return found


def until(what: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Return whether the condition becomes true within `patience` seconds."""
    deadline = time.monotonic() + patience
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
