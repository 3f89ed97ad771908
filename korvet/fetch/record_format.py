"""Encode the entries of a partition in the message format of a Fetch version; read their age."""

import struct
from collections.abc import Sequence
from itertools import islice

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of, records_in
from korvet.log.read_result import ReadResult
from korvet.topics.table import Topic
from korvet.wire import compression, message_sets
from korvet.wire.records import MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, Buffer

BATCHES_SINCE = 4
"""The first version with record batches; those below have message sets."""
ZSTD_SINCE = 10
_INT64 = struct.Struct(">q")
_HEAD_BYTES = MAX_TIMESTAMP_AT + _INT64.size


def encode_records(
    topic: Topic, result: ReadResult, offset: int, max_bytes: int, version: int
) -> list[Buffer]:
    """Encode the entries, which a client asked for from `offset` on.

    Stored batches are sent as they are, zstd too: Kafka 4 does so for old versions as well.
    """
    if version < BATCHES_SINCE:
        return [_message_set(topic, result.entries, offset, max_bytes, version)]
    codec = _codec(topic)
    if codec == compression.ZSTD and version < ZSTD_SINCE:
        codec = compression.NONE
    transactions = result.stable is not None
    return layout_of(topic).batches_of(
        result.entries, offset, result.epoch, codec, transactions=transactions
    )


def _codec(topic: Topic) -> int:
    return compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)


def _message_set(
    topic: Topic, entries: Sequence[Entry], offset: int, max_bytes: int, version: int
) -> Buffer:
    """Build a message set for clients below version 4.

    Below version 3 it is cut to `max_bytes`, inside a message if need be, as Kafka does: a client
    then sees that its buffer is too small for one message.
    """
    magic, codec = 0 if version < 2 else 1, _codec(topic)
    rows = [row for row in records_in(topic, entries) if row[0] >= offset]
    if not rows:
        return b""
    appended = layout_of(topic).append_timed(entries, rows) if magic else ()
    if version == 3:
        return message_sets.build(rows, magic=magic, codec=codec, appended=appended)
    limit = max(max_bytes, 0)
    rows = message_sets.first_within(rows, limit, magic=magic)
    built = message_sets.build(rows, magic=magic, codec=codec, appended=appended)
    # A client finds no records in a compressed message that is cut.
    while len(built) > limit and len(rows) > 1 and message_sets.is_compressed(built):
        rows = rows[: len(rows) // 2]
        built = message_sets.build(rows, magic=magic, codec=codec)
    return memoryview(built)[:limit]


def max_timestamp_of(parts: Sequence[Buffer]) -> int:
    """Return the max timestamp of the first batch in ms; -1 if it has none.

    A message set of a client below Fetch version 4 has none either.
    """
    head = b"".join(memoryview(part)[:_HEAD_BYTES] for part in islice(parts, 3))
    if len(head) < _HEAD_BYTES or head[MAGIC_AT] != MAGIC:
        return -1
    timestamp: int = _INT64.unpack_from(head, MAX_TIMESTAMP_AT)[0]
    return timestamp
