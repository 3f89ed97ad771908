"""How a topic's layout stores records: one strategy object for each layout.

    record   one stream entry per record
    batch    one stream entry per record batch
    bytes    offset.mode=bytes: one stream entry per record batch or Kafka 0.7 message set;
             an offset is a byte position

Rules
- `layout_of` is the only place that asks for a topic's storage.format and offset.mode.
- A layout makes log.append's arguments of what `korvet/log/validator.py` has accepted: it does not
  check again.
"""

from collections.abc import Sequence
from typing import TypeAlias

from korvet.config.values import Settings
from korvet.keys import Keys
from korvet.scripts import log
from korvet.scripts.call import Arg, Call
from korvet.scripts.log import AppendReply
from korvet.topics.table import Topic
from korvet.wire import compression, message_sets_v07, record_entries, records
from korvet.wire.records import BOMB_FACTOR, BatchHeader, Buffer, Record

COPIED = 8 * 1024
"""Bytes below which a batch is copied out of its request: cheaper than a view of it."""
NO_PRODUCER = (-1, -1, -1)
"""Producer id, epoch and base sequence of a batch without idempotence."""


class RecordLayout:
    """One stream entry per record: its key, value, timestamp and headers are fields."""

    name = "record"
    takes_transactions = True

    def append_records(
        self,
        keys: Keys,
        topic: Topic,
        partition: int,
        found: list[Record],
        *,
        size: int,
        max_timestamp: int,
        header: BatchHeader | None = None,
        transaction: int = -1,
        settings: Settings,
    ) -> Call[AppendReply]:
        """Return the call that appends these records; `header` is that of their batch, if any.

        `size` is what the client sent, and counts unless that was compressed.
        """
        if header is None or header.codec:
            size = sum(
                len(key or b"") + len(value or b"") + record_entries.OVERHEAD
                for _, _, key, value, _ in found
            )
        producer_id, producer_epoch, base_sequence = header.producer if header else NO_PRODUCER
        return log.append(
            keys,
            topic.name,
            partition,
            topic_id=topic.id,
            count=len(found),
            size=size,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transaction=transaction,
            stamp=int(topic.policy.log_append_time),
            fields=record_entries.fields_of(
                found,
                codec=compression.BY_NAME[topic.policy.storage_compression],
                threshold=settings.integer("storage.compression.min.bytes"),
                producer_id=producer_id if transaction >= 0 else None,
            ),
        )


class BatchLayout:
    """One stream entry per record batch, byte for byte as the producer sent it."""

    name = "batch"
    takes_transactions = True

    def append_batch(
        self,
        keys: Keys,
        topic: Topic,
        partition: int,
        batch: Buffer,
        header: BatchHeader,
        transaction: int = -1,
    ) -> Call[AppendReply]:
        """Return the call that appends this batch."""
        producer_id, producer_epoch, base_sequence = header.producer
        return log.append(
            keys,
            topic.name,
            partition,
            topic_id=topic.id,
            count=header.last_offset_delta + 1,
            size=len(batch),
            max_timestamp=header.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transaction=transaction,
            stamp=int(topic.policy.log_append_time),
            fields=self._fields(topic, batch, header),
        )

    def _fields(self, topic: Topic, batch: Buffer, header: BatchHeader) -> Sequence[Arg]:
        """Return log.append's `fields` for the entry."""
        return (bytes(batch) if len(batch) < COPIED else batch,)

    def append_records(
        self, keys: Keys, topic: Topic, partition: int, found: list[Record]
    ) -> Call[AppendReply]:
        """Return the call that appends these records as one batch."""
        codec = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
        batch = records.build(found, codec=codec)
        return self.append_batch(keys, topic, partition, batch, records.read_header(batch))


class BytesLayout(BatchLayout):
    """One stream entry per batch; it takes the offsets of its bytes as Kafka 0.7 messages."""

    name = "bytes"
    takes_transactions = False

    def _fields(self, topic: Topic, batch: Buffer, header: BatchHeader) -> Sequence[Arg]:
        limit = topic.policy.max_message_bytes * BOMB_FACTOR
        sizes = message_sets_v07.sizes(records.taken_apart(batch, limit=limit))
        span = sum(sizes)
        return (
            *(span, 8, b"batch", batch, b"count", span),
            *(b"max.timestamp", header.max_timestamp, b"tail", sizes[-1] - 1),
        )


Layout: TypeAlias = RecordLayout | BatchLayout
RECORD, BATCH, BYTES = RecordLayout(), BatchLayout(), BytesLayout()


def layout_of(topic: Topic) -> Layout:
    """Return the layout that the topic was created with."""
    policy = topic.policy
    if policy.offset_mode == "bytes":
        return BYTES
    return BATCH if policy.storage_format == "batch" else RECORD
