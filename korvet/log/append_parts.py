"""Append a large batch in parts, so that no script holds Redis for long.

Large are batches of layout `record`, and batches of both layouts with many scheduled records.

Rules
- The parts of a batch are sent in one write: no append of this broker comes between them. Redis
  runs commands of other clients between two parts.
- A later part goes directly after the log's end, also in offset.mode=time. So the batch has
  consecutive offsets, unless another broker or a foreign writer appends in between. Then the
  reply has no base offset: -1.
- A part is a batch to the script: it has its own sequences. A retry of the whole batch has the same
  parts, and those that are stored are recognized. After a part that fails, the later parts of an
  idempotent producer are out of order.
- Without idempotence a batch that failed may be stored in part, and its retry stores it again.
- A batch with scheduled records is calls of schedule.add: first its ordinary records, then its
  rows. A part is rejected if the partition has no room for it and the later ones: so it is the
  first part that is rejected.
- What a thread has opened it also cuts and packs, for a million arguments take the event loop long:
  `packed`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import (
    BATCH_AT,
    EXPIRED,
    EXPIRED_IN_TXN,
    FIELDS_AT,
    LATER_PART,
    ORDINARY_AT,
    PRODUCER_AT,
    SIZE_AT,
    STAMP_AT,
    TRANSACTION_AT,
    Row,
    count_of,
    rows_of,
    size_of,
)
from korvet.scripts.call import Arg, Call
from korvet.scripts.calls.partition import APPEND, SCHEDULE_ADD, AppendReply
from korvet.store.async_store import AsyncStore
from korvet.store.calls import ReplyWaiter, fail, resolve
from korvet.store.resp import Packed, pack_arguments

PART_RECORDS = 2000
"""Max records of a part, or rows: 10 to 20 ms of Redis. All brokers have to use the same number."""
PART_ARGUMENTS = 20_000
"""Max names and values of a part, but for a single record."""
PART_BYTES = 4 << 20
"""Max bytes of a part, but for a single record."""
Part = tuple[int, int, Sequence[Arg]]
"""Records and bytes of a part, and its arguments from FIELDS_AT on."""
_SEQUENCE_AT = PRODUCER_AT + 2
_WRAP = 2**31
_WITH_STATE: dict[object, int] = {EXPIRED: -1, EXPIRED_IN_TXN: 0}
"""The `transaction` of a later part: the first one gave the producer a state, or was rejected."""


def send_append(
    store: AsyncStore, call: Call[AppendReply], waiter: ReplyWaiter[AppendReply]
) -> None:
    """Send a call of log.append, in parts if it is large, for the waiter."""
    if not (is_packed(call) or _is_large(call)):
        store.send(call, waiter)
        return
    parts = list(parts_of(call))
    replies = _PartReplies(waiter, [count_of(part) for part in parts])
    for part in parts:
        store.send(part, replies)


def packed(call: Call[AppendReply]) -> Call[AppendReply]:
    """Return the call with its parts packed, if it is large: done in the thread that opened it.

    After what describes the batch, it has the records, the bytes, and the arguments of each part.
    """
    if not _is_large(call):
        return call
    args = list(call.args[:FIELDS_AT])
    for records, size, part in _cut_call(call):
        args += (records, size, pack_arguments(part))
    return Call(call.script, call.keys, args)


def is_packed(call: Call[AppendReply]) -> bool:
    """Return whether the call has parts that are packed: only `send_append` sends it."""
    return type(call.args[-1]) is Packed


def parts_of(call: Call[AppendReply]) -> Iterator[Call[AppendReply]]:
    """Yield the calls that append the records of a call one after another."""
    head = call.args[:FIELDS_AT]
    sequence, transaction, stamp = head[_SEQUENCE_AT], head[TRANSACTION_AT], head[STAMP_AT]
    assert isinstance(sequence, int) and isinstance(stamp, int)
    done = 0
    for records, size, part in _packed_parts(call) if is_packed(call) else _cut_call(call):
        args = [*head, *part]
        args[BATCH_AT], args[SIZE_AT] = records, size
        if sequence >= 0:
            args[_SEQUENCE_AT] = (sequence + done) % _WRAP
        if done:
            args[TRANSACTION_AT] = _WITH_STATE.get(transaction, transaction)
            if call.script is APPEND:
                args[STAMP_AT] = stamp | LATER_PART
        yield Call(call.script, call.keys, args)
        done += records


def _packed_parts(call: Call[AppendReply]) -> Iterator[Part]:
    for at in range(FIELDS_AT, len(call.args), 3):
        records, size, part = call.args[at : at + 3]
        assert isinstance(records, int) and isinstance(size, int)
        yield records, size, (part,)


def _cut_call(call: Call[AppendReply]) -> Iterator[Part]:
    """Yield the parts of a call of log.append or schedule.add."""
    if call.script is SCHEDULE_ADD:
        yield from _scheduled(call)
    else:
        yield from _sized(call.args[FIELDS_AT:], count_of(call), size_of(call))


def _scheduled(call: Call[AppendReply]) -> Iterator[Part]:
    """Yield the parts of a call of schedule.add."""
    rows, fields = rows_of(call)
    later_records, later_bytes = sum(row.records for row in rows), sum(map(_bytes_of, rows))

    def arguments(ordinary: int, some: Sequence[Row], fields: Sequence[Arg]) -> list[Arg]:
        counts = (ordinary, len(some), later_records, later_bytes)
        limits = call.args[FIELDS_AT:ORDINARY_AT]
        return [*limits, *counts, *chain.from_iterable(some), *fields]

    ordinary, size = call.args[ORDINARY_AT], size_of(call)
    assert isinstance(ordinary, int)
    if fields and not isinstance(fields[0], int):
        yield ordinary, size, arguments(ordinary, (), fields)
    elif fields:
        for count, own, part in _sized(fields, ordinary, size):
            yield count, own, arguments(count, (), part)
    for some in _runs(rows):
        later_records -= sum(row.records for row in some)
        later_bytes -= sum(map(_bytes_of, some))
        # A cancellation has no records, and takes a sequence.
        yield sum(max(1, row.records) for row in some), 0, arguments(0, some, ())


def _runs(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each part."""
    some: list[Row] = []
    size = 0
    for row in rows:
        size += _bytes_of(row)
        if some and (len(some) == PART_RECORDS or size > PART_BYTES):
            yield some
            some, size = [], _bytes_of(row)
        some.append(row)
    if some:
        yield some


def _bytes_of(row: Row) -> int:
    assert not isinstance(row.payload, int)
    return len(row.payload)


def _sized(fields: Sequence[Arg], total: int, left: int) -> Iterator[Part]:
    """Yield records, bytes, and fields of each part of `total` records, which have `left` bytes."""
    size, done = left // total, 0
    for count, part in _cut(fields):
        done += count
        own = left if done == total else size * count
        left -= own
        yield count, own, part


def _is_large(call: Call[AppendReply]) -> bool:
    """Return whether a batch of layout `record`, or with scheduled records, exceeds a part."""
    count, arguments, size = count_of(call), len(call.args) - FIELDS_AT, size_of(call)
    if call.script is SCHEDULE_ADD:
        rows, fields = rows_of(call)
        ordinary = count - sum(max(1, row.records) for row in rows)
        # In layout `batch` the ordinary records are one entry.
        count, size = len(rows) + min(ordinary, len(fields)), size + sum(map(_bytes_of, rows))
    # In the other layouts a batch has fewer arguments than records, or is the only argument.
    elif call.script is not APPEND or arguments <= 2 * count:
        return False
    return count > 1 and (count > PART_RECORDS or arguments > PART_ARGUMENTS or size > PART_BYTES)


def _cut(fields: Sequence[Arg]) -> Iterator[tuple[int, list[Arg]]]:
    """Yield the number of records and the fields of each part."""
    width = fields[0]
    assert isinstance(width, int)
    names = list(fields[: 1 - width]) if width < 0 else []
    at, count, size, part = max(len(names), 0), 0, 0, list(names)
    while at < len(fields):
        long = -width if names else _length(fields[at])
        record = fields[at : at + long]
        weight = sum(len(word) for word in record if not isinstance(word, int))
        if count and (
            count == PART_RECORDS or len(part) + long > PART_ARGUMENTS or size + weight > PART_BYTES
        ):
            yield count, part
            count, size, part = 0, 0, list(names)
        part += record
        at, count, size = at + long, count + 1, size + weight
    yield count, part


def _length(fields: Arg) -> int:
    assert isinstance(fields, int)
    return fields + 1


class _PartReplies:
    """Collects the replies to the parts of a batch, and passes on one for the batch."""

    def __init__(self, waiter: ReplyWaiter[AppendReply], counts: Sequence[int]) -> None:
        self._waiter = waiter
        self._counts = counts
        self._replies: list[AppendReply] = []
        self._error: BaseException | None = None
        self._missing = len(counts)

    def done(self) -> bool:
        return False

    def set_result(self, reply: AppendReply) -> None:
        self._replies.append(reply)
        self._landed()

    def set_exception(self, error: BaseException) -> None:
        self._error = self._error or error
        self._landed()

    def _landed(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        if self._error is not None:
            fail(self._waiter, self._error)
        else:
            resolve(self._waiter, whole_reply(self._replies, self._counts))


def whole_reply(replies: Sequence[AppendReply], counts: Sequence[int]) -> AppendReply:
    """Return the reply to a batch whose parts have these replies and counts of records."""
    old = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    errors = [reply for reply in replies if reply.error]
    if errors:
        return min(errors, key=lambda reply: reply.error == old)
    first = expected = replies[0].base
    for reply, count in zip(replies, counts, strict=True):
        if reply.base != expected:
            first = -1
        expected += count
    return replace(replies[0], base=first, stored=max(reply.stored for reply in replies))
