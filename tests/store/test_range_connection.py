"""Check range replies on a real server: not copied, in order with other commands."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from korvet.scripts.call import Arg
from korvet.store import range_connection
from korvet.store.async_store import AsyncStore
from korvet.store.connection import PendingCommand
from korvet.store.errors import StoreUnavailable
from korvet.store.range_connection import PendingRange, RangeConnection
from korvet.store.raw_reply import parsed
from korvet.store.resp import end_of
from tests.store.proxy import proxy
from tests.support.redis_servers import TestServer


class Whole:
    """A number of replies, found by their ends and not parsed."""

    def __init__(self, size: int, replies: int = 1) -> None:
        self.size = size
        self.replies = replies
        self.restart()

    def restart(self) -> None:
        """Forget the replies found: the bytes have moved."""
        self.at = -1
        self.views: list[memoryview] = []

    def read(self, view: memoryview, start: int, end: int) -> int:
        """Return the position after all replies; -1 while they are incomplete."""
        if self.at < 0:
            self.at = start
        while len(self.views) < self.replies:
            stop = end_of(view, self.at, end)
            if stop < 0:
                return -1
            self.views.append(view[self.at : stop])
            self.at = stop
        return self.at

    @property
    def values(self) -> list[object]:
        """The replies, parsed."""
        return [parsed(view) for view in self.views]


def sent(store: AsyncStore, reply: Whole, *commands: Sequence[Arg]) -> "asyncio.Future[None]":
    """Send the commands of a range and return the future of its reply."""
    future = store.submit_range("k", commands, reply)
    assert future is not None
    return future


async def fill(store: AsyncStore, sizes: Sequence[int]) -> list[bytes]:
    """Store strings of these sizes at v0, v1 and so on, and return them."""
    values = [bytes([65 + at % 26]) * size for at, size in enumerate(sizes)]
    for at, value in enumerate(values):
        await store.command("SET", f"v{at}", value)
    return values


@pytest.mark.parametrize("expected", [16, 100_000, 3_000_000])
async def test_replies_of_any_size_are_whole_whatever_size_was_expected(
    redis_server: TestServer, expected: int
) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        values = await fill(store, [0, 10, 200_000, 1_500_000, 70_000, 2_500_000, 3])
        replies = [Whole(expected, 2) for _ in values]
        pending = [
            sent(store, reply, ("GET", f"v{at}"), ("ECHO", str(at)))
            for at, reply in enumerate(replies)
        ]
        await asyncio.gather(*pending)
        # Later replies are not written over earlier ones.
        for at, reply in enumerate(replies):
            assert reply.values == [values[at], b"%d" % at]


async def test_replies_are_found_again_whenever_the_buffer_is_too_small(
    redis_server: TestServer,
) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        values = await fill(store, [70_000])
        pipeline = store._router.for_range("k").pipeline
        assert pipeline is not None
        before = asyncio.get_running_loop().create_future()
        pipeline.send(PendingCommand(before, command=("ECHO", "before")))
        reply = Whole(16, 50)
        await sent(store, reply, *[("GET", "v0")] * 50)
        assert (await before, reply.values) == (b"before", values * 50)


async def test_other_commands_are_answered_between_ranges(redis_server: TestServer) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        values = await fill(store, [300_000, 300_000])
        connection = store._router.for_range("k")
        pipeline = connection.pipeline
        assert isinstance(pipeline, RangeConnection)
        for _ in range(3):
            replies = [Whole(300_000), Whole(300_000)]
            first = sent(store, replies[0], ("GET", "v0"))
            asked = asyncio.get_running_loop().create_future()
            pipeline.send(range_connection.PendingCommand(asked, command=("MGET", "v1", "none")))
            last = sent(store, replies[1], ("GET", "v1"))
            assert await asked == [values[1], None]
            await asyncio.gather(first, last)
            assert [reply.values for reply in replies] == [[values[0]], [values[1]]]
        assert pipeline.pending_bytes == 0


async def test_an_error_reply_is_passed_on(redis_server: TestServer) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        await store.command("SET", "v", "x")
        reply = Whole(100, 2)
        await sent(store, reply, ("HGET", "v", "f"), ("GET", "v"))
        assert bytes(reply.views[0]).startswith(b"-WRONGTYPE")
        assert reply.values[1] == b"x"


async def test_a_cancelled_range_does_not_change_the_others(redis_server: TestServer) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        values = await fill(store, [400_000, 500_000])
        left = sent(store, Whole(400_000), ("GET", "v0"))
        left.cancel()
        reply = Whole(500_000)
        await sent(store, reply, ("GET", "v1"))
        assert reply.values == [values[1]]


async def test_a_broken_connection_fails_its_ranges_and_reconnects(
    redis_server: TestServer,
) -> None:
    async with proxy(redis_server.url) as wire, await AsyncStore.connect(wire.url) as store:
        values = await fill(store, [400_000])
        wire.hold()
        pending = sent(store, Whole(400_000), ("GET", "v0"))
        await asyncio.sleep(0)
        wire.cut()
        with pytest.raises(StoreUnavailable):
            await pending
        await store.ready()
        reply = Whole(400_000)
        await sent(store, reply, ("GET", "v0"))
        assert reply.values == [values[0]]


async def test_without_a_connection_no_range_is_sent(redis_server: TestServer) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        await store._router.for_range("k").close()
        assert store.submit_range("k", (("PING",),), Whole(10)) is None


class Owner:
    """The owner of a connection; notes why it ended."""

    others_wait = False

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.ended = asyncio.Event()

    def lost(
        self, pipeline: object, reason: str, pending_commands: Sequence[PendingCommand]
    ) -> None:
        """Note why the connection ended, and fail its commands."""
        for pending_command in pending_commands:
            pending_command.fail(StoreUnavailable(reason))
        self.reasons.append(reason)
        self.ended.set()

    def answered(self, pending_command: object, outcome: str) -> None:
        """Ignore the answer."""

    def redirected(self, pending_command: object, message: str) -> bool:
        """Redirect nothing."""
        return False

    def progressed(self) -> None:
        """Ignore the progress."""

    def writing(self) -> None:
        """Check nothing before a write."""


@pytest.mark.parametrize("answer", [b"nonsense\r\n", b"*1\r\n?\r\n", b"+a\r\n+too many\r\n"])
async def test_bytes_that_are_no_reply_end_the_connection(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await reader.read(100)
        writer.close()

    owner, loop = Owner(), asyncio.get_running_loop()
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        _, made = await loop.create_connection(
            lambda: RangeConnection(owner, 30.0), "127.0.0.1", port
        )
        future: asyncio.Future[None] = loop.create_future()
        made.send_range(PendingRange(future, (("PING",),), Whole(10), 0.0))
        if answer.startswith(b"+"):
            await future
        else:
            with pytest.raises(StoreUnavailable, match="invalid reply"):
                await future
        await asyncio.wait_for(owner.ended.wait(), 10)
    assert "invalid reply" in owner.reasons[0]


async def test_a_large_reply_is_received_in_turns(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = list[int]()
    end_turn = RangeConnection._end_turn

    def noted(self: RangeConnection) -> None:
        turns.append(self._received)
        end_turn(self)

    monkeypatch.setattr(RangeConnection, "_end_turn", noted)
    monkeypatch.setattr(range_connection, "TURN_BYTES", 50_000)
    async with await AsyncStore.connect(redis_server.url) as store:
        (value,) = await fill(store, [2_500_000])
        reply = Whole(16)
        await sent(store, reply, ("GET", "v0"))
        assert reply.values == [value]
    # Each iteration is one read or a few, of at most TURN_BYTES each.
    assert len(turns) > 3 and max(turns) < len(value) and sum(turns) > len(value)


class Busy:
    """A connection with a command in flight."""

    oldest = object()


@pytest.mark.parametrize("others_wait", [False, True])
async def test_a_range_is_received_in_short_turns_while_other_commands_wait(
    redis_server: TestServer, monkeypatch: pytest.MonkeyPatch, others_wait: bool
) -> None:
    received: list[int] = []
    whole = RangeConnection.buffer_updated

    def updated(self: RangeConnection, nbytes: int) -> None:
        received.append(nbytes)
        whole(self, nbytes)

    monkeypatch.setattr(RangeConnection, "buffer_updated", updated)
    async with await AsyncStore.connect(redis_server.url) as store:
        values = await fill(store, [1_500_000])
        ranges = store._router.for_range("k")
        monkeypatch.setattr(ranges, "others", (Busy(),) if others_wait else ())
        received.clear()
        reply = Whole(1_500_000)
        await sent(store, reply, ("GET", "v0"))
    assert reply.values == [values[0]]
    turn = range_connection.SHORT_TURN_BYTES if others_wait else range_connection.TURN_BYTES
    assert max(received) <= turn
    assert sum(received) >= 1_500_000


async def test_commands_of_the_other_connections_shorten_the_turns_of_ranges(
    redis_server: TestServer,
) -> None:
    async with await AsyncStore.connect(redis_server.url) as store:
        ranges = store._router.for_range("k")
        assert not ranges.others_wait
        pending = store.submit_command("PING")
        assert ranges.others_wait
        await pending
        assert not ranges.others_wait
