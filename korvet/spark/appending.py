"""One task's records on their way into the log, each exactly once.

Rules
- A task has a producer id of its own, kept in Redis under the writer's id: every attempt of the
  task gets the same one. The Spark epoch is the producer's epoch; sequence numbers count each
  partition's records from 0. What an earlier attempt appended is then a duplicate to the script.
- A batch ends after a number of records or bytes that depends on the partition's own records
  only, so that every attempt cuts the same batches; but for the last ones of an attempt whose rows
  ended too soon: Spark tells the end of rows and their failure alike. Of a batch that an earlier
  attempt has stored the beginning of, the rest is appended.
- Where many partitions wait for full batches, together no more than MOST_WAITING bytes do.
- The script knows a producer's last five batches. Of older ones it only says that they were
  there; the batches it does know are compared with what stands in the log.
"""

import logging
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.log import layouts
from korvet.log.entry_id import entry_id
from korvet.scripts import log, writer
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply
from korvet.scripts.producer_state import WRAP, ProducerStateEntry
from korvet.scripts.writer import ClaimProducerIdReply
from korvet.spark.block import Block
from korvet.spark.errors import BadFrame, NotRepeatable, UnknownTopic
from korvet.spark.standing import Appended, lost
from korvet.store.sync_store import SyncStore
from korvet.topics.table import Topic
from korvet.wire import compression as codecs
from korvet.wire import record_entries, records
from korvet.wire.records import Record

BATCH_RECORDS = 4_000
ENTRIES = 1_000
"""So many records in one call of layout `record`: some 2 ms of Redis. More save nothing."""
BATCH_BYTES = 256 << 10
MOST_WAITING = 48 << 20
"""So many bytes may wait for their batches to be full; when there are more, none waits on."""
IN_FLIGHT = 4
"""So many batches travel to Redis together, fewer where a record alone is larger than a batch."""
EPOCHS = 1 << 15
"""A producer epoch has 15 bits; a later Spark epoch takes another producer id."""
TRIES = 10
_BEGUN = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""What the script says of a batch that does not begin where the log ends."""

logger = logging.getLogger("korvet.spark")


class Claim:
    """A task's producer id and epoch; `done` when the epoch has been committed before. Partitions
    remember for writer.KEEP_MS what a writer appended that may come back, days after a crash.

    The id follows from the writer and the task: a Redis that fails over may forget what it was told
    of them, or how far it had counted, and then the log knows the task's records all the same."""

    def __init__(
        self,
        store: SyncStore,
        keys: Keys,
        writer_id: str,
        task: int,
        epoch: int,
        *,
        comes_back: bool = True,
    ) -> None:
        slot = f"{task}.{epoch // EPOCHS}"

        ids_from, keep_ms = writer.IDS_FROM, writer.KEEP_MS
        if not comes_back:
            ids_from, keep_ms = writer.JOB_IDS_FROM, writer.KEEP_JOB_MS

        def claim(producer_id: int) -> ClaimProducerIdReply:
            return store.run(
                writer.claim_producer_id(
                    keys, writer_id, slot=slot, producer_id=producer_id, keep_ms=keep_ms
                )
            )

        found = claim(-1)
        if found.producer_id < 0 and found.committed < epoch:
            found = claim(ids_from + _number(writer_id, slot) % writer.JOB_IDS_FROM)
        self.producer_id = found.producer_id
        self.producer_epoch = epoch % EPOCHS
        self.done = found.committed >= epoch


def _number(writer_id: str, slot: str) -> int:
    """As good as drawn, and the same whenever it is asked for."""
    return int.from_bytes(blake2b(f"{writer_id}/{slot}".encode(), digest_size=8).digest())


class Outbox:
    """Collects the records of one task and appends them, batch by batch."""

    def __init__(self, store: SyncStore, keys: Keys, claim: Claim, compression: str | None) -> None:
        self._store = store
        self._keys = keys
        self._claim = claim
        self._compression = compression
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._ready: list[tuple[Topic, int, Block, int]] = []
        self._ready_bytes = 0
        self._held_bytes = 0
        self.records = 0
        self.repeated = 0

    def put(self, topic: Topic, partition: int, found: Block) -> None:
        """The records go to the partition, in this order, when their batch is full. BadFrame where
        the topic does not take them."""
        if topic.policy.compact and found.keys.null_count:
            raise BadFrame(f"Topic {topic.name!r} is compacted: it takes no record without a key.")
        waiting = self._waiting.setdefault((topic.name, partition), _Waiting(topic, partition))
        self._held_bytes -= waiting.size
        for batch, sequence, size in waiting.add(found):
            self._append(topic, partition, batch, sequence, size)
        self._held_bytes += waiting.size
        if self._held_bytes > MOST_WAITING:
            self._append_all()

    def flush(self) -> None:
        """Everything put is in the log."""
        self._append_all()
        if self.repeated:
            self._compare_ends()

    def appended(self) -> tuple[Appended, ...]:
        """How far this came in each partition."""
        producer = self._claim.producer_id, self._claim.producer_epoch
        return tuple(
            Appended(each.topic.name, each.partition, *producer, each.sequence)
            for each in self._waiting.values()
        )

    def _append_all(self) -> None:
        """No record waits."""
        for waiting in self._waiting.values():
            for batch, sequence, size in waiting.rest():
                self._append(waiting.topic, waiting.partition, batch, sequence, size)
        self._send()
        self._held_bytes = 0

    def _append(self, topic: Topic, partition: int, batch: Block, sequence: int, size: int) -> None:
        self._ready.append((topic, partition, batch, sequence))
        self._ready_bytes += size
        if len(self._ready) >= IN_FLIGHT or self._ready_bytes >= IN_FLIGHT * BATCH_BYTES:
            self._send()

    def _compare_ends(self) -> None:
        """No attempt before this one had more rows."""
        for waiting in self._waiting.values():
            topic, partition = waiting.topic, waiting.partition
            done = self._progress(topic, partition)
            if done is not None and done.next != waiting.sequence:
                raise _not_repeatable(f"{topic.name}-{partition}")

    def _progress(self, topic: Topic, partition: int) -> ProducerStateEntry | None:
        """How far this epoch of the task has come."""
        key = self._keys.partition(topic.name, partition).producers
        row = self._store.command("HGET", key, self._claim.producer_id)
        done = ProducerStateEntry.of(row) if row else None
        return done if done is not None and done.epoch == self._claim.producer_epoch else None

    def _send(self) -> None:
        calls = [self._call(*each) for each in self._ready]
        replies = self._store.run_many(calls)
        for each, reply in zip(self._ready, replies, strict=True):
            if reply.error in _BEGUN:
                self._append_rest(*each)
            else:
                self._judge(*each[:3], reply)
        self._ready.clear()
        self._ready_bytes = 0

    def _append_rest(self, topic: Topic, partition: int, batch: Block, sequence: int) -> None:
        """What the log does not have of the batch is appended behind what it has."""
        for _ in range(TRIES):
            done = self._progress(topic, partition)
            # All before this batch was acknowledged.
            if done is None or (done.next - sequence) % WRAP >= WRAP // 2:
                raise lost(f"{topic.name}-{partition}")
            stored = min((done.next - sequence) % WRAP, len(batch))
            if stored:
                self._compare_known(topic, partition, batch.cut(0, stored), sequence, done)
            if stored == len(batch):
                self.records += stored
                self.repeated += stored
                return
            rest = batch.cut(stored, len(batch))
            call = self._call(topic, partition, rest, (sequence + stored) % WRAP)
            reply = self._store.run(call)
            if reply.error not in _BEGUN:
                self.records += stored
                self.repeated += stored
                self._judge(topic, partition, rest, reply)
                return
            # Another attempt runs at the same time, and was faster.
        raise _not_repeatable(f"{topic.name}-{partition}")

    def _compare_known(
        self, topic: Topic, partition: int, batch: Block, sequence: int, done: ProducerStateEntry
    ) -> None:
        """Those of the batch's records that the script still knows are what stands in the log."""
        for first, last, base in done.batches:
            low, count = (first - sequence) % WRAP, last - first + 1
            if low < len(batch):
                same = batch.cut(low, min(low + count, len(batch)))
                self._compare(topic, partition, same.records(), base, count)

    def _call(self, topic: Topic, partition: int, batch: Block, sequence: int) -> Call[AppendReply]:
        newest = _checked_times(topic, batch)
        if topic.is_batch:
            wanted = self._compression or topic.policy.compression_type
            data = records.build(
                batch.records(),
                codec=_CODECS.get(wanted, codecs.LZ4),
                producer=(self._claim.producer_id, self._claim.producer_epoch, sequence),
            )
            size = largest = len(data)
            fields: Sequence[Any] = (data,)
        else:
            sizes = batch.sizes()
            size, largest = int(sizes.sum()), int(sizes.max())
            fields = _fields(batch, codecs.BY_NAME[topic.policy.storage_compression])
        if largest > topic.policy.max_message_bytes:
            raise BadFrame(
                f"A record of {largest} bytes is too large for topic {topic.name!r}, whose "
                f"max.message.bytes is {topic.policy.max_message_bytes}."
            )
        if topic.is_bytes:
            header = records.read_header(fields[0])
            return layouts.BYTES.append_batch(self._keys, topic, partition, fields[0], header)
        return log.append(
            self._keys,
            topic.name,
            partition,
            topic_id=topic.id,
            count=len(batch),
            size=size,
            max_timestamp=newest,
            producer_id=self._claim.producer_id,
            producer_epoch=self._claim.producer_epoch,
            base_sequence=sequence,
            stamp=int(topic.policy.log_append_time),
            fields=fields,
        )

    def _judge(self, topic: Topic, partition: int, batch: Block, reply: AppendReply) -> None:
        where = f"{topic.name}-{partition}"
        if reply.error == ErrorCode.NONE:
            self.records += len(batch)
            if not reply.stored:
                self.repeated += len(batch)
                self._compare(topic, partition, batch.records(), reply.base, len(batch))
        elif reply.error == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise NotRepeatable(
                f"{where}: a later epoch of this query has been written; this task comes too late."
            )
        else:
            raise UnknownTopic(
                f"{where} cannot be written (any more): {ErrorCode(reply.error).name}."
            )

    def _compare(
        self, topic: Topic, partition: int, batch: list[Record], base: int, count: int
    ) -> None:
        """The batch of `count` records at `base` begins with these keys and values, or nobody can
        tell."""
        names = self._keys.partition(topic.name, partition)
        mode, bits = topic.policy.offset_mode, topic.policy.offset_bits
        last = entry_id(mode, bits, base + count - 1)
        if topic.is_batch:
            if topic.is_bytes:
                first = entry_id(mode, bits, base)
                rows = self._store.command("XRANGE", names.stream, first, "+", "COUNT", 1)
            else:
                rows = self._store.command("XRANGE", names.stream, last, last)
            stored = _batch_in(rows[0][1]) if rows else None
            found = None if stored is None else [r[2:4] for r in records.records_of(stored)]
        else:
            first = entry_id(mode, bits, base)
            rows = self._store.command("XRANGE", names.stream, first, last)
            found = [record_entries.record_of(0, 0, fields)[2:4] for _, fields in rows]
        if found and len(found) == count and found[: len(batch)] != [r[2:4] for r in batch]:
            raise _not_repeatable(f"{topic.name}-{partition}")


class _Waiting:
    """The records of one partition that wait for their batch to be full."""

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._limit = max(1, min(BATCH_BYTES, topic.policy.max_message_bytes // 2))
        self._most = BATCH_RECORDS if topic.is_batch else min(ENTRIES, BATCH_RECORDS)
        self._held: Block | None = None
        self.size = 0
        """How many bytes wait."""
        self.sequence = 0

    def add(self, found: Block) -> list[tuple[Block, int, int]]:
        """The batches that are full now, each with its first sequence number and its bytes."""
        whole = found if self._held is None else Block.joined([self._held, found])
        bytes_to = np.concatenate([[0], np.cumsum(whole.sizes())])
        full, at = [], 0
        while True:
            fits = int(np.searchsorted(bytes_to, bytes_to[at] + self._limit, side="right")) - 1
            end = min(max(fits, at + 1), at + self._most)
            if end >= len(whole):
                break
            full.append(self._numbered(whole.cut(at, end), int(bytes_to[end] - bytes_to[at])))
            at = end
        self._held = whole.cut(at, len(whole)).alone() if at else whole
        self.size = int(bytes_to[-1] - bytes_to[at])
        return full

    def rest(self) -> list[tuple[Block, int, int]]:
        """What waits, as at most one batch."""
        waits, size = self._held, self.size
        self._held, self.size = None, 0
        return [self._numbered(waits, size)] if waits is not None else []

    def _numbered(self, batch: Block, size: int) -> tuple[Block, int, int]:
        first = self.sequence
        self.sequence = (first + len(batch)) % WRAP
        return batch, first, size


_CODECS = {**codecs.BY_NAME, "uncompressed": codecs.NONE}


def _checked_times(topic: Topic, batch: Block) -> int:
    """The newest timestamp; BadFrame where the topic does not take one of them."""
    policy = topic.policy
    oldest, earliest, newest = batch.moments()
    if policy.log_append_time:
        return newest
    now_ms = int(time.time() * 1000)
    if oldest < -1 or 0 <= earliest < now_ms - policy.timestamp_before_max_ms:
        wrong = oldest if oldest < -1 else earliest
        setting = "message.timestamp.before.max.ms"
    elif newest > now_ms + policy.timestamp_after_max_ms:
        wrong, setting = newest, "message.timestamp.after.max.ms"
    else:
        return newest
    raise BadFrame(
        f"Topic {topic.name!r} takes no record of the time {wrong} (ms): none before 1970, and "
        f"{setting} bounds how far from now."
    )


AT_REST_FROM = 1024
"""Values longer than this are compressed in layout `record`, as the broker does by default."""


def _fields(batch: Block, codec: int) -> Sequence[Any]:
    """The batch's entries in layout `record`."""
    columns = batch.columns(AT_REST_FROM if codec else None)
    if columns is not None:
        return columns
    return record_entries.fields_of(batch.records(), codec=codec, threshold=AT_REST_FROM)


def _batch_in(fields: Sequence[bytes]) -> bytes | None:
    at = 2 if fields[0] == b"append.time" else 0
    return fields[at + 1] if fields[at] == b"batch" else None


def _not_repeatable(where: str) -> NotRepeatable:
    return NotRepeatable(
        f"{where}: an earlier attempt of this task wrote other rows, or in another order. Exactly "
        "once needs rows that come back the same: sort them, or store them before writing."
    )
