"""A client that says exactly what a test wants said: whole requests, or any bytes at all."""

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
"""ApiVersions version 0, as small as a request gets."""


def request(
    name: str, version: int, body: Message, correlation_id: int = 1, client_id: str = CLIENT_ID
) -> bytes:
    """The request as a frame's content."""
    head = RequestHeader(ROWS[name].key, version, correlation_id, client_id)
    return encode_request_header(head) + encode(body, version)


class Peer:
    """One connection to a broker."""

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
        """This end's address, as the broker logs it."""
        return "{}:{}".format(*self.socket.getsockname())

    def send(self, *contents: bytes) -> None:
        """Each content leaves as one frame."""
        self.socket.sendall(b"".join(frame(each) for each in contents))

    def answer(self) -> bytes:
        """The next answer's content."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def ask(self, name: str, version: int, body: Message, client_id: str = CLIENT_ID) -> Any:
        """The response to a request."""
        self.send(request(name, version, body, client_id=client_id))
        return self.response(ROWS[name], version)[1]

    def response(self, row: Api, version: int) -> tuple[int, Any]:
        """The correlation id and the body of the next answer."""
        return parsed(self.answer(), row, version)

    def ended(self) -> bool:
        """Whether the broker closes the connection, whatever it sent before."""
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
    """So many connections."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(address)) for _ in range(count)]


def parsed(content: bytes, row: Api, version: int) -> tuple[int, Any]:
    """The correlation id and the body of an answer."""
    correlation_id, at = decode_response_header(row.key, version, content)
    return correlation_id, decode(row.response, content, version, at)


def alive(address: str) -> bool:
    """Whether a new client is served."""
    with Peer(address) as peer:
        peer.send(API_VERSIONS)
        return peer.answer()[:4] == b"\0\0\0\1"


def batch(
    values: Iterable[bytes | None],
    codec: int = compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A record batch as a producer sends it."""
    rows: list[Record] = [
        (at, 1_700_000_000_000, None, value, []) for at, value in enumerate(values)
    ]
    return bytes(batch_builder.build(rows, codec=codec, producer=producer))


def to_produce(
    topic: str, data: bytes | Sequence[bytes], *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    """One request with these batches, one a partition from `partition` on."""
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
    """One request for the first `partitions` of a topic."""
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
    """How much memory a process holds, in bytes."""
    found: int = psutil.Process(pid).memory_info().rss
    return found


def until(what: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + patience
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
