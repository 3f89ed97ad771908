"""Check HeartbeatBatcher: calls sent at once, waits, batches, and their replies."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.heartbeat_batcher import MAX_BATCH, MAX_SINGLE, HeartbeatBatcher
from korvet.scripts.call import Call, Signal
from korvet.scripts.calls.namespace import GroupHeartbeatReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import ScriptFailed, StoreUnavailable

AGES = 3600.0
"""A gap longer than any test."""


class Store:
    """A store that records calls; the test replies."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.is_cluster = is_cluster
        self.sent: list[tuple[Call[Any], asyncio.Future[Any]]] = []
        self.another = asyncio.Event()

    def submit(self, call: Call[Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.sent.append((call, future))
        self.another.set()
        return future


class Groups:
    """A ticker that records the ticks and schedules per group."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.neglected: set[str] = set()
        self.error: Exception | None = None

    def needs_tick(self, group_id: str, wait_ms: int) -> bool:
        return group_id in self.neglected

    async def schedule_tick(self, group_id: str, wait_ms: int) -> None:
        self._note("watch", group_id)

    async def tick(self, group_id: str) -> int:
        self._note("tick", group_id)
        return -1

    def _note(self, what: str, group_id: str) -> None:
        self.done.append((what, group_id))
        if self.error is not None:
            raise self.error


class Table:
    """A batcher over a store whose replies the test sets."""

    def __init__(self, gap_s: float, *, is_cluster: bool = False) -> None:
        self.store = Store(is_cluster=is_cluster)
        self.groups = Groups()
        self.beats = HeartbeatBatcher(cast(AsyncStore, self.store), Keys(), self.groups, gap_s)

    def beat(self, member: str = "m", group: str = "g") -> "asyncio.Future[int]":
        return self.beats.submit(group, member, "", 1)

    @property
    def calls(self) -> list[list[str]]:
        """The members of each call so far."""
        return [[str(member) for member in call.args[1::4]] for call, _ in self.store.sent]

    def reply(self, number: int, *errors: int, waits: int = 1) -> None:
        self.store.sent[number][1].set_result(GroupHeartbeatReply(list(errors), [1000] * waits))

    async def meet(self) -> "asyncio.Future[int]":
        """Send two concurrent heartbeats and reply to the first."""
        first = self.beat("one")
        await turn()
        self.store.another.clear()
        second = self.beat("two")
        self.reply(0, 0)
        await first
        return second


async def turn() -> None:
    """Run the callbacks that are ready."""
    for _ in range(4):
        await asyncio.sleep(0)


def run(
    body: Callable[[Table], Awaitable[None]], gap_s: float = AGES, *, is_cluster: bool = False
) -> None:
    async def main() -> None:
        await body(Table(gap_s, is_cluster=is_cluster))

    asyncio.run(main())


def test_a_single_heartbeat_is_sent_at_once() -> None:
    async def body(table: Table) -> None:
        for number in range(MAX_SINGLE + 5):
            answer = table.beat()
            await turn()
            table.reply(number, 0)
            assert await answer == 0

    run(body)


def test_heartbeats_of_one_iteration_are_one_call_with_a_reply_each() -> None:
    async def body(table: Table) -> None:
        answers = [table.beat("a"), table.beat("b", "h"), table.beat("c")]
        await turn()
        assert table.calls == [["a", "b", "c"]]
        assert list(table.store.sent[0][0].args[0::4]) == [1, 2, 1]
        table.reply(0, 0, 25, 27, waits=2)
        assert [await answer for answer in answers] == [0, 25, 27]

    run(body)


def test_after_two_concurrent_heartbeats_later_ones_wait_for_the_gap() -> None:
    async def body(table: Table) -> None:
        await table.meet()
        table.beat("three")
        await turn()
        assert table.calls == [["one"]]

    run(body)


def test_waiting_heartbeats_are_one_call_after_the_gap() -> None:
    async def body(table: Table) -> None:
        await table.meet()
        table.beat("three")
        await table.store.another.wait()
        assert table.calls == [["one"], ["two", "three"]]

    run(body, gap_s=0.01)


def test_heartbeats_stop_waiting_after_batches_of_one() -> None:
    async def body(table: Table) -> None:
        answer = await table.meet()
        for number in range(1, MAX_SINGLE + 1):
            await table.store.another.wait()
            table.store.another.clear()
            table.reply(number, 0)
            await answer
            answer = table.beat()
        table.beats.gap_s = AGES
        for number in range(MAX_SINGLE + 1, MAX_SINGLE + 4):
            await turn()
            assert len(table.store.sent) == number + 1
            table.reply(number, 0)
            await answer
            answer = table.beat()

    run(body, gap_s=0.001)


def test_consumer_group_heartbeats_are_sent_with_the_batch() -> None:
    async def body(table: Table) -> None:
        left: list[str] = []

        async def beat(name: str) -> None:
            async with table.beats.next_batch():
                left.append(name)
                await asyncio.Event().wait()

        first = asyncio.create_task(beat("first"))
        await turn()
        assert left == ["first"]
        other = asyncio.create_task(beat("other"))
        table.beat()
        await turn()
        assert (left, table.calls) == (["first"], [])
        for task in (first, other):
            task.cancel()
        await asyncio.gather(first, other, return_exceptions=True)
        assert table.beats._unanswered == 1

    run(body)


def test_a_consumer_group_heartbeat_waits_no_longer_than_the_gap() -> None:
    async def body(table: Table) -> None:
        await table.meet()
        async with table.beats.next_batch():
            assert table.calls == [["one"], ["two"]]

    run(body, gap_s=0.01)


def test_in_a_cluster_each_group_has_its_own_call() -> None:
    async def body(table: Table) -> None:
        table.beat("a"), table.beat("b", "h"), table.beat("c")
        await turn()
        assert table.calls == [["a", "c"], ["b"]]

    run(body, is_cluster=True)


def test_one_call_has_a_bounded_number_of_heartbeats() -> None:
    async def body(table: Table) -> None:
        for number in range(MAX_BATCH + 1):
            table.beat(str(number))
        await turn()
        assert list(map(len, table.calls)) == [MAX_BATCH, 1]

    run(body)


def test_a_group_is_ticked_before_its_members_get_responses() -> None:
    async def body(table: Table) -> None:
        due, other = table.beat("a"), table.beat("b", "h")
        await turn()
        table.reply(0, Signal.TICK_FIRST, 0, waits=2)
        assert await other == 0
        await turn()
        assert table.groups.done == [("tick", "g")]
        assert table.calls[1:] == [["a"]]
        table.reply(1, ErrorCode.UNKNOWN_MEMBER_ID)
        assert await due == ErrorCode.UNKNOWN_MEMBER_ID

    run(body)


def test_a_group_without_a_scheduled_tick_is_scheduled_first() -> None:
    async def body(table: Table) -> None:
        table.groups.neglected.add("g")
        answer = table.beat()
        await turn()
        table.reply(0, 0)
        assert await answer == 0
        assert table.groups.done == [("watch", "g")]

    run(body)


@pytest.mark.parametrize("code", [Signal.TICK_FIRST, ErrorCode.NONE])
def test_members_get_the_error_of_a_failed_tick_or_schedule(code: ErrorCode) -> None:
    async def body(table: Table) -> None:
        table.groups.neglected.add("g")
        table.groups.error = StoreUnavailable("gone")
        answer = table.beat()
        await turn()
        table.reply(0, code)
        with pytest.raises(StoreUnavailable):
            await answer

    run(body)


def test_all_heartbeats_fail_if_redis_is_unavailable() -> None:
    async def body(table: Table) -> None:
        answers = [table.beat("a"), table.beat("b", "h")]
        answers[0].cancel()
        await turn()
        table.store.sent[0][1].set_exception(StoreUnavailable("gone"))
        with pytest.raises(StoreUnavailable):
            await answers[1]
        assert len(table.store.sent) == 1

    run(body)


def test_a_group_with_keys_of_wrong_types_affects_no_other_group() -> None:
    async def body(table: Table) -> None:
        broken, sound = table.beat("a"), table.beat("b", "h")
        await turn()
        table.store.sent[0][1].set_exception(ScriptFailed("group.heartbeat", 2, "WRONGTYPE"))
        await turn()
        assert table.calls[1:] == [["a"], ["b"]]
        table.store.sent[1][1].set_exception(ScriptFailed("group.heartbeat", 2, "WRONGTYPE"))
        table.reply(2, 0)
        assert await sound == 0
        with pytest.raises(ScriptFailed):
            await broken

    run(body)
