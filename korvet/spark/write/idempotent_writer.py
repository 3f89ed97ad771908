"""Append the records of one task, each exactly once over all attempts.

Rules
- A task has its own producer id, stored in Redis under the writer id: every attempt gets the same
  one. The Spark epoch is the producer epoch; sequence numbers count the records of each partition
  from 0. The append script then recognises what an earlier attempt appended.
- Batch boundaries depend on the partition's records only, so every attempt forms the same batches.
  Exception: the last batch of an attempt that failed, as Spark ends the row iterator in both cases.
  If an earlier attempt stored the beginning of a batch, append the rest.
- All partition buffers together hold at most MAX_BUFFERED_BYTES.
- The script remembers a producer's last five batches. Compare those with the log; older duplicates
  are only known to be there.
"""

import logging
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from korvet.base.errors import ErrorCode
from korvet.log.entry import entry_id
from korvet.log.layouts import layout_of
from korvet.log.layouts.batch import BatchLayout
from korvet.scripts import producer_state
from korvet.scripts.call import Call
from korvet.scripts.calls.namespace import WriterClaimProducerIdReply
from korvet.scripts.calls.partition import AppendReply
from korvet.scripts.keys import Keys
from korvet.scripts.producer_state import WRAP, ProducerStateEntry
from korvet.spark.errors import InvalidDataFrame, NotRepeatable, UnknownTopic
from korvet.spark.write import record_block
from korvet.spark.write.durability_check import AppendedUpTo, lost_append_error
from korvet.spark.write.record_block import NumberedBatch, PartitionBuffer, RecordBlock
from korvet.store.sync_store import SyncStore
from korvet.topics.table import Topic
from korvet.wire import batch_builder, record_entries, records
from korvet.wire import compression as codecs

logger = logging.getLogger("korvet.spark")
EPOCHS = 1 << 15
"""A producer epoch has 15 bits: a Spark epoch above it uses another producer id."""


class ProducerClaim:
    """A task's producer id and epoch; `done` if the epoch is already committed.

    Partitions remember a retryable writer's sequence numbers for KEEP_MS, so that it can be resumed
    days after a crash. The id is derived from writer and task: it stays the same even if a
    failover of Redis lost it.
    """

    def __init__(
        self,
        store: SyncStore,
        keys: Keys,
        writer_id: str,
        task: int,
        epoch: int,
        *,
        retryable: bool = True,
    ) -> None:
        slot = f"{task}.{epoch // EPOCHS}"
        ids_from, keep_ms = producer_state.IDS_FROM, producer_state.KEEP_MS
        if not retryable:
            ids_from, keep_ms = producer_state.JOB_IDS_FROM, producer_state.KEEP_JOB_MS

        def claim(producer_id: int) -> WriterClaimProducerIdReply:
            return store.run(
                keys.writer_claim_producer_id(
                    writer=keys.writer(writer_id),
                    slot=slot,
                    producer_id=producer_id,
                    keep_ms=keep_ms,
                )
            )

        found = claim(-1)
        if found.producer_id < 0 and found.committed < epoch:
            digest = blake2b(f"{writer_id}/{slot}".encode(), digest_size=8).digest()
            found = claim(ids_from + int.from_bytes(digest) % producer_state.JOB_IDS_FROM)
        self.producer_id = found.producer_id
        self.producer_epoch = epoch % EPOCHS
        self.done = found.committed >= epoch
        if 0 <= found.committed < epoch - 1:
            logger.warning(
                "%s: Redis knows of no commit after epoch %d, and this is epoch %d: it may have "
                "lost the records of those in between",
                writer_id,
                found.committed,
                epoch,
            )


def check_keys(topic: Topic, batch: RecordBlock) -> None:
    """Raise InvalidDataFrame if the topic needs keys and a record has none."""
    if topic.policy.compact and batch.keys.null_count:
        raise InvalidDataFrame(
            f"Topic {topic.name!r} is compacted: every record needs a key, and one has none."
        )


def check_size(topic: Topic, largest: int) -> None:
    """Raise InvalidDataFrame if the topic does not accept a record of that size."""
    if largest > topic.policy.max_message_bytes:
        raise InvalidDataFrame(
            f"A record of {largest} bytes is too large for topic {topic.name!r}, whose "
            f"max.message.bytes is {topic.policy.max_message_bytes}."
        )


def check_timestamps(topic: Topic, batch: RecordBlock) -> int:
    """Return the newest timestamp; raise InvalidDataFrame if one is out of bounds."""
    policy = topic.policy
    oldest, earliest, newest = batch.timestamp_range()
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
    raise InvalidDataFrame(
        f"Topic {topic.name!r} does not accept timestamp {wrong} (ms): it must not be before 1970 "
        f"and within {setting} of the current time."
    )


MAX_BUFFERED_BYTES = 48 << 20
"""Max bytes in partition buffers; above it all buffers are appended."""
MAX_IN_FLIGHT = 4
"""Max batches in one pipeline; fewer if a record is larger than BATCH_BYTES."""
MAX_ATTEMPTS = 10
_SEQUENCE_ERRORS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Errors of the append script for a batch that does not follow the producer's last sequence."""

logger = logging.getLogger("korvet.spark")


class IdempotentWriter:
    """Buffers the records of one task and appends them in batches."""

    def __init__(self, store: SyncStore, claim: ProducerClaim, compression: str | None) -> None:
        self._store = store
        self._claim = claim
        self._compression = compression
        self._waiting: dict[tuple[str, int], PartitionBuffer] = {}
        self._ready: list[NumberedBatch] = []
        self._ready_bytes = 0
        self._held_bytes = 0
        self.records = 0
        self.repeated = 0

    def put(self, topic: Topic, partition: int, block: RecordBlock) -> None:
        """Buffer records for the partition, and append full batches.

        Raises InvalidDataFrame if the topic does not accept the records.
        """
        check_keys(topic, block)
        waiting = self._waiting.setdefault(
            (topic.name, partition), PartitionBuffer(topic, partition)
        )
        self._held_bytes -= waiting.size
        for batch in waiting.add(block):
            self._append(batch)
        self._held_bytes += waiting.size
        if self._held_bytes > MAX_BUFFERED_BYTES:
            self._append_buffers()

    def flush(self) -> None:
        """Append all buffered records."""
        self._append_buffers()
        if self.repeated:
            self._check_earlier_attempt()

    def appended(self) -> tuple[AppendedUpTo, ...]:
        """Return the next sequence number of each partition."""
        producer = self._claim.producer_id, self._claim.producer_epoch
        return tuple(
            AppendedUpTo(each.topic.name, each.partition, *producer, each.sequence)
            for each in self._waiting.values()
        )

    def _append_buffers(self) -> None:
        """Append the content of all partition buffers."""
        for waiting in self._waiting.values():
            for batch in waiting.last_batches():
                self._append(batch)
        self._send()
        self._held_bytes = 0

    def _append(self, batch: NumberedBatch) -> None:
        self._ready.append(batch)
        self._ready_bytes += batch.size
        most_bytes = MAX_IN_FLIGHT * record_block.BATCH_BYTES
        if len(self._ready) >= MAX_IN_FLIGHT or self._ready_bytes >= most_bytes:
            self._send()

    def _check_earlier_attempt(self) -> None:
        """Raise NotRepeatable if an earlier attempt appended more rows than this one."""
        for waiting in self._waiting.values():
            topic, partition = waiting.topic, waiting.partition
            done = self._progress(topic, partition)
            if done is not None and done.next != waiting.sequence:
                raise _not_repeatable_error(f"{topic.name}-{partition}")

    def _progress(self, topic: Topic, partition: int) -> ProducerStateEntry | None:
        """Return the partition's stored state of this producer epoch, or None."""
        key = topic.partition(partition).producers
        row = self._store.command("HGET", key, self._claim.producer_id)
        done = ProducerStateEntry.of(row) if row else None
        return done if done is not None and done.epoch == self._claim.producer_epoch else None

    def _send(self) -> None:
        replies = self._store.run_many([self._call(batch) for batch in self._ready])
        for batch, reply in zip(self._ready, replies, strict=True):
            if reply.error in _SEQUENCE_ERRORS:
                self._append_rest(batch)
            else:
                self._check_reply(batch, reply)
        self._ready.clear()
        self._ready_bytes = 0

    def _append_rest(self, batch: NumberedBatch) -> None:
        """Append the part of the batch that the log does not have yet."""
        count = len(batch.records)
        for _ in range(MAX_ATTEMPTS):
            done = self._progress(batch.topic, batch.partition)
            # All batches before this one were acknowledged, so state below it means data loss.
            if done is None or (done.next - batch.sequence) % WRAP >= WRAP // 2:
                raise lost_append_error(str(batch))
            stored = min((done.next - batch.sequence) % WRAP, count)
            if stored:
                self._compare_known(batch.slice(0, stored), done)
            if stored < count:
                unstored = batch.slice(stored, count)
                reply = self._store.run(self._call(unstored))
                if reply.error in _SEQUENCE_ERRORS:
                    continue  # a concurrent attempt of the task appended in between
                self._check_reply(unstored, reply)
            self.records += stored
            self.repeated += stored
            return
        raise _not_repeatable_error(str(batch))

    def _compare_known(self, batch: NumberedBatch, done: ProducerStateEntry) -> None:
        """Compare the batch's records with those that the script remembers."""
        size = len(batch.records)
        for first, last, base in done.batches:
            low, count = (first - batch.sequence) % WRAP, last - first + 1
            if low < size:
                self._compare(batch.slice(low, min(low + count, size)), base, count)

    def _call(self, batch: NumberedBatch) -> Call[AppendReply]:
        topic, block = batch.topic, batch.records
        newest = check_timestamps(topic, block)
        layout = layout_of(topic)
        if isinstance(layout, BatchLayout):
            wanted = self._compression or topic.policy.compression_type
            data = batch_builder.build(
                block.records(),
                codec=_CODECS.get(wanted, codecs.LZ4),
                producer=(self._claim.producer_id, self._claim.producer_epoch, batch.sequence),
            )
            check_size(topic, len(data))
            header = records.read_header(data)
            return layout.append_batch(topic, batch.partition, data, header)
        sizes = block.record_sizes()
        check_size(topic, int(sizes.max()))
        return topic.partition(batch.partition).append(
            count=len(block),
            size=int(sizes.sum()),
            max_timestamp=newest,
            producer_id=self._claim.producer_id,
            producer_epoch=self._claim.producer_epoch,
            base_sequence=batch.sequence,
            stamp=int(topic.policy.log_append_time),
            fields=_encode_entries(block, codecs.BY_NAME[topic.policy.storage_compression]),
        )

    def _check_reply(self, batch: NumberedBatch, reply: AppendReply) -> None:
        count = len(batch.records)
        if reply.error == ErrorCode.NONE:
            self.records += count
            if not reply.stored:
                self.repeated += count
                self._compare(batch, reply.base, count)
        elif reply.error == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise NotRepeatable(
                f"{batch}: a later epoch of this query was already written; this task is outdated."
            )
        else:
            raise UnknownTopic(f"{batch} cannot be written: {ErrorCode(reply.error).name}.")

    def _compare(self, batch: NumberedBatch, base: int, count: int) -> None:
        """Raise NotRepeatable if the stored batch at `base` has other keys or values.

        A batch that was trimmed or compacted cannot be compared.
        """
        topic, expected = batch.topic, batch.records.records()
        stream = topic.partition(batch.partition).stream
        layout, policy = layout_of(topic), topic.policy
        first, last = (
            entry_id(policy.offset_mode, policy.offset_bits, at) for at in (base, base + count - 1)
        )
        # An entry's id is its last offset; of a batch in offset.mode=bytes only the first is known.
        ids = (first, "+", "COUNT", 1) if layout.has_tail else (first, last)
        rows = self._store.command("XRANGE", stream, *ids)
        entries = [layout.parse_entry(0, 0, fields, True) for _, fields in rows]
        found = [r[2:4] for each in entries if each for r in layout.records_of(topic, each)]
        if len(found) == count and found[: len(expected)] != [r[2:4] for r in expected]:
            raise _not_repeatable_error(str(batch))


_CODECS = {**codecs.BY_NAME, "uncompressed": codecs.NONE}
COMPRESS_FROM = 1024
"""Compress values longer than this many bytes in layout `record`: the broker's default."""


def _encode_entries(batch: RecordBlock, codec: int) -> Sequence[Any]:
    """Return the batch's entries in layout `record`."""
    columns = batch.columns(COMPRESS_FROM if codec else None)
    if columns is not None:
        return columns
    return record_entries.fields_of(batch.records(), codec=codec, threshold=COMPRESS_FROM)


def _not_repeatable_error(where: str) -> NotRepeatable:
    return NotRepeatable(
        f"{where}: an earlier attempt of this task wrote other rows, or in another order. Exactly "
        "once needs the same rows in each attempt: sort them, or store them before writing."
    )
