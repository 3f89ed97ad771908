"""Check read-ahead of ranges: how many, for which readers, and how long."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.log import range_reads
from korvet.log.range_reads import AHEAD_BYTES, IDLE_S, PAUSE_S, Range, RangeReads
from korvet.log.read_cache import ReadCache
from korvet.log.read_result import ReadRequest
from korvet.log.recent_states import FRESH_S, RENEW_S, RecentStates
from korvet.scripts.keys import Keys
from korvet.store.errors import StoreUnavailable

POLICY = SimpleNamespace(
    offset_mode="dense",
    storage_format="batch",
    compact=False,
    log_append_time=False,
    offset_bits=0,
)
TOPIC: Any = SimpleNamespace(
    id="a" * 32, name="t", policy=POLICY, partition=partial(Keys().partition, "t")
)
SIZE = 100_000
READ = 10 * SIZE
EACH = 10
"""Batches of a read."""
END = 10_000
STATE = [TOPIC.id.encode(), b"%d" % END, b"0", b"3", b"%d" % (END * SIZE), b"%d" % END]
FIELDS: list[bytes | None] = [*STATE, b"%d" % SIZE, *[None] * 6]


class Store:
    """A store whose replies arrive when the test lets them."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, asyncio.Future[None]]] = []
        self.commands: list[list[str]] = []
        """The names of each range's commands."""
        self.is_away = False

    def submit_range(self, key: str, commands: Any, reply: Any) -> asyncio.Future[None] | None:
        if self.is_away:
            return None
        future = asyncio.get_running_loop().create_future()
        self.sent.append((reply, future))
        self.commands.append([command[0] for command in commands])
        return future

    def submit_command(self, *command: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(FIELDS)
        return future


class Reads:
    """Range reads on that store, at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.epoch = 100.0, 1
        self.store = Store()
        cache, calls = ReadCache(0, lambda: self.epoch), self.store
        self.cache = cache
        states = RecentStates(calls)  # type: ignore[arg-type]
        self.ranges = RangeReads(
            self.store,
            calls,
            cache,
            states,
            100,
            lambda: self.epoch,  # type: ignore[arg-type]
            reads_ahead=True,
        )
        monkeypatch.setattr(range_reads, "monotonic", lambda: self.now)
        monkeypatch.setattr("korvet.log.recent_states.monotonic", lambda: self.now)
        cache.sizes.learn(TOPIC, 0, SIZE, SIZE, END, None)
        for partition in range(100):
            cache.sizes.learn(TOPIC, partition, SIZE, SIZE, END, None)
            for offset in range(0, 100, EACH):
                cache.sizes.note_read(TOPIC, partition, offset, SIZE, SIZE)

    def request(self, offset: int = 0, partition: int = 0) -> ReadRequest:
        return ReadRequest(TOPIC, partition, offset, READ, batches=True)

    async def arrive(self, made: Range) -> None:
        """Let the replies arrive."""
        first = made.request.offset
        batch = memoryview(bytearray(SIZE))
        walk: Any = made.reply
        walk.state = FIELDS if walk._with_state else []
        walk.bounds = [TOPIC.id.encode(), b"0", None]
        walk._view = batch
        walk._batches = [(at, 1, 0, SIZE) for at in range(first, first + EACH)]
        made.sent.set_result(None)
        await asyncio.sleep(0)

    async def serve(self, offset: int, partition: int = 0) -> Range:
        """Read a range and take its batches."""
        request = self.request(offset, partition)
        made = self.ranges.begin(request)
        assert made is not None
        if not made.sent.done():
            await self.arrive(made)
        state = self.ranges.state_for(made, self.now)
        assert state is not None
        found = self.ranges.take(made, request, state)
        assert found is not None and found.next == offset + EACH and found.size == READ
        return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


async def test_the_next_range_of_a_reader_is_in_flight_before_its_request(reads: Reads) -> None:
    await reads.serve(0)
    assert len(reads.store.sent) == 2
    ahead = reads.ranges.begin(reads.request(EACH))
    assert ahead is not None and len(reads.store.sent) == 2 and reads.ranges.hits == 1


async def test_bytes_that_a_catch_up_reads_from_redis_are_counted(reads: Reads) -> None:
    await reads.serve(0)
    await reads.serve(EACH)
    assert reads.cache.catch_up_bytes == 2 * READ


async def test_a_young_state_is_not_read_with_each_range(reads: Reads) -> None:
    with_state, without = ["HMGET", "XRANGE", "HMGET"], ["XRANGE", "HMGET"]
    await reads.serve(0)
    await reads.serve(EACH)
    assert reads.store.commands == [with_state, without, without]
    reads.now += RENEW_S
    await reads.serve(50)
    assert reads.store.commands[3] == with_state


async def test_a_range_of_a_log_that_has_changed_meanwhile_is_not_used(reads: Reads) -> None:
    for bounds in ([b"b" * 32, b"0", None], [TOPIC.id.encode(), b"5", None], [b"a" * 32], []):
        made = reads.ranges.begin(reads.request())
        assert made is not None
        await reads.arrive(made)
        made.reply.bounds = bounds
        state = reads.ranges.state_for(made, reads.now)
        assert state is not None and reads.ranges.take(made, reads.request(), state) is None
        reads.ranges.forget(made)


async def test_a_read_that_continues_none_is_followed_by_none(reads: Reads) -> None:
    await reads.serve(5)
    assert len(reads.store.sent) == 1


async def test_reads_ahead_are_bounded_and_no_reader_drops_anothers(reads: Reads) -> None:
    for partition in range(20):
        await reads.serve(0, partition)
    ahead = len(reads.store.sent) - 20
    assert ahead == AHEAD_BYTES // (READ + 10 * 128 + 512) == len(reads.ranges._ranges)
    for partition in range(ahead):
        assert reads.ranges.begin(reads.request(EACH, partition)) is not None
    assert len(reads.store.sent) == ahead + 20


async def test_what_readers_left_gives_way_and_they_pause_if_all_did(reads: Reads) -> None:
    for partition in range(20):
        await reads.serve(0, partition)
    sent = len(reads.store.sent)
    reads.now += 1.1 * IDLE_S
    await reads.serve(0, 30)
    assert len(reads.store.sent) == sent + 2 and len(reads.ranges._ranges) == 1
    for partition in range(31, 50):
        await reads.serve(0, partition)
    reads.now += 1.1 * IDLE_S
    sent = len(reads.store.sent)
    await reads.serve(0, 60)
    assert len(reads.store.sent) == sent + 1, "none is read ahead: all were dropped unused"
    reads.now += PAUSE_S
    await reads.serve(0, 61)
    assert len(reads.store.sent) == sent + 3


async def test_a_range_of_another_connection_is_not_used(reads: Reads) -> None:
    await reads.serve(0)
    ahead = reads.ranges.begin(reads.request(EACH))
    reads.epoch += 1
    other = reads.ranges.begin(reads.request(EACH))
    assert other is not None and other is not ahead


async def test_a_range_that_failed_is_read_again(reads: Reads) -> None:
    made = reads.ranges.begin(reads.request())
    assert made is not None
    made.sent.set_exception(StoreUnavailable("away"))
    await asyncio.sleep(0)
    again = reads.ranges.begin(reads.request())
    assert again is not None and again is not made
    reads.store.is_away = True
    assert reads.ranges.begin(reads.request(50)) is None


async def test_a_reader_that_leaves_does_not_end_the_read_of_another(reads: Reads) -> None:
    one = asyncio.create_task(reads.ranges.read(reads.request()))
    two = asyncio.create_task(reads.ranges.read(reads.request()))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.sleep(0)
    ((_, future),) = reads.store.sent
    assert not future.cancelled()
    made = reads.ranges.begin(reads.request())
    assert made is not None
    await reads.arrive(made)
    assert (await two) is not None


async def test_an_old_state_is_read_again_before_its_range_is_used(reads: Reads) -> None:
    made = reads.ranges.begin(reads.request())
    assert made is not None
    await reads.arrive(made)
    assert reads.ranges.state_for(made, reads.now) is not None
    reads.now += 1.1 * FRESH_S
    assert reads.ranges.state_for(made, reads.now) is None
    read = await reads.ranges.read(reads.request())
    assert read is not None and read.range is made
    state = reads.ranges.state_for(made, reads.now)
    assert state is not None and state.submitted_at == reads.now
