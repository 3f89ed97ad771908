"""The gatherer: what waits, what goes together, and who gets which answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from korvet.keys import Keys
from korvet.log.append_batcher import (
    ARGUMENT,
    FEW,
    GATHERED,
    LARGE,
    TOGETHER,
    TOGETHER_BYTES,
    AppendBatcher,
)
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import AppendManyReply, AppendReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable
from korvet.store.reply_waiter import ReplyWaiter

KEYS = Keys()
HEAVY = LARGE - 20 * ARGUMENT
ID = "0123456789abcdef" * 2


class Store:
    """Keeps what it is given; the test answers."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.is_cluster = is_cluster
        self.sent: list[tuple[Call[Any], ReplyWaiter[Any]]] = []

    def send(self, call: Call[Any], waiter: ReplyWaiter[Any]) -> None:
        self.sent.append((call, waiter))

    @property
    def names(self) -> list[str]:
        return [call.script.name for call, _ in self.sent]


def stored(base: int) -> AppendReply:
    return AppendReply(0, base, base, 0, -1, 1)


def refused(error: int) -> AppendReply:
    return AppendReply(error, -1, -1, -1, -1, 0)


class Table:
    """A gatherer over a store that the test answers for."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.store = Store(is_cluster=is_cluster)
        self.append_batcher = AppendBatcher(cast(AsyncStore, self.store), KEYS)

    def append(
        self, partition: int = 0, size: int = 100, word: bytes = b"v", more: int = 0
    ) -> "asyncio.Future[AppendReply]":
        """Appends a batch of so many bytes, with `more` arguments than the usual."""
        call = log.append(
            KEYS,
            "t",
            partition,
            topic_id=ID,
            count=1,
            size=size,
            max_timestamp=1,
            fields=(b"batch", *[b""] * more, word),
        )
        future: asyncio.Future[AppendReply] = asyncio.get_running_loop().create_future()
        self.append_batcher.submit(("t", partition, ID, 0), call, size, future)
        return future


async def turn() -> None:
    """What was to happen soon, has."""
    for _ in range(3):
        await asyncio.sleep(0)


def run(body: Callable[[Table], Awaitable[None]], *, is_cluster: bool = False) -> None:
    async def main() -> None:
        await body(Table(is_cluster=is_cluster))

    asyncio.run(main())


def test_an_append_alone_goes_alone_with_this_turn() -> None:
    async def body(table: Table) -> None:
        future = table.append()
        await turn()
        assert table.store.names == ["log.append"]
        table.store.sent[0][1].set_result(stored(7))
        assert (await future).base == 7

    run(body)


def test_small_appends_wait_for_the_one_in_flight_and_go_together() -> None:
    async def body(table: Table) -> None:
        first = table.append()
        await turn()
        others = [table.append(partition=n & 1, word=b"%d" % n) for n in range(FEW - 1)]
        await turn()
        assert table.store.names == ["log.append"]
        table.store.sent[0][1].set_result(stored(0))
        assert (await first).base == 0
        assert table.store.names == ["log.append", "log.append_many"]
        gathered, reply = table.store.sent[1]
        assert gathered.keys[0] == KEYS.partition("t", 0).stream
        assert gathered.keys[5] == KEYS.partition("t", 1).stream
        # Those of one partition stand together, in the order they came.
        assert [arg for arg in gathered.args if arg in (b"0", b"1", b"2")] == [b"0", b"2", b"1"]
        reply.set_result(AppendManyReply([stored(1), stored(2), stored(3)]))
        assert [(await future).base for future in others] == [1, 3, 2]

    run(body)


def test_a_few_that_wait_are_a_second_flight_and_the_rest_go_when_one_lands() -> None:
    async def body(table: Table) -> None:
        table.append()
        await turn()
        for _ in range(FEW):
            table.append()
        await turn()
        assert table.store.names == ["log.append", "log.append_many"]
        for _ in range(2 * FEW):
            table.append()
        await turn()
        assert len(table.store.sent) == 2
        table.store.sent[1][1].set_result(AppendManyReply([stored(1)] * FEW))
        assert table.store.names == ["log.append", "log.append_many", "log.append_many"]

    run(body)


def test_many_bytes_do_not_wait() -> None:
    async def body(table: Table) -> None:
        table.append()
        await turn()
        for _ in range(FEW):
            table.append()
        await turn()
        for _ in range(GATHERED // LARGE):
            table.append(size=HEAVY)
        await turn()
        assert table.store.names == ["log.append", "log.append_many"]
        table.append()
        table.append(size=HEAVY)
        await turn()
        assert table.store.names == ["log.append", "log.append_many", "log.append_many"]

    run(body)


def test_a_large_batch_goes_by_itself_behind_what_waits() -> None:
    async def body(table: Table) -> None:
        table.append()
        await turn()
        table.append(word=b"small")
        table.append(word=b"large", size=LARGE)
        table.append(word=b"another", size=LARGE)
        words = [call.args[-1] for call, _ in table.store.sent[1:]]
        assert words == [b"small", b"large", b"another"]
        assert table.store.names == ["log.append"] * 4
        await turn()
        assert len(table.store.sent) == 4

    run(body)


def test_a_cluster_waits_for_nobody() -> None:
    async def body(table: Table) -> None:
        table.append()
        await turn()
        table.append(partition=1)
        table.append(partition=2)
        table.append(partition=2)
        await turn()
        assert table.store.names == ["log.append", "log.append", "log.append_many"]
        assert [len(call.keys) for call, _ in table.store.sent] == [5, 5, 5]

    run(body, is_cluster=True)


def test_one_call_takes_a_bounded_number_of_batches() -> None:
    async def body(table: Table) -> None:
        for n in range(TOGETHER + 1):
            table.append(partition=n // (TOGETHER - 1), size=1)
        await turn()
        assert table.store.names == ["log.append_many", "log.append"]
        (gathered, _), (_, last) = table.store.sent
        assert len(gathered.keys) == 10
        last.set_result(stored(1))
        table.append()
        await turn()
        assert len(table.store.sent) == 3

    run(body)


def test_one_call_takes_a_bounded_number_of_bytes() -> None:
    async def body(table: Table) -> None:
        for n in range(2 * (TOGETHER_BYTES // LARGE) + 2):
            table.append(partition=n % 3, size=HEAVY)
        await turn()
        assert table.store.names == ["log.append_many"] * 3

    run(body)


def test_a_batch_of_many_arguments_goes_by_itself() -> None:
    async def body(table: Table) -> None:
        for partition in range(3):
            table.append(partition=partition, more=LARGE // ARGUMENT)
        assert table.store.names == ["log.append"] * 3

    run(body)


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), None])
def test_whoever_waits_hears_what_became_of_all(error: StoreUnavailable | None) -> None:
    async def body(table: Table) -> None:
        futures = [table.append() for _ in range(3)]
        futures[1].cancel()
        await turn()
        (_, reply), *_ = table.store.sent
        if error:
            reply.set_exception(error)
        else:
            reply.set_result(AppendManyReply([refused(3)] * 3))
        await turn()
        if error:
            assert futures[0].exception() is futures[2].exception() is error
        else:
            assert [futures[0].result().error, futures[2].result().error] == [3, 3]
        table.append()
        await turn()
        assert len(table.store.sent) == 2

    run(body)


def test_a_partition_that_fails_alone_is_told_so_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(table: Table) -> None:
        futures = [table.append(partition=n) for n in range(2)]
        await turn()
        table.store.sent[0][1].set_result(
            AppendManyReply([refused(56), stored(4)], b"korvet:t:0: WRONGTYPE of a key")
        )
        assert [(await future).error for future in futures] == [56, 0]

    run(body)
    (said,) = caplog.records
    assert "korvet:t:0: WRONGTYPE of a key" in str(vars(said))
