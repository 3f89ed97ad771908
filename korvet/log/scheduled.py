"""Split a produced batch with scheduled records: what is appended now, and what waits.

Rules
- A record with the header korvet-deliver-at or korvet-delay-ms waits outside the log, on a topic
  with delivery.schedule.enable. Records keep all their headers.
- korvet-schedule-id names a record that waits. A record without a value that has this header alone
  cancels it, and is not stored.
- One call of schedule.add stores all of the batch, or nothing; a large one is several calls
  (`append_parts`).
- Records of one batch with the same time, and without an id, wait together: in layout `batch` as
  one batch, in layout `record` at most ROW_RECORDS.
- Transactional batches are rejected: their records would have to wait for the commit as well.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import TopicPolicy
from korvet.config.values import Settings
from korvet.log.layouts import layout_of
from korvet.log.layouts.record import stored_size
from korvet.scripts.append_call import Kind, Row
from korvet.scripts.call import Arg, Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.table import Topic
from korvet.wire import batch_builder, compression, record_entries
from korvet.wire.records import BadBatch, BatchHeader, Buffer, Record

DELIVER_AT = "korvet-deliver-at"
"""Header: the time from which on the record is appended, ms since 1970."""
DELAY_MS = "korvet-delay-ms"
"""Header: the time after which the record is appended, ms after it was stored."""
SCHEDULE_ID = "korvet-schedule-id"
"""Header: the name under which a scheduled record is replaced or cancelled."""
MAX_ID = 1024
"""Max bytes of a schedule id."""
ROW_RECORDS = 500
"""Max records of a row in layout `record`: schedule.append_due appends a row in one call."""
_HEADERS = frozenset((DELIVER_AT, DELAY_MS, SCHEDULE_ID))
IN_TRANSACTION = (
    "A record with a korvet-* schedule header cannot be part of a transaction: send it with a "
    "producer without transactional.id."
)
_ANY = re.compile(rb"korvet-(?:deliver-at|delay-ms|schedule-id)")
_SEARCHED, _LONGEST_NAME = 1 << 20, 18
"""Bytes searched at once, as the interpreter runs nothing else meanwhile, and those of a name."""
_MAX_DIGITS = 15


class _Plan(NamedTuple):
    """The kind, time and id in a record's headers."""

    kind: Kind
    ms: int
    id: bytes


class _Invalid(Exception):
    """The headers of a record are invalid; the message is a sentence."""


def mentions_schedule(section: Buffer) -> bool:
    """Return whether the records, decompressed, may have a header of scheduled records."""
    return any(
        _ANY.search(section, at, at + _SEARCHED + _LONGEST_NAME)
        for at in range(0, len(section), _SEARCHED)
    )


def prepare_scheduled(
    topic: Topic,
    partition: int,
    records: Sequence[Record],
    header: BatchHeader,
    *,
    transaction: int,
    now_ms: int,
    settings: Settings,
) -> Call[AppendReply] | None:
    """Return the call that stores this batch; None if all its records are ordinary.

    Raises BadBatch, which names every record with invalid headers.
    """
    plans = _plans(topic.policy, records, now_ms, is_transactional=transaction >= 0)
    if not any(plans):
        return None
    splitter = _Splitter(topic, header, settings)
    ordinary = [record for record, plan in zip(records, plans, strict=True) if plan is None]
    rows = splitter.rows(zip(records, plans, strict=True))
    fields, size = splitter.ordinary(ordinary)
    args: list[Arg] = [*chain.from_iterable(rows), *fields]
    if len(args) > record_entries.MAX_FIELDS:
        reason = f"A batch of {len(records)} records with scheduled ones has too many fields."
        raise BadBatch(ErrorCode.MESSAGE_TOO_LARGE, reason)
    producer_id, producer_epoch, base_sequence = header.producer
    return topic.partition(partition).schedule_add(
        stamp=int(topic.policy.log_append_time),
        count=len(records),
        size=size,
        max_timestamp=max((record[1] for record in ordinary), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        max_count=topic.policy.schedule_max_records,
        max_bytes=topic.policy.schedule_max_bytes,
        channel=topic.keys.schedule_channel(),
        ordinary=len(ordinary),
        rows=len(rows),
        rest=args,
    )


def limit_reason(topic: Topic) -> str:
    """Return why a batch is rejected with POLICY_VIOLATION."""
    policy = topic.policy
    return (
        f"The partition's scheduled records would exceed delivery.schedule.max.records "
        f"({policy.schedule_max_records}) or delivery.schedule.max.bytes "
        f"({policy.schedule_max_bytes}): wait until some are due, or raise the limit."
    )


class _Splitter:
    """Converts the records of a batch to arguments of schedule.add."""

    def __init__(self, topic: Topic, header: BatchHeader, settings: Settings) -> None:
        policy = topic.policy
        self._holds_batches = layout_of(topic).holds_batches
        wanted = compression.BY_NAME.get(policy.compression_type, compression.NONE)
        self._codec = wanted or header.codec
        self._storage_codec = compression.BY_NAME[policy.storage_compression]
        self._threshold = settings.integer("storage.compression.min.bytes")

    def rows(self, planned: Iterable[tuple[Record, _Plan | None]]) -> list[Row]:
        """Return the rows of the records that wait, and of the cancellations."""
        groups: list[tuple[_Plan, list[Record]]] = []
        shared: dict[_Plan, list[Record]] = {}
        for record, plan in planned:
            if plan is None:
                continue
            if not plan.id:
                waiting = shared.get(plan)
                if waiting and (self._holds_batches or len(waiting) < ROW_RECORDS):
                    waiting.append(record)
                    continue
                shared[plan] = [record]
            groups.append((plan, shared.get(plan) or [record]))
        return [self._row(plan, records) for plan, records in groups]

    def _row(self, plan: _Plan, rows: Sequence[Record]) -> Row:
        if plan.kind == "cancel":
            return Row(*plan, 0, 0, -1, b"")
        newest = max(record[1] for record in rows)
        if self._holds_batches:
            batch = self._batch(rows, self._codec if len(rows) > 1 else compression.NONE)
            return Row(*plan, len(rows), len(batch), newest, batch)
        fields, size = self.ordinary(rows)
        return Row(*plan, len(rows), size, newest, _packed(list(fields)))

    def ordinary(self, rows: Sequence[Record]) -> tuple[Sequence[Arg], int]:
        """Return the fields of log.append for these records, and the bytes that they add."""
        if not rows:
            return (), 0
        if self._holds_batches:
            batch = self._batch(rows, self._codec)
            return (batch,), len(batch)
        fields = record_entries.fields_of(
            rows, codec=self._storage_codec, threshold=self._threshold
        )
        return fields, stored_size(rows)

    @staticmethod
    def _batch(batch: Sequence[Record], codec: int) -> bytes:
        rows = ((at, *record[1:]) for at, record in enumerate(batch))
        return bytes(batch_builder.build(rows, codec=codec, base=0))


def _packed(fields: list[Any]) -> bytes:
    """Return the fields of record_entries.fields_of as lib.pack has them."""
    at = 0
    while at < len(fields):
        count = fields[at]
        fields[at] = b"%d" % count
        at += count + 1
    return b"".join([b"%d:%b" % (len(word), word) for word in fields])


def _plans(
    policy: TopicPolicy, rows: Sequence[Record], now_ms: int, *, is_transactional: bool
) -> list[_Plan | None]:
    """Return what each record's headers ask for, None for an ordinary record."""
    plans: list[_Plan | None] = []
    wrong: list[tuple[int, str]] = []
    for at, record in enumerate(rows):
        plan = None
        try:
            plan = _plan(record, now_ms, policy.schedule_max_delay_ms)
            if plan is not None and is_transactional:
                raise _Invalid(IN_TRANSACTION)
        except _Invalid as error:
            wrong.append((at, str(error)))
        plans.append(plan)
    if wrong:
        first = wrong[0][1]
        reason = first if len(rows) == 1 else f"{len(wrong)} of {len(rows)} records: {first}"
        raise BadBatch(ErrorCode.INVALID_RECORD, reason, wrong)
    return plans


def _plan(record: Record, now_ms: int, max_delay_ms: int) -> _Plan | None:
    """Return what the headers ask for; the last one of a name counts. Raises _Invalid."""
    found = {name: value or b"" for name, value in record[4] if name in _HEADERS}
    if not found:
        return None
    schedule_id = found.get(SCHEDULE_ID, b"")
    if SCHEDULE_ID in found and not 0 < len(schedule_id) <= MAX_ID:
        raise _Invalid(f"{SCHEDULE_ID} has {len(schedule_id)} bytes: from 1 to {MAX_ID} can be.")
    at, delay = found.get(DELIVER_AT), found.get(DELAY_MS)
    if at is None and delay is None:
        if record[3] is not None:
            raise _Invalid(
                f"{SCHEDULE_ID} needs {DELIVER_AT} or {DELAY_MS}, or a null value to cancel."
            )
        return _Plan("cancel", 0, schedule_id)
    if at is not None and delay is not None:
        raise _Invalid(f"A record has {DELIVER_AT} or {DELAY_MS}, not both.")
    if at is not None:
        ms = _number(DELIVER_AT, at)
        plan, wait_ms = _Plan("at", ms, schedule_id), ms - now_ms
    else:
        ms = _number(DELAY_MS, delay or b"")
        plan, wait_ms = _Plan("in", ms, schedule_id), ms
    if wait_ms > max_delay_ms:
        raise _Invalid(
            f"A record is due in {wait_ms} ms: delivery.schedule.max.delay.ms is {max_delay_ms}."
        )
    return plan


def _number(name: str, text: bytes) -> int:
    if not text.isdigit() or len(text) > _MAX_DIGITS:
        shown = repr(text[:40])[1:]
        raise _Invalid(
            f"{name} is {shown}: it takes milliseconds, at most {_MAX_DIGITS} decimal digits."
        )
    return int(text)
