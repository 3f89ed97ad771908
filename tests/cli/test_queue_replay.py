"""Check that a replay of a dead letter queue returns each record once, also if interrupted."""

import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from korvet import AsyncKorvet, KorvetError, Record
from korvet.cli import queue_replay
from korvet.cli.queue_replay import Replay, Replayed
from korvet.library.batches import Batcher
from tests.selection import seeds
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
QUEUE = "dlq.t"


@pytest.fixture
async def log(valkey_server: TestServer) -> AsyncIterator[AsyncKorvet]:
    """A topic of two partitions with ten records each, and its queue."""
    namespace = f"replay{next(_namespaces)}"
    async with await AsyncKorvet.connect(valkey_server.url, namespace=namespace) as log:
        for name in ("t", QUEUE):
            await log.create_topic(name, partitions=2, configs={"offset.mode": "dense"})
        for partition in (0, 1):
            await log.append("t", partition, [Record(b"%d" % n, b"k") for n in range(10)])
        yield log


def letter(partition: int, offset: int, record: Record | None = None) -> Record:
    """Return a dead letter of that record of t, with or without the record."""
    headers: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"%d" % partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", b"g"),
    ]
    if record is None:
        return Record(None, headers=headers)
    return Record(record.value, record.key, [*record.headers, *headers])


async def added(log: AsyncKorvet, partition: int) -> list[tuple[bytes | None, Any]]:
    """Return value and headers of the records after the first ten."""
    return [(r.value, list(r.headers)) async for r in log.records("t", partition, start=10)]


async def test_records_and_their_headers_return_to_their_partitions(log: AsyncKorvet) -> None:
    own = Record(b"bad", b"k", [("trace", b"1")])
    await log.append(QUEUE, 0, [letter(0, 3, own), letter(1, 4), Record(b"no letter")])
    await log.append(QUEUE, 1, [letter(1, 5)])
    assert await Replay(log, QUEUE).run() == Replayed(records=3, not_dead_letters=1)
    assert await added(log, 0) == [(b"bad", [("trace", b"1")])]
    assert await added(log, 1) == [(b"4", []), (b"5", [])]
    assert await Replay(log, QUEUE).run() == Replayed()
    await log.append(QUEUE, 1, [letter(0, 0)])
    assert await Replay(log, QUEUE).run() == Replayed(records=1)


async def test_a_letter_whose_record_is_gone_is_counted(log: AsyncKorvet) -> None:
    await log.delete_records("t", 0, 5)
    await log.append(QUEUE, 0, [letter(0, 2), letter(0, 6), letter(0, 99)])
    assert await Replay(log, QUEUE).run() == Replayed(records=1, gone=2)
    assert await added(log, 0) == [(b"6", [])]


class Killed(Exception):
    """The command was ended."""


@pytest.mark.parametrize("calls", range(1, 8))
async def test_a_replay_that_was_ended_after_any_call_is_continued(
    log: AsyncKorvet, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_replay, "LEASE_MS", 1)
    for partition in (0, 1):
        await log.append(QUEUE, partition, [letter(n % 2, n) for n in range(6)])
    counter = itertools.count(1)
    with monkeypatch.context() as patch:
        for name in ("append", "commit", "new_producer"):
            patch.setattr(log, name, _ending(getattr(log, name), counter, calls))
        with pytest.raises(Killed):
            await Replay(log, QUEUE).run()
    await Replay(log, QUEUE).run()
    for partition in (0, 1):
        expected = [b"%d" % n for n in range(6) if n % 2 == partition] * 2
        assert [value for value, _ in await added(log, partition)] == expected


def _ending(call: Any, counter: Any, at: int) -> Any:
    async def run(*args: Any, **words: Any) -> Any:
        result = await call(*args, **words)
        if next(counter) == at:
            raise Killed
        return result

    return run


class OneByOne(Batcher):
    """A batcher that makes a batch of each record."""

    def batches(self, rows: Any, partitions: int, most: int) -> Any:
        return super().batches(rows, partitions, 1)


@pytest.mark.parametrize("seed", seeds(range(12), quick=4))
async def test_records_that_expire_between_ended_replays_shift_nothing(
    log: AsyncKorvet, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record that exists when its letter is replayed returns once."""
    monkeypatch.setattr(queue_replay, "LEASE_MS", 1)
    random = Random(seed)
    monkeypatch.setattr(queue_replay, "Batcher", OneByOne)
    sources = [(n % 2, n // 2) for n in range(20)]
    random.shuffle(sources)
    await log.append(QUEUE, 0, [letter(*source) for source in sources])
    start = {0: 0, 1: 0}
    for _ in range(6):
        counter = itertools.count(1)
        with monkeypatch.context() as patch:
            for name in ("append", "commit"):
                patch.setattr(log, name, _ending(getattr(log, name), counter, random.randint(1, 9)))
            with suppress(Killed):
                await Replay(log, QUEUE).run()
        number = random.randrange(2)
        start[number] = min(start[number] + random.randrange(3), 9)
        await log.delete_records("t", number, start[number])
    await Replay(log, QUEUE).run()
    for number in (0, 1):
        values = [int(value or b"") for value, _ in await added(log, number)]
        order = [offset for partition, offset in sources if partition == number]
        assert values == [offset for offset in order if offset in values]
        assert {offset for offset in order if offset >= start[number]} <= set(values)


async def test_two_replays_of_a_queue_do_not_run_together(log: AsyncKorvet) -> None:
    await log.append(QUEUE, 0, [letter(0, 1)])
    first = Replay(log, QUEUE)
    await first._hold()
    with pytest.raises(KorvetError, match="Another replay"):
        await Replay(log, QUEUE).run()
    assert await first.run() == Replayed(records=1)
