"""Copy dead letters of share groups into their dead letter queues (KIP-1191).

    share.acknowledge, .acquire   number each archived record of a group with a queue
    share.dead_letters            the dead letters that are not copied, and the id of their producer
    append                        their copies; a dead letter's number is its sequence number
    share.dead_letters_copied     remove them

Rules
- Any broker may copy, also two at once: the queue's partition stores each sequence number once. A
  copy begins after the last number that the partition has.
- A broker copies after a response that says there are dead letters. Those that it leaves at a crash
  are copied when a member reads the partition again, or by a background task of the brokers. A
  member in the library copies before its next record.
- A number is durable, as acks=-1 asks for, before its copy is appended: a failover must not give it
  to another record, whose copy would count as stored.
- A queue that cannot take them, because it is missing or not permitted, keeps them waiting.
- A record that left the log meanwhile has headers only, as with copy.record.enable=false.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import NamedTuple

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.groups.share_group import ShareGroupConfig
from korvet.log.layouts import read_records
from korvet.log.read_result import ReadRequest
from korvet.log.reader import LogReader
from korvet.scripts.producer_state import WRAP, ProducerStateEntry
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire import batch_builder
from korvet.wire.records import Record

BATCH_BYTES = 1 << 19
"""Bytes of keys, values and headers after which a batch ends."""
OVERHEAD = 600
"""Bytes of a dead letter without the record: its headers, with names of the longest length."""
REJECTED = b"A consumer rejected the record."
DELIVERED_TOO_OFTEN = b"The record was delivered as often as the group allows."
_REASONS = {1: REJECTED, 2: DELIVERED_TOO_OFTEN}


class DeadLetter(NamedTuple):
    """A dead letter."""

    number: int
    offset: int
    deliveries: int
    reason: int


def batches(
    group: str,
    topic: Topic,
    partition: int,
    letters: Sequence[DeadLetter],
    records: dict[int, Record],
    queue: Topic,
) -> list[list[tuple[int, Record]]]:
    """Return the dead letters with their numbers, in batches that the queue takes."""
    max_bytes = min(BATCH_BYTES, queue.policy.max_message_bytes)
    now_ms = int(time() * 1000)
    batches: list[list[tuple[int, Record]]] = []
    size = 0
    for letter in letters:
        record = _dead_letter(group, topic, partition, letter, records.get(letter.offset), now_ms)
        bytes_of = _size(record)
        if bytes_of > queue.policy.max_message_bytes:
            record = _dead_letter(group, topic, partition, letter, None, now_ms)
            bytes_of = _size(record)
        if not batches or size + bytes_of > max_bytes or letter.number % WRAP == 0:
            batches.append([])
            size = 0
        # Offsets count from 0 within the batch.
        batches[-1].append((letter.number, (len(batches[-1]), *record[1:])))
        size += bytes_of
    return batches


def _size(record: Record) -> int:
    _, _, key, value, headers = record
    return (
        OVERHEAD
        + len(key or b"")
        + len(value or b"")
        + sum(len(name) * 3 + len(data or b"") + 10 for name, data in headers)
    )


def _dead_letter(
    group: str, topic: Topic, partition: int, letter: DeadLetter, record: Record | None, now_ms: int
) -> Record:
    """Return the record of a dead letter: Kafka's headers, after those of the record."""
    headers: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.topic", topic.name.encode()),
        ("__dlq.errors.partition", b"%d" % partition),
        ("__dlq.errors.offset", b"%d" % letter.offset),
        ("__dlq.errors.group", group.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.deliveries),
        ("__dlq.errors.message", _REASONS[letter.reason]),
    ]
    if record is None:
        return (0, now_ms, None, None, headers)
    return (0, now_ms, record[2], record[3], [*record[4], *headers])


RUNS = 100
"""Runs of dead letters of one pass."""
READ_BYTES = 1 << 20
RETRY_S = 1.0
"""Pause of a share partition whose dead letters could not be copied."""
MAX_PAUSES = 10_000

log = logfmt.get("share.dead_letters")


class CopyFailed(Exception):
    """Letters stay where they are; the message says why."""


@dataclass(eq=False, repr=False)
class DeadLetters:
    """Copies the dead letters of this broker's share groups."""

    node: Node
    log_reader: LogReader
    append: Callable[[Topic, int, bytes], Awaitable[ErrorCode]]
    """Appends a batch to a partition, as acks=-1 does."""
    create: Callable[[str, Mapping[str, str]], Awaitable[Topic | None]]
    """Creates a topic with these configs; returns None if that is not possible."""

    def __post_init__(self) -> None:
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._not_before: dict[tuple[str, str, int], float] = {}

    def notice(
        self, group: str, config: ShareGroupConfig, topic: Topic, partition: int, letters: int
    ) -> None:
        """Copy the dead letters of a share partition in the background, if there are any."""
        where = (group, topic.id, partition)
        if not letters or not config.dead_letter_topic or where in self._tasks:
            return
        if monotonic() < self._not_before.get(where, 0.0):
            return
        copying = self._run(where, group, config, topic, partition)
        self._tasks[where] = asyncio.create_task(copying)

    async def finish(self) -> None:
        """Wait for the copies that have begun."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(
        self,
        where: tuple[str, str, int],
        group: str,
        config: ShareGroupConfig,
        topic: Topic,
        partition: int,
    ) -> None:
        try:
            while await self.copy(group, config, topic, partition):
                pass
            self._not_before.pop(where, None)
        except (CopyFailed, StoreError) as error:
            if len(self._not_before) >= MAX_PAUSES:
                self._not_before.clear()
            self._not_before[where] = monotonic() + RETRY_S
            log.error_again(
                "dead letters not copied",
                group=group,
                topic=topic.name,
                partition=partition,
                queue=config.dead_letter_topic,
                reason=str(error),
            )
        finally:
            del self._tasks[where]

    async def copy(self, group: str, config: ShareGroupConfig, topic: Topic, partition: int) -> int:
        """Copy dead letters of a share partition; return how many are left.

        Raises CopyFailed and StoreError.
        """
        queue = await self._queue(config.dead_letter_topic)
        key = topic.partition(partition).log
        run = self.node.store.run_of(key)
        producer_id, letters = await self._read(group, topic, partition)
        if not letters:
            return 0
        await self.node.store.until_durable(key, run, (topic.name, queue.name))
        target = partition % queue.partitions
        done = await self._stored(queue, target, producer_id, letters[0].number)
        waiting = letters[done:]
        records = await self._records(config, topic, partition, waiting)
        for rows in batches(group, topic, partition, waiting, records, queue):
            await self._append(queue, target, producer_id, rows)
        reply = await self.node.store.run(
            topic.partition(partition).share_dead_letters_copied(
                group=group, to=letters[-1].number + 1
            )
        )
        return 0 if reply.error else reply.dead_letters

    async def _queue(self, name: str) -> Topic:
        """Return the topic of the queue. Raises CopyFailed."""
        settings = self.node.settings()
        prefix = settings.text_of("errors.deadletterqueue.topic.name.prefix") or ""
        if not name.startswith(prefix):
            raise CopyFailed(
                f"the queue's name does not begin with {prefix!r}, as "
                "errors.deadletterqueue.topic.name.prefix asks for"
            )
        topic = await self.node.topics.get(name)
        if topic is None and settings.flag("errors.deadletterqueue.auto.create.topics.enable"):
            configs = {"errors.deadletterqueue.group.enable": "true"}
            topic = await self.create(name, configs)
        if topic is None:
            raise CopyFailed("the queue does not exist: create it")
        if not topic.policy.dead_letters:
            raise CopyFailed("the queue needs errors.deadletterqueue.group.enable=true")
        return topic

    async def _read(self, group: str, topic: Topic, partition: int) -> tuple[int, list[DeadLetter]]:
        """Return the producer id of the copies, and the oldest dead letters."""
        fresh = 0
        while True:
            call = topic.partition(partition).share_dead_letters(
                group=group, producer_id=fresh, most=RUNS
            )
            reply = await self.node.store.run(call)
            if reply.error or not reply.dead_letters:
                return 0, []
            if reply.producer_id:
                return reply.producer_id, _expand(reply.dead_letters)
            fresh = (await self.node.store.run(self.node.keys.producer_allocate())).producer_id

    async def _stored(self, queue: Topic, partition: int, producer_id: int, first: int) -> int:
        """Return how many dead letters from number `first` on the queue's partition has."""
        key = queue.partition(partition).producers
        row = await self.node.store.command("HGET", key, producer_id)
        if row is None:
            return 0
        ahead = (ProducerStateEntry.of(row).next - first) % WRAP
        if ahead < WRAP // 2:
            return ahead
        raise CopyFailed(
            f"partition {partition} of the queue has lost dead letters of producer {producer_id}: "
            "new ones are copied once its state has expired (producer.id.expiration.ms)"
        )

    async def _records(
        self, config: ShareGroupConfig, topic: Topic, partition: int, letters: Sequence[DeadLetter]
    ) -> dict[int, Record]:
        """Return the dead letters' records by their offsets, as far as the log still has them."""
        if not config.copies_dead_letters or not letters:
            return {}
        key = topic.partition(partition).log
        start = int(await self.node.store.command("HGET", key, "start") or 0)
        wanted = {letter.offset for letter in letters if letter.offset >= start}
        found: dict[int, Record] = {}
        for first, last in _spans(sorted(wanted)):
            offset = first
            while offset <= last:
                result = await self.log_reader.read(
                    ReadRequest(topic, partition, offset, READ_BYTES, decompress=True)
                )
                if result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    # The records have left the log since.
                    break
                if result.error:
                    raise CopyFailed(f"offset {offset} cannot be read: {result.error.name}")
                if not result.entries:
                    break
                for record in await read_records(topic, result.entries):
                    if record[0] in wanted:
                        found[record[0]] = record
                offset = result.entries[-1].last + 1
        return found

    async def _append(
        self, queue: Topic, partition: int, producer_id: int, rows: Sequence[tuple[int, Record]]
    ) -> None:
        """Append one batch of numbered records. Raises CopyFailed."""
        sequence = rows[0][0] % WRAP
        batch = batch_builder.build(
            (record for _, record in rows), producer=(producer_id, 0, sequence)
        )
        code = await self.append(queue, partition, bytes(batch))
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            raise CopyFailed(f"the queue does not take a batch: {code.name}")


def _expand(texts: Sequence[bytes]) -> list[DeadLetter]:
    """Return the dead letters of a reply's runs."""
    flat = map(int, texts)
    return [
        DeadLetter(number + at - first, at, deliveries, reason)
        for number, first, last, deliveries, reason in zip(
            flat, flat, flat, flat, flat, strict=True
        )
        for at in range(first, last + 1)
    ]


def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of adjacent offsets."""
    found: list[tuple[int, int]] = []
    for at in offsets:
        if found and found[-1][1] + 1 == at:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found
