"""What a producer sent, as the call that appends it: checked, converted to the topic's layout.

Rules
- A `batch` topic keeps a v2 batch byte for byte, unless its compression.type names another codec.
- A `record` topic and the old message sets are taken apart once, here.
- A transactional batch says so in its attributes; the caller says which transaction that is.
- Decompression is bounded: BOMB_FACTOR times the topic's max.message.bytes; and a record by its
  max.decompressed.message.bytes, where that is set.
"""

from korvet.config.setting import LONG_MAX, LONGEST_ARRAY
from korvet.config.topic_policy import TopicPolicy
from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.log import byte_offsets
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import AppendReply
from korvet.topics.table import Topic
from korvet.wire import compression, message_sets, record_entries, records
from korvet.wire.records import BOMB_FACTOR, BadBatch, BatchHeader, Buffer, Record

COPIED = 8 * 1024
"""A batch below this is sooner copied out of its frame than handed on as a view of it."""


def prepare(
    keys: Keys,
    topic: Topic,
    partition: int,
    data: Buffer,
    *,
    version: int,
    now_ms: int,
    settings: Settings,
    transaction: int | None = None,
) -> Call[AppendReply]:
    """The call that appends what Produce `version` brought for one partition, or BadBatch.

    `transaction` is that of log.append for transactional batches; None: there may be none.
    """
    if len(data) <= records.MAGIC_AT:
        raise BadBatch(ErrorCode.INVALID_RECORD, f"{len(data)} bytes are no record batch")
    limit = topic.policy.max_message_bytes
    if data[records.MAGIC_AT] != records.MAGIC:
        _refuse_magic(data[records.MAGIC_AT], version)
        found = message_sets.parse(data, limit=limit * BOMB_FACTOR)
        if len(data) > limit:
            raise _too_large(len(data), limit)
        return _append_records(keys, topic, partition, found, None, len(data), settings, now_ms)
    header = records.check(data)
    if header.base_offset:
        raise BadBatch(
            ErrorCode.INVALID_RECORD,
            f"a producer's batch begins at offset 0, not at {header.base_offset}",
        )
    transaction = _transaction(header, transaction)
    if transaction >= 0 and topic.is_bytes:
        raise BadBatch(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "a topic of byte positions takes no transactions",
        )
    if len(data) > limit:
        raise _too_large(len(data), limit)
    if header.codec == compression.ZSTD and version < 7:
        raise BadBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer"
        )
    if not topic.is_batch:
        found = records.taken_apart(data, limit=limit * BOMB_FACTOR)
        return _append_records(
            keys, topic, partition, found, header, len(data), settings, now_ms, transaction
        )
    if _looks_at_each(topic, header, now_ms):
        found = records.records_of(data, limit=limit * BOMB_FACTOR)
        _check_sizes(topic, found, header)
        _check_records(topic, found, now_ms)
    return _append_batch(keys, topic, partition, _recoded(topic, data, header), header, transaction)


def _refuse_magic(magic: int, version: int) -> None:
    """BadBatch, unless it is that of a message set, in a version that has them."""
    if magic > records.MAGIC:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"there is no magic {magic}")
    if version >= 3:
        raise BadBatch(
            ErrorCode.INVALID_RECORD,
            "Produce from version 3 on takes record batches of magic 2 only",
        )


def _transaction(header: BatchHeader, transaction: int | None) -> int:
    """What log.append is told of the batch's transaction."""
    if not header.attributes & records.TRANSACTIONAL:
        return -1
    if transaction is None:
        raise BadBatch(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch came in a request without a transactional id",
        )
    if header.producer_id < 0:
        raise BadBatch(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    return transaction


def _looks_at_each(topic: Topic, header: BatchHeader, now_ms: int) -> bool:
    """Whether the header does not say that the topic takes every record of the batch."""
    policy = topic.policy
    if policy.compact or (header.codec and _bounds_records(policy)):
        return True
    if policy.log_append_time:
        return False
    return (
        policy.timestamp_before_max_ms < LONG_MAX
        or header.max_timestamp - now_ms > policy.timestamp_after_max_ms
    )


def _bounds_records(policy: TopicPolicy) -> bool:
    """Whether records may be too large for the topic though their batch is not."""
    return policy.max_decompressed_message_bytes < LONGEST_ARRAY


def _check_sizes(topic: Topic, found: list[Record], header: BatchHeader | None) -> None:
    """The topic takes records as large as those of a compressed batch, or BadBatch names those it
    does not."""
    if header is None or not header.codec or not _bounds_records(topic.policy):
        return
    most = topic.policy.max_decompressed_message_bytes
    blamed = [
        (place, f"A record has {size} bytes; max.decompressed.message.bytes is {most}.")
        for place, size in enumerate(map(_size, found))
        if size > most
    ]
    if blamed:
        raise BadBatch(ErrorCode.INVALID_RECORD, _refused(blamed, len(found)), blamed)


def _size(record: Record) -> int:
    """The bytes of key, value and headers."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(told or b"") for name, told in headers)


def _check_records(topic: Topic, found: list[Record], now_ms: int) -> int:
    """The newest timestamp, where the topic takes every record. BadBatch names all it does not."""
    policy = topic.policy
    earliest, latest = -1, LONG_MAX
    if not policy.log_append_time:
        earliest = now_ms - policy.timestamp_before_max_ms
        latest = now_ms + policy.timestamp_after_max_ms
    newest = max(record[1] for record in found)
    oldest = min(record[1] for record in found)
    keyless = policy.compact and any(record[2] is None for record in found)
    if not keyless and earliest <= oldest and newest <= latest:
        return newest
    error = ErrorCode.INVALID_RECORD
    blamed: list[tuple[int, str]] = []
    for place, (_, timestamp, key, _, _) in enumerate(found):
        if policy.compact and key is None:
            blamed.append((place, "A compacted topic takes no record without a key."))
        elif timestamp > latest or 0 <= timestamp < earliest:
            blamed.append((place, _out_of_range(policy, timestamp, timestamp > latest)))
            error = ErrorCode.INVALID_TIMESTAMP
    if blamed:
        raise BadBatch(error, _refused(blamed, len(found)), blamed)
    return newest


def _refused(blamed: list[tuple[int, str]], count: int) -> str:
    first = blamed[0][1]
    return first if count == 1 else f"{len(blamed)} of {count} records are refused. {first}"


def _too_large(size: int, limit: int) -> BadBatch:
    return BadBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The batch has {size} bytes; max.message.bytes of this topic is {limit}.",
    )


def _out_of_range(policy: TopicPolicy, timestamp: int, future: bool) -> str:
    name, most = (
        ("after", policy.timestamp_after_max_ms)
        if future
        else ("before", policy.timestamp_before_max_ms)
    )
    return (
        f"A record's timestamp {timestamp} lies more than message.timestamp.{name}.max.ms "
        f"({most} ms) in the {'future' if future else 'past'}."
    )


def _recoded(topic: Topic, data: Buffer, header: BatchHeader) -> Buffer:
    """The batch, re-encoded when the topic names a codec that is not the producer's."""
    wanted = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
    if wanted in (compression.NONE, header.codec):
        return data
    limit = topic.policy.max_message_bytes * BOMB_FACTOR
    return records.build(
        records.taken_apart(data, limit=limit),
        codec=wanted,
        transactional=bool(header.attributes & records.TRANSACTIONAL),
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
    )


def _append_batch(
    keys: Keys,
    topic: Topic,
    partition: int,
    batch: Buffer,
    header: BatchHeader,
    transaction: int = -1,
) -> Call[AppendReply]:
    if topic.is_bytes:
        return byte_offsets.append_batch(keys, topic, partition, batch, header)
    count = header.last_offset_delta + 1
    producer = header.producer
    return log.append(
        keys,
        topic.name,
        partition,
        topic_id=topic.id,
        count=count,
        size=len(batch),
        max_timestamp=header.max_timestamp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transaction=transaction,
        stamp=int(topic.policy.log_append_time),
        fields=(bytes(batch) if len(batch) < COPIED else batch,),
    )


def _append_records(
    keys: Keys,
    topic: Topic,
    partition: int,
    found: list[Record],
    header: BatchHeader | None,
    size: int,
    settings: Settings,
    now_ms: int,
    transaction: int = -1,
) -> Call[AppendReply]:
    _check_sizes(topic, found, header)
    newest = _check_records(topic, found, now_ms)
    if topic.is_batch:
        wanted = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
        built = records.build(found, codec=wanted)
        return _append_batch(keys, topic, partition, built, records.read_header(built))
    if header is None or header.codec:
        size = sum(
            len(key or b"") + len(value or b"") + record_entries.OVERHEAD
            for _, _, key, value, _ in found
        )
    producer = (-1, -1, -1) if header is None else header.producer
    return log.append(
        keys,
        topic.name,
        partition,
        topic_id=topic.id,
        count=len(found),
        size=size,
        max_timestamp=newest,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transaction=transaction,
        stamp=int(topic.policy.log_append_time),
        fields=record_entries.fields_of(
            found,
            codec=compression.BY_NAME[topic.policy.storage_compression],
            threshold=settings.integer("storage.compression.min.bytes"),
            producer_id=producer[0] if transaction >= 0 else None,
        ),
    )
