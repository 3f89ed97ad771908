"""Check AppendBatcher: appends that wait, appends that share a call, and their replies."""

import asyncio
from typing import Any, cast

import pytest

from korvet.log.append_batcher import (
    ARGUMENT_BYTES,
    MAX_BATCHES,
    MAX_CALL_BYTES,
    MAX_SHARED_BYTES,
    MAX_WAITING_BYTES,
    MIN_SECOND_FLIGHT,
    AppendBatcher,
)
from korvet.scripts.call import Call
from korvet.scripts.calls.namespace import LogAppendManyReply
from korvet.scripts.calls.partition import AppendReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.calls import ReplyWaiter
from korvet.store.errors import StoreUnavailable

KEYS = Keys()
HEAVY = MAX_SHARED_BYTES - 20 * ARGUMENT_BYTES
ID = "0123456789abcdef" * 2


class Store:
    """A store that records its calls; the test replies."""

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
    """A batcher over a store for which the test replies."""

    def __init__(self, *, is_cluster: bool = False) -> None:
        self.store = Store(is_cluster=is_cluster)
        self.append_batcher = AppendBatcher(cast(AsyncStore, self.store), KEYS)

    def append(
        self, partition: int = 0, size: int = 100, word: bytes = b"v", more: int = 0
    ) -> "asyncio.Future[AppendReply]":
        """Submit a batch of that size, with `more` arguments than usual."""
        call = KEYS.partition("t", partition, ID).append(
            count=1, size=size, max_timestamp=1, fields=(b"batch", *[b""] * more, word)
        )
        future: asyncio.Future[AppendReply] = asyncio.get_running_loop().create_future()
        self.append_batcher.submit(("t", partition, ID, 0), call, size, future)
        return future


async def turn() -> None:
    """Run the callbacks that are due."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture
async def table() -> Table:
    return Table()


async def test_a_single_append_is_sent_in_this_iteration(table: Table) -> None:
    future = table.append()
    await turn()
    assert table.store.names == ["log.append"]
    table.store.sent[0][1].set_result(stored(7))
    assert (await future).base == 7


async def test_small_appends_are_batched_while_one_is_in_flight(table: Table) -> None:
    first = table.append()
    await turn()
    others = [table.append(partition=n & 1, word=b"%d" % n) for n in range(MIN_SECOND_FLIGHT - 1)]
    await turn()
    assert table.store.names == ["log.append"]
    table.store.sent[0][1].set_result(stored(0))
    assert (await first).base == 0
    assert table.store.names == ["log.append", "log.append_many"]
    batched, reply = table.store.sent[1]
    assert batched.keys[0] == KEYS.partition("t", 0).stream
    assert batched.keys[9] == KEYS.partition("t", 1).stream
    # Batches of one partition are together, in the order of submission.
    assert [arg for arg in batched.args if arg in (b"0", b"1", b"2")] == [b"0", b"2", b"1"]
    reply.set_result(LogAppendManyReply([stored(1), stored(2), stored(3)], b""))
    assert [(await future).base for future in others] == [1, 3, 2]


async def test_several_waiting_appends_make_a_second_call_and_the_rest_wait_for_a_reply(
    table: Table,
) -> None:
    table.append()
    await turn()
    for _ in range(MIN_SECOND_FLIGHT):
        table.append()
    await turn()
    assert table.store.names == ["log.append", "log.append_many"]
    for _ in range(2 * MIN_SECOND_FLIGHT):
        table.append()
    await turn()
    assert len(table.store.sent) == 2
    table.store.sent[1][1].set_result(LogAppendManyReply([stored(1)] * MIN_SECOND_FLIGHT, b""))
    assert table.store.names == ["log.append", "log.append_many", "log.append_many"]


async def test_many_waiting_bytes_are_sent(table: Table) -> None:
    table.append()
    await turn()
    for _ in range(MIN_SECOND_FLIGHT):
        table.append()
    await turn()
    for _ in range(MAX_WAITING_BYTES // MAX_SHARED_BYTES):
        table.append(size=HEAVY)
    await turn()
    assert table.store.names == ["log.append", "log.append_many"]
    table.append()
    table.append(size=HEAVY)
    await turn()
    assert table.store.names == ["log.append", "log.append_many", "log.append_many"]


async def test_a_large_batch_is_sent_alone_after_the_waiting_ones(table: Table) -> None:
    table.append()
    await turn()
    table.append(word=b"small")
    table.append(word=b"large", size=MAX_SHARED_BYTES)
    table.append(word=b"another", size=MAX_SHARED_BYTES)
    words = [call.args[-1] for call, _ in table.store.sent[1:]]
    assert words == [b"small", b"large", b"another"]
    assert table.store.names == ["log.append"] * 4
    await turn()
    assert len(table.store.sent) == 4


async def test_no_append_waits_in_a_cluster() -> None:
    table = Table(is_cluster=True)
    table.append()
    await turn()
    table.append(partition=1)
    table.append(partition=2)
    table.append(partition=2)
    await turn()
    assert table.store.names == ["log.append", "log.append", "log.append_many"]
    assert [len(call.keys) for call, _ in table.store.sent] == [9, 9, 9]


async def test_one_call_takes_a_bounded_number_of_batches(table: Table) -> None:
    for n in range(MAX_BATCHES + 1):
        table.append(partition=n // (MAX_BATCHES - 1), size=1)
    await turn()
    assert table.store.names == ["log.append_many", "log.append"]
    (batched, _), (_, last) = table.store.sent
    assert len(batched.keys) == 18
    last.set_result(stored(1))
    table.append()
    await turn()
    assert len(table.store.sent) == 3


async def test_one_call_takes_a_bounded_number_of_bytes(table: Table) -> None:
    for n in range(2 * (MAX_CALL_BYTES // MAX_SHARED_BYTES) + 2):
        table.append(partition=n % 3, size=HEAVY)
    await turn()
    assert table.store.names == ["log.append_many"] * 3


async def test_a_batch_with_many_arguments_is_sent_alone(table: Table) -> None:
    for partition in range(3):
        table.append(partition=partition, more=MAX_SHARED_BYTES // ARGUMENT_BYTES)
    assert table.store.names == ["log.append"] * 3


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), None])
async def test_a_cancelled_append_does_not_affect_the_others(
    table: Table, error: StoreUnavailable | None
) -> None:
    futures = [table.append() for _ in range(3)]
    futures[1].cancel()
    await turn()
    (_, reply), *_ = table.store.sent
    if error:
        reply.set_exception(error)
    else:
        reply.set_result(LogAppendManyReply([refused(3)] * 3, b""))
    await turn()
    if error:
        assert futures[0].exception() is futures[2].exception() is error
    else:
        assert [futures[0].result().error, futures[2].result().error] == [3, 3]
    table.append()
    await turn()
    assert len(table.store.sent) == 2


async def test_a_partition_that_fails_alone_is_rejected_and_logged(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    futures = [table.append(partition=n) for n in range(2)]
    await turn()
    table.store.sent[0][1].set_result(
        LogAppendManyReply([refused(56), stored(4)], b"korvet:t:0: WRONGTYPE of a key")
    )
    assert [(await future).error for future in futures] == [56, 0]
    (line,) = caplog.records
    assert "korvet:t:0: WRONGTYPE of a key" in str(vars(line))
