"""One client connection: bytes in, frames out of them, answers back in the order of the requests.

Rules
- Small frames are cut out of a scratch buffer that all connections of a loop share (reading is
  synchronous, so it is free again before the next one reads); a large frame is received straight
  into its own buffer and never copied.
- A frame's announced length is checked before a byte of it is kept, and its buffer grows with what
  arrives: announcing much costs the announcer, not us.
- One request at a time, as Kafka does, until its handler calls `release`: then the next one begins,
  while answers still leave in order.
- Reading stops while too many requests are unanswered, while the client does not read its answers,
  or while Redis is behind. Whoever floods us waits; nobody else does.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import Any, TypeAlias, cast

from korvet import logs
from korvet.broker.dispatch import Hang, Request, begin, finish
from korvet.context import Node

Buffer: TypeAlias = bytes | bytearray | memoryview

SCRATCH = memoryview(bytearray(128 * 1024))
FIRST_CHUNK = 1 << 20
MAX_UNANSWERED = 128
MAX_UNSENT = 1 << 20

log = logs.get("broker.connection")


class Connection(asyncio.BufferedProtocol):
    """Belongs to one socket; `connections` is the set of all that are open."""

    def __init__(
        self,
        node: Node,
        connections: "set[Connection]",
        max_frame: int,
        most: int,
        most_per_host: int,
    ) -> None:
        self._node = node
        self._most = most
        self._most_per_host = most_per_host
        self._connections = connections
        self._max_frame = max_frame
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._tail = bytearray()
        self._frame: bytearray | None = None
        self._filled = 0
        self._length = 0
        self._waiting: deque[Buffer] = deque()
        self._answers: deque[list[Buffer] | bool | None] = deque()
        self._first = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = False
        self._current = -1
        self._reading = True
        self._writable = True
        self._closing = False
        self._awaits_room = False
        self._flushing = False
        self.closed = self._loop.create_future()
        self.host = ""
        self.port = 0
        self.last_active = monotonic()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        peer = transport.get_extra_info("peername")
        self.host, self.port = (peer[0], peer[1]) if peer else ("", 0)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT)
        self._node.metrics.connections_opened.add()
        if len(self._connections) >= self._most or self._crowded():
            log.warning("connection refused: too many", client=f"{self.host}:{self.port}")
            self._node.metrics.refused.add(1, "too many")
            self._transport.abort()
            return
        self._connections.add(self)

    def _crowded(self) -> bool:
        """Whether this client's address has all the connections it may have."""
        if len(self._connections) < self._most_per_host:
            return False
        here = sum(1 for other in self._connections if other.host == self.host)
        return here >= self._most_per_host

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._connections.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)
        self._waiting.clear()
        self._answers.clear()
        for task in self._tasks:
            task.cancel()

    def eof_received(self) -> bool:
        """The client sends no more; what it has sent is still answered."""
        if not self._answers and not self._waiting:
            return False
        self._closing = True
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return SCRATCH
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._node.metrics.received_bytes.add(nbytes)
        self.last_active = monotonic()
        if self._frame is not None:
            self._fill(nbytes)
        else:
            self._cut(SCRATCH[:nbytes])
        self._pump()

    def pause_writing(self) -> None:
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        self._writable = True
        self._pump()

    # Frames.

    def _fill(self, nbytes: int) -> None:
        assert self._frame is not None
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        if self._filled < self._length:
            # Resizing needs the memoryviews gone: they were the loop's, and it is done with them.
            grown = bytearray(min(self._length, 2 * self._filled))
            grown[: self._filled] = self._frame
            self._frame = grown
            return
        self._waiting.append(self._frame)
        self._frame, self._filled = None, 0

    def _cut(self, data: memoryview) -> None:
        """Frames out of the scratch buffer; what is left over is kept."""
        if self._tail:
            self._tail += data
            data = memoryview(bytes(self._tail))
            self._tail.clear()
        at, end = 0, len(data)
        while end - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            if not 0 < length <= self._max_frame:
                head = bytes(data[at : at + 4])
                self.hang(_wrong_length(length, self._max_frame, head, self.speaks))
                return
            if at + 4 + length > end:
                self._start(length, data[at + 4 :])
                return
            self._waiting.append(bytes(data[at + 4 : at + 4 + length]))
            at += 4 + length
        self._tail += data[at:]

    def _start(self, length: int, begun: memoryview) -> None:
        """A frame that is not complete yet gets a buffer of its own."""
        frame = bytearray(min(length, max(FIRST_CHUNK, len(begun))))
        frame[: len(begun)] = begun
        self._frame, self._filled, self._length = frame, len(begun), length

    # Requests.

    def _pump(self) -> None:
        """Begins the next requests as far as order and bounds allow."""
        node = self._node
        while self._waiting and not self._busy and self._writable:
            if len(self._answers) >= MAX_UNANSWERED:
                break
            if node.store.pending_bytes >= node.store.max_pending_bytes:
                self._await_room()
                break
            frame = self._waiting.popleft()
            self._busy = True
            try:
                begun = self._begin(frame)
            except Hang as reason:
                self.hang(str(reason))
                return
            except Exception as error:
                log.exception("a handler failed", error, client=self.host)
                self.hang("a handler failed")
                return
            if isinstance(begun, list):
                self._answers.append(begun)
                self._busy = False
                if not self._flushing:
                    self._flushing = True
                    self._loop.call_soon(self._flush)
                continue
            self._answers.append(False)
            number = self._current = self._first + len(self._answers) - 1
            task = self._loop.create_task(self._run(begun, number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._regulate()

    # What is spoken here; the listener for Kafka 0.7 says otherwise.

    speaks = "Kafka's protocol"

    def _begin(self, frame: Buffer) -> Any:
        """The request, for `_finish`; or its answer as a list. Raises Hang."""
        return begin(frame, self._node, self.host, self._release)

    async def _finish(self, request: Any) -> list[Buffer] | None:
        return await finish(request, self._node)

    def _about(self, request: Any) -> dict[str, object]:
        """What a log line says of a request."""
        assert isinstance(request, Request)
        return {
            "api": request.api.name,
            "version": request.version,
            "correlation_id": request.correlation_id,
            "client_id": request.client_id,
        }

    def _release(self) -> None:
        """The running handler no longer minds if the next one begins."""
        self._busy = False
        if self._waiting:
            self._loop.call_soon(self._pump)

    async def _run(self, request: Any, number: int) -> None:
        try:
            answer = await self._finish(request)
        except Hang as reason:
            self.hang(str(reason))
            return
        except Exception as error:
            about = self._about(request)
            log.exception("a handler failed", error, client=self.host, **about)
            self.hang("a handler failed")
            return
        if self._transport.is_closing() or number < self._first:
            return
        self._answers[number - self._first] = answer
        if not self._flushing:
            # Requests that were sent to Redis together are answered together, in one write.
            self._flushing = True
            self._loop.call_soon(self._flush)
        if number == self._current:
            self._busy = False
            if self._waiting:
                self._pump()

    def _flush(self) -> None:
        """Every answer leaves for which all earlier ones have."""
        self._flushing = False
        parts: list[Buffer] = []
        answers = self._answers
        while answers and answers[0] is not False:
            answer = answers.popleft()
            self._first += 1
            if isinstance(answer, list):
                parts += answer
        if parts:
            self._node.metrics.sent_bytes.add(sum(map(len, parts)))
            self._transport.writelines(parts)
        if self._waiting or not self._reading:
            self._pump()
        if self._closing and not answers and not self._waiting:
            self._transport.close()

    # Bounds.

    def _await_room(self) -> None:
        if not self._awaits_room:
            self._awaits_room = True
            task = self._loop.create_task(self._when_room())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _when_room(self) -> None:
        await self._node.store.room()
        self._awaits_room = False
        self._pump()

    def _regulate(self) -> None:
        """Reads from the client exactly while more requests can be taken."""
        wanted = len(self._waiting) < MAX_UNANSWERED and self._writable and not self._awaits_room
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # The end.

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._answers and not self._waiting

    def hang(self, reason: str) -> None:
        """The connection ends at once, with one line in the log."""
        if not self._transport.is_closing():
            log.warning("connection closed", client=f"{self.host}:{self.port}", reason=reason)
            self._node.metrics.refused.add(1, "protocol")
        self._waiting.clear()
        self._transport.close()

    def drain(self) -> None:
        """No further request is taken; the connection ends once what is under way is answered."""
        self._closing = True
        self._waiting.clear()
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading = False
        if not self._answers:
            self._transport.close()

    def abort(self) -> None:
        """The connection is gone, answered or not."""
        self._transport.abort()


def _wrong_length(length: int, limit: int, raw: bytes, speaks: str) -> str:
    if raw in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return f"this is HTTP, and the port speaks {speaks}"
    if raw[:2] == b"\x16\x03":
        return f"this is TLS, and the port speaks {speaks} in the clear"
    return f"a frame of {length} bytes: from 1 to {limit} (socket.request.max.bytes) are taken"
