"""Validate a producer's batch and make the log.append call for it (Kafka's LogValidator).

Rules
- A topic of layout `batch` stores a v2 batch byte for byte, unless its compression.type names
  another codec.
- Layout `record`, and message sets (magic 0 and 1), are split into records once, here.
- The records of every batch are checked before any is stored: bytes that a consumer cannot read
  would stop it at that offset. records.validation=header leaves that out for layout `batch`.
- A max timestamp that is not that of the records is corrected, as in Kafka.
- A batch with scheduled records is split: `korvet/log/scheduled.py`.
- A transactional batch says so in its attributes; the caller knows which transaction that is.
- Decompression is bounded: a batch by TopicPolicy.max_opened_bytes, a record by
  max.decompressed.message.bytes, if set.
- Records are decoded only for layout `record` and for a schedule: otherwise their values, which
  may be large, are skipped.
"""

from collections.abc import Iterable

from korvet.base.errors import ErrorCode
from korvet.config.setting import LONG_MAX, LONGEST_ARRAY
from korvet.config.topic_policy import TopicPolicy
from korvet.config.values import Settings
from korvet.log.layouts import Layout, layout_of
from korvet.log.layouts.record import RecordLayout
from korvet.log.opening import Allowance
from korvet.log.scheduled import mentions_schedule, prepare_scheduled
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder, compression, message_sets, record_walk, records
from korvet.wire.records import BadBatch, BatchHeader, Buffer, Record, corrupt, invalid

UNLIMITED = Allowance()
"""The allowance of a caller that no other client waits for."""


def prepare_append(
    topic: Topic,
    partition: int,
    data: Buffer,
    *,
    version: int,
    now_ms: int,
    settings: Settings,
    transaction: int | None = None,
    allowance: Allowance = UNLIMITED,
) -> Call[AppendReply]:
    """Return the call that appends one partition's data of Produce `version`, or raise BadBatch.

    `transaction` is log.append's, for transactional batches; None: there must be none. Raises
    OpensMuch if the `allowance` does not suffice for the batch.
    """
    if len(data) <= records.MAGIC_AT:
        raise invalid(f"{len(data)} bytes are no record batch")
    layout = layout_of(topic)
    if data[records.MAGIC_AT] != records.MAGIC:
        return _append_message_set(topic, partition, data, version, now_ms, settings, allowance)
    header = records.check_produced(data)
    transaction = _check_batch(topic, layout, data, header, version, transaction)
    section, newest = _open(topic, layout, data, header, allowance)
    if topic.policy.schedules and mentions_schedule(section):
        found = _decode(topic, header, section, allowance)
        _check_records(topic, found, header, now_ms)
        split = prepare_scheduled(
            topic,
            partition,
            found,
            header,
            transaction=transaction,
            now_ms=now_ms,
            settings=settings,
        )
        if split is not None:
            return split
    if isinstance(layout, RecordLayout):
        found = _decode(topic, header, section, allowance)
        return layout.append_records(
            topic,
            partition,
            found,
            size=len(data),
            max_timestamp=_check_records(topic, found, header, now_ms),
            header=header,
            transaction=transaction,
            settings=settings,
        )
    misdated = not topic.policy.log_append_time and (
        newest != header.max_timestamp or header.attributes & records.LOG_APPEND_TIME
    )
    if misdated or _must_check_records(topic, header, now_ms):
        section = section or allowance.open(topic, data, header)
        newest = _check_section(topic, section, header, now_ms)
    if misdated:
        data = batch_builder.with_max_timestamp(data, header, newest)
        header = records.read_header(data)
    codec = compression.BY_NAME.get(topic.policy.compression_type, compression.NONE)
    if codec not in (compression.NONE, header.codec):
        section = section or allowance.open(topic, data, header)
        data = batch_builder.with_codec(header, section, codec)
        header = records.read_header(data)
    if topic.policy.offset_mode == "bytes":
        section = section or allowance.open(topic, data, header)
        allowance.decode(section, header.records, is_checked=topic.policy.validates_records)
    return layout.append_batch(topic, partition, data, header, transaction)


def _open(
    topic: Topic, layout: Layout, data: Buffer, header: BatchHeader, allowance: Allowance
) -> tuple[Buffer, int]:
    """Return the batch's records, decompressed and checked, and their newest timestamp.

    Without a check the timestamp is the header's, and no records are returned if the layout does
    not need them.
    """
    checked = topic.policy.validates_records
    if not checked and layout.holds_batches and not topic.policy.schedules:
        return b"", header.max_timestamp
    section = allowance.open(topic, data, header)
    if not checked:
        return section, header.max_timestamp
    newest = header.first_timestamp + record_walk.check_records(section, header.records)
    if newest > LONG_MAX:
        raise BadBatch(ErrorCode.INVALID_TIMESTAMP, f"A record's timestamp is {newest}.")
    return section, newest


def _decode(
    topic: Topic, header: BatchHeader, section: Buffer, allowance: Allowance
) -> list[Record]:
    """Return the records of a section from `_open`. Raises BadBatch and OpensMuch."""
    allowance.decode(section, header.records, is_checked=topic.policy.validates_records)
    return records.decode_section(header, section)


def _append_message_set(
    topic: Topic,
    partition: int,
    data: Buffer,
    version: int,
    now_ms: int,
    settings: Settings,
    allowance: Allowance,
) -> Call[AppendReply]:
    """Return the call that appends a message set of magic 0 or 1."""
    magic = data[records.MAGIC_AT]
    if magic > records.MAGIC:
        raise corrupt(f"there is no magic {magic}")
    if version >= 3:
        raise invalid("Produce from version 3 on takes record batches of magic 2 only")
    _check_size(topic, data)
    found = allowance.parse(
        len(data),
        topic.policy.max_opened_bytes,
        lambda max_bytes: message_sets.parse(data, limit=max_bytes),
    )
    newest = _check_records(topic, found, None, now_ms)
    layout = layout_of(topic)
    if isinstance(layout, RecordLayout):
        return layout.append_records(
            topic, partition, found, size=len(data), max_timestamp=newest, settings=settings
        )
    return layout.append_records(topic, partition, found)


def _check_batch(
    topic: Topic,
    layout: Layout,
    data: Buffer,
    header: BatchHeader,
    version: int,
    transaction: int | None,
) -> int:
    """Return log.append's `transaction` for a batch that the topic takes, or raise BadBatch."""
    if header.base_offset:
        raise invalid(f"a producer's batch begins at offset 0, not at {header.base_offset}")
    number = _transaction(header, transaction)
    if number >= 0 and not layout.takes_transactions:
        raise BadBatch(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "a topic with offset.mode=bytes takes no transactions",
        )
    _check_size(topic, data)
    if header.codec == compression.ZSTD and version < 7:
        raise BadBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer"
        )
    return number


def _transaction(header: BatchHeader, transaction: int | None) -> int:
    """Return log.append's `transaction`, -1 for a batch outside of transactions."""
    if not header.attributes & records.TRANSACTIONAL:
        return -1
    if transaction is None:
        raise BadBatch(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch came in a request without a transactional id",
        )
    if header.producer_id < 0:
        raise invalid("a transactional batch needs a producer id")
    return transaction


def _must_check_records(topic: Topic, header: BatchHeader, now_ms: int) -> bool:
    """Return whether the header alone cannot show that the topic takes every record."""
    policy = topic.policy
    if policy.compact or (header.codec and _limits_records(policy)):
        return True
    if policy.log_append_time:
        return False
    return (
        policy.timestamp_before_max_ms < LONG_MAX
        or header.max_timestamp - now_ms > policy.timestamp_after_max_ms
    )


def _limits_records(policy: TopicPolicy) -> bool:
    """Return whether the topic limits the size of a record in a compressed batch."""
    return policy.max_decompressed_message_bytes < LONGEST_ARRAY


def _check_size(topic: Topic, data: Buffer) -> None:
    limit = topic.policy.max_message_bytes
    if len(data) > limit:
        raise BadBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(data)} bytes; max.message.bytes of this topic is {limit}.",
        )


def _check_records(
    topic: Topic, parsed: list[Record], header: BatchHeader | None, now_ms: int
) -> int:
    """Return the max timestamp; BadBatch names every record that the topic does not take."""
    timestamps = [record[1] for record in parsed]
    newest, oldest = max(timestamps), min(timestamps)
    keyless = topic.policy.compact and any(record[2] is None for record in parsed)
    is_packed = header is not None and bool(header.codec)
    longest = max(map(_size, parsed)) if is_packed and _limits_records(topic.policy) else 0
    if not _takes(topic.policy, oldest, newest, keyless, longest, now_ms):
        rows = ((stamp, key is None, 0) for _, stamp, key, _, _ in parsed)
        if longest:
            rows = ((row[1], row[2] is None, _size(row)) for row in parsed)
        _refuse(topic.policy, rows, len(parsed), now_ms)
    return newest


def _check_section(topic: Topic, section: Buffer, header: BatchHeader, now_ms: int) -> int:
    """Return the max timestamp as `_check_records` does, of records that are not decoded."""
    first, count = header.first_timestamp, header.records
    if not topic.policy.validates_records:
        record_walk.check_records(section, count)
    found = record_walk.survey(section, count)
    longest = found.longest if header.codec and _limits_records(topic.policy) else 0
    bounds = (first + found.oldest, first + found.newest)
    if not _takes(topic.policy, *bounds, topic.policy.compact and found.keyless, longest, now_ms):
        rows = (
            (first + delta, keyless, size if longest else 0)
            for delta, keyless, size in record_walk.rows_of(section, count)
        )
        _refuse(topic.policy, rows, count, now_ms)
    return bounds[1]


def _takes(
    policy: TopicPolicy, oldest: int, newest: int, keyless: int, longest: int, now_ms: int
) -> bool:
    """Return whether the topic certainly takes records with these extremes."""
    if keyless or longest > policy.max_decompressed_message_bytes:
        return False
    return policy.log_append_time or (
        now_ms - policy.timestamp_before_max_ms <= oldest
        and newest <= now_ms + policy.timestamp_after_max_ms
    )


def _refuse(
    policy: TopicPolicy, rows: Iterable[tuple[int, bool, int]], count: int, now_ms: int
) -> None:
    """Raise BadBatch with every record that the topic does not take, if there is one.

    A row has the timestamp, whether the record has no key, and its bytes.
    """
    earliest, latest = -1, LONG_MAX
    if not policy.log_append_time:
        earliest = now_ms - policy.timestamp_before_max_ms
        latest = now_ms + policy.timestamp_after_max_ms
    limit, error = policy.max_decompressed_message_bytes, ErrorCode.INVALID_RECORD
    large: list[tuple[int, str]] = []
    wrong: list[tuple[int, str]] = []
    for at, (timestamp, keyless, size) in enumerate(rows):
        if size > limit:
            why = f"A record has {size} bytes; max.decompressed.message.bytes is {limit}."
            large.append((at, why))
        elif policy.compact and keyless:
            wrong.append((at, "A compacted topic takes no record without a key."))
        elif timestamp > latest or 0 <= timestamp < earliest:
            wrong.append((at, _out_of_range(policy, timestamp, timestamp > latest)))
            error = ErrorCode.INVALID_TIMESTAMP
    if large:
        raise BadBatch(ErrorCode.INVALID_RECORD, _summary(large, count), large)
    if wrong:
        raise BadBatch(error, _summary(wrong, count), wrong)


def _size(record: Record) -> int:
    """Return the bytes of key, value and headers."""
    _, _, key, value, headers = record
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in headers)


def _summary(wrong: list[tuple[int, str]], count: int) -> str:
    first = wrong[0][1]
    return first if count == 1 else f"{len(wrong)} of {count} records are refused. {first}"


def _out_of_range(policy: TopicPolicy, timestamp: int, future: bool) -> str:
    name, limit_ms = (
        ("after", policy.timestamp_after_max_ms)
        if future
        else ("before", policy.timestamp_before_max_ms)
    )
    return (
        f"A record's timestamp {timestamp} is more than message.timestamp.{name}.max.ms "
        f"({limit_ms} ms) in the {'future' if future else 'past'}."
    )
