"""Append a large batch of layout `record` in parts, so that no script holds Redis for long.

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
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from korvet.errors import ErrorCode
from korvet.scripts.call import Arg, Call
from korvet.scripts.log import AppendReply, count_of
from korvet.scripts.log.appending import (
    APPEND,
    BATCH_AT,
    FIELDS_AT,
    LATER_PART,
    PRODUCER_AT,
    SIZE_AT,
    STAMP_AT,
    size_of,
)
from korvet.store.async_store import AsyncStore
from korvet.store.reply_waiter import ReplyWaiter, fail, resolve

PART_RECORDS = 2000
"""Max records of a part: some 10 ms of Redis. All brokers have to use the same number."""
PART_ARGUMENTS = 20_000
"""Max names and values of a part, but for a single record."""
PART_BYTES = 4 << 20
"""Max bytes of a part, but for a single record."""
_SEQUENCE_AT = PRODUCER_AT + 2
_WRAP = 2**31


def send_append(
    store: AsyncStore, call: Call[AppendReply], waiter: ReplyWaiter[AppendReply]
) -> None:
    """Send a call of log.append, in parts if it is large, for the waiter."""
    if not _is_large(call):
        store.send(call, waiter)
        return
    parts = list(parts_of(call))
    replies = _PartReplies(waiter, [count_of(part) for part in parts])
    for part in parts:
        store.send(part, replies)


def parts_of(call: Call[AppendReply]) -> Iterator[Call[AppendReply]]:
    """Yield the calls that append the records of a call one after another."""
    head, fields = call.args[:FIELDS_AT], call.args[FIELDS_AT:]
    stamp, sequence = head[STAMP_AT], head[_SEQUENCE_AT]
    assert isinstance(stamp, int) and isinstance(sequence, int)
    done, total, left = 0, count_of(call), size_of(call)
    size = left // total
    for count, part in _cut(fields):
        args = [*head, *part]
        args[BATCH_AT] = count
        args[SIZE_AT] = left if done + count == total else size * count
        left -= size * count
        if done:
            args[STAMP_AT] = stamp + LATER_PART
        if sequence >= 0:
            args[_SEQUENCE_AT] = (sequence + done) % _WRAP
        yield Call(call.script, call.keys, args)
        done += count


def _is_large(call: Call[AppendReply]) -> bool:
    """Return whether a batch of layout `record` exceeds a part."""
    count, arguments = count_of(call), len(call.args) - FIELDS_AT
    # In the other layouts a batch has fewer arguments than records, or is the only argument.
    if call.script is not APPEND or count < 2 or arguments <= 2 * count:
        return False
    return count > PART_RECORDS or arguments > PART_ARGUMENTS or size_of(call) > PART_BYTES


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
