"""Check that dead letters arrive once, at whatever step between copy and removal a broker fails."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from korvet.base.errors import ErrorCode as E
from korvet.broker.background.tasks import BackgroundTasks
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.scripts.calls.partition import SHARE_DEAD_LETTERS_COPIED
from korvet.share.dead_letters import CopyFailed, DeadLetters
from korvet.share.service import Acknowledge
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable
from korvet.topics.table import Topic
from korvet.wire.records import Record
from tests.share.members import Member, configure, fill
from tests.support.connected_broker import Broker
from tests.support.exchanges import SHAPES, fetch, packed, produce, rows, rows_in

QUEUE = "dlq.t"
shapes = pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)


@dataclass
class Setup:
    """A share group of topic t, partition 0, with a dead letter queue."""

    broker: Broker
    topic: Topic
    config: ShareGroupConfig
    copier: DeadLetters
    offsets: list[int]

    async def run(self, call: Any) -> Any:
        return await self.broker.services.store.run(call)

    async def reject(self, *at: int) -> None:
        """Acquire all records as a member, and reject those at these indexes."""
        services = self.broker.services
        words: Any = {"group": "g", "member": "m", "dead_letters": 1}
        place = services.keys.partition("t", 0, self.topic.id)
        first, last = self.offsets[0], self.offsets[-1]
        await self.run(
            place.share_acquire(
                [(first, last)],
                **{"start": first, "read_from": first, "read_to": last, "most": 500, "exact": 0},
                **{"lock_ms": 30_000, "delivery_limit": 5, "max_locks": 2000},
                **words,
            )
        )
        ranges = [(self.offsets[i], self.offsets[i], int(Acknowledge.REJECT)) for i in at]
        reply = await self.run(
            place.share_acknowledge(
                ranges,
                **{"lock_ms": 30_000, "delivery_limit": 5, "backoff_ms": 0, "max_backoff_ms": 0},
                **words,
            )
        )
        assert reply.error == E.NONE

    async def copy(self) -> int:
        return await self.copier.copy("g", self.config, self.topic, 0)

    async def letters(self) -> list[Record]:
        found = await fetch(self.broker, 0, name=QUEUE)
        return rows_in(found.records)


def copier_of(broker: Broker, store: Any = None) -> DeadLetters:
    services = broker.services
    node = replace(services.node, store=store or services.store)
    return replace(services.share.dead_letters, node=node)


async def prepare(
    broker: Broker, *values: bytes, form: str = "batch", mode: str = "dense", copies: bool = True
) -> Setup:
    await broker.create("t", 1, storage_format=form, offset_mode=mode)
    await broker.create(QUEUE, 1, offset_mode="dense", errors_deadletterqueue_group_enable="true")
    base = (await produce(broker, packed(rows(*values), 13))).base_offset
    topic = await broker.services.topics.get("t")
    assert topic is not None
    known = share_group_config(broker.services.configs, broker.services.settings, "g")
    config = structs.replace(known, dead_letter_topic=QUEUE, copies_dead_letters=copies)
    offsets = [base + n for n in range(len(values))]
    return Setup(broker, topic, config, copier_of(broker), offsets)


@shapes
async def test_a_dead_letter_has_the_record_and_says_where_it_was(
    broker: Broker, form: str, mode: str
) -> None:
    setup = await prepare(broker, b"a", b"b", b"c", form=form, mode=mode)
    await setup.reject(0, 2)
    assert await setup.copy() == 0
    found = await setup.letters()
    assert [row[2:4] for row in found] == [(b"k", b"a"), (b"k", b"c")]
    assert dict(found[1][4]) == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"%d" % setup.offsets[2],
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"A consumer rejected the record.",
    }


async def test_no_dead_letter_is_copied_before_its_number_is_durable(broker: Broker) -> None:
    setup = await prepare(broker, b"a")
    await setup.reject(0)
    key = broker.services.keys.partition("t", 0).log

    async def wait(waited_for: str, run: str, topics: Collection[str] | None) -> None:
        assert (waited_for, topics) == (key, ("t", QUEUE))
        raise StoreUnavailable("the replicas do not have it")

    broker.services.store.decision_wait = wait
    with pytest.raises(StoreUnavailable):
        await setup.copy()
    assert await setup.letters() == []
    broker.services.store.decision_wait = None
    assert await setup.copy() == 0
    assert len(await setup.letters()) == 1


async def test_without_copies_of_records_a_dead_letter_has_headers_only(broker: Broker) -> None:
    setup = await prepare(broker, b"a", copies=False)
    await setup.reject(0)
    assert await setup.copy() == 0
    [letter] = await setup.letters()
    assert letter[2:4] == (None, None)
    assert dict(letter[4])["__dlq.errors.offset"] == b"0"


async def test_a_repeated_copy_adds_no_letter(broker: Broker) -> None:
    setup = await prepare(broker, *(b"%d" % n for n in range(6)))

    class Crashing:
        """A store at which the broker ends before it removes dead letters."""

        def __getattr__(self, name: str) -> Any:
            return getattr(broker.services.store, name)

        async def run(self, call: Any) -> Any:
            if call.script is SHARE_DEAD_LETTERS_COPIED:
                raise StoreUnavailable("the broker was killed")
            return await broker.services.store.run(call)

    await setup.reject(0, 2)
    crashing = replace(setup, copier=copier_of(broker, Crashing()))
    with pytest.raises(StoreUnavailable):
        await crashing.copy()
    await setup.reject(1, 5)
    assert await asyncio.gather(setup.copy(), replace(setup, copier=copier_of(broker)).copy())
    assert await setup.copy() == 0
    assert [row[3] for row in await setup.letters()] == [b"0", b"2", b"1", b"5"]


class Step(Exception):
    """The broker was killed at a step."""


class Steps:
    """A store, and appends, whose calls are steps: `at` runs before or after one."""

    def __init__(self, broker: Broker, at: Callable[[], Awaitable[None]], number: int, when: str):
        self._services = broker.services
        self._at = at
        self._left = number
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services.store, name)

    async def run(self, call: Any) -> Any:
        return await self._step(self._services.store.run, call)

    async def command(self, *words: Any) -> Any:
        return await self._step(self._services.store.command, *words)

    async def append(self, *words: Any) -> Any:
        return await self._step(self._services.share.dead_letters.append, *words)

    async def _step(self, call: Callable[..., Awaitable[Any]], *words: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            await self._at()
        result = await call(*words)
        if self._left == 0 and self._when == "after":
            await self._at()
        return result


def stepping(setup: Setup, *words: Any) -> DeadLetters:
    copier: Any = copier_of(setup.broker, steps := Steps(setup.broker, *words))
    copier.append = steps.append
    return copier


STEPS = range(1, 14)
"""A copy of two runs in batches of one letter has fewer calls."""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_broker_killed_at_any_step_neither_loses_nor_doubles_a_letter(
    broker: Broker, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.share.dead_letters.BATCH_BYTES", 1)
    setup = await prepare(broker, *(b"%d" % n for n in range(3 * len(STEPS))))
    expected, killed = [], 0

    async def kill() -> None:
        raise Step

    for number in STEPS:
        first = 3 * (number - 1)
        await setup.reject(first, first + 2)
        expected += [b"%d" % first, b"%d" % (first + 2)]
        try:
            await replace(setup, copier=stepping(setup, kill, number, when)).copy()
        except Step:
            killed += 1
        # A different broker continues after every second kill, otherwise with the next letters.
        if number % 2:
            assert await replace(setup, copier=copier_of(broker)).copy() == 0
    await setup.copy()
    assert [row[3] for row in await setup.letters()] == expected
    assert killed > 5


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_broker_that_halts_at_any_step_and_continues_doubles_no_letter(
    broker: Broker, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the meantime another broker has copied these letters, and later ones."""
    monkeypatch.setattr("korvet.share.dead_letters.BATCH_BYTES", 1)
    setup = await prepare(broker, *(b"%d" % n for n in range(3 * len(STEPS))))
    expected, halted = [], 0
    for number in STEPS:
        first = 3 * (number - 1)
        await setup.reject(first, first + 1)

        async def overtake(place: int = first + 2) -> None:
            nonlocal halted
            halted += 1
            assert await setup.copy() == 0
            await setup.reject(place)
            assert await setup.copy() == 0

        before = halted
        await replace(setup, copier=stepping(setup, overtake, number, when)).copy()
        if halted == before:
            await setup.reject(first + 2)
        expected += [b"%d" % (first + n) for n in range(3)]
    await setup.copy()
    assert [row[3] for row in await setup.letters()] == expected
    assert halted > 5


async def test_letters_that_a_broker_left_are_copied_in_the_background(broker: Broker) -> None:
    setup = await prepare(broker, b"a", b"b")
    services = broker.services
    await services.share_offsets.alter("g", [(setup.topic, 0, 0)])
    await setup.reject(0)
    tasks = BackgroundTasks(services)
    await tasks.copy_dead_letters()
    await services.share.dead_letters.finish()
    assert await setup.letters() == []
    await configure(broker, errors_deadletterqueue_topic_name=QUEUE)
    await tasks.copy_dead_letters()
    await services.share.dead_letters.finish()
    assert len(await setup.letters()) == 1


async def test_a_queue_that_is_missing_or_not_permitted_keeps_letters_waiting(
    broker: Broker,
) -> None:
    setup = await prepare(broker, b"a")
    await setup.reject(0)
    await broker.create("dlq.plain", 1)
    cases = {
        "dlq.missing": "does not exist",
        "t": "does not begin with 'dlq.'",
        "dlq.plain": "errors.deadletterqueue.group.enable",
    }
    for name, reason in cases.items():
        config = structs.replace(setup.config, dead_letter_topic=name)
        with pytest.raises(CopyFailed, match=reason):
            await setup.copier.copy("g", config, setup.topic, 0)
    assert await setup.copy() == 0
    assert len(await setup.letters()) == 1


async def test_a_record_that_is_too_large_for_the_queue_is_a_letter_without_it(
    broker: Broker,
) -> None:
    setup = await prepare(broker, b"a" * 5000, b"b")
    await broker.create(
        "dlq.small",
        1,
        offset_mode="dense",
        max_message_bytes="2000",
        errors_deadletterqueue_group_enable="true",
    )
    setup.config = structs.replace(setup.config, dead_letter_topic="dlq.small")
    await setup.reject(0, 1)
    assert await setup.copy() == 0
    found = rows_in((await fetch(broker, 0, name="dlq.small")).records)
    assert [row[3] for row in found] == [None, b"b"]


async def test_a_record_that_was_deleted_is_a_letter_without_it(broker: Broker) -> None:
    setup = await prepare(broker, b"a", b"b")
    await setup.reject(0, 1)

    await setup.run(
        setup.broker.services.keys.partition("t", 0, setup.topic.id).delete_records(before=1)
    )
    assert await setup.copy() == 0
    assert [row[3] for row in await setup.letters()] == [None, b"b"]


async def test_letters_are_noticed_once_and_copied_in_the_background(broker: Broker) -> None:
    setup = await prepare(broker, b"a", b"b")
    await setup.reject(0)
    for _ in range(3):
        setup.copier.notice("g", setup.config, setup.topic, 0, 1)
    await setup.copier.finish()
    assert len(await setup.letters()) == 1
    assert isinstance(broker.services.store, AsyncStore)


async def test_a_member_that_rejects_a_record_sends_it_to_the_groups_queue(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.share.dead_letters.RETRY_S", 0.0)
    await broker.create("t", 2, offset_mode="dense")
    queue = {
        "errors_deadletterqueue_topic_name": "dlq.new",
        "errors_deadletterqueue_copy_record_enable": "true",
    }
    await configure(broker, share_auto_offset_reset="earliest", share_delivery_count_limit="2")
    await configure(broker, **queue)
    await fill(broker, 3)
    member = Member(broker)
    assert await member.poll(0) == [(0, 2, 1)]
    found = await member.acknowledge(
        (0, 0, Acknowledge.ACCEPT), (1, 1, Acknowledge.REJECT), (2, 2, Acknowledge.RELEASE)
    )
    assert found == (0, 0)
    assert await member.poll() == [(2, 2, 2)]
    await broker.services.share.dead_letters.finish()
    assert await broker.services.topics.get("dlq.new") is None
    await broker.create(
        "dlq.new", 1, offset_mode="dense", errors_deadletterqueue_group_enable="true"
    )
    assert await member.acknowledge((2, 2, Acknowledge.RELEASE)) == (0, 0)
    await broker.services.share.dead_letters.finish()
    found = rows_in((await fetch(broker, 0, name="dlq.new")).records)
    assert [(row[3], dict(row[4])["__dlq.errors.delivery.count"]) for row in found] == [
        (b"1", b"1"),
        (b"2", b"2"),
    ]
