"""The mirror of lua/schedule: records that wait outside the log until they are due."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script
from korvet.scripts.log.appending import FAR, AppendReply

Kind = Literal["at", "in", "cancel"]


class Row(NamedTuple):
    """Records of a produced batch that wait for one due time, or a cancellation.

    `ms` is the due time, or for the kind `in` the delay; an empty `id` is none. `size` is what they
    add to the log's size, `payload` is that of lib.schedule.
    """

    kind: Kind
    ms: int
    id: bytes
    records: int
    size: int
    max_timestamp: int
    payload: Arg


class AppendDueReply(Reply):
    """`records` were appended, the first of them `late_ms` after its due time; -1 for none.

    The next one is due in `wait_ms`; -1 if none waits.
    """

    error: int
    records: int
    late_ms: int
    wait_ms: int


class ListReply(Reply):
    """`records` wait, whose rows have `size` bytes.

    `rows` has for each row its number, due time, schedule id, records and bytes; `delayed` of them
    have a delay.
    """

    error: int
    records: int
    size: int
    overdue_ms: int
    delayed: int
    rows: list[int | bytes]


class CancelReply(Reply):
    """`cancelled` records were removed."""

    error: int
    cancelled: int


ADD = Script("schedule.add", AppendReply)
APPEND_DUE = Script("schedule.append_due", AppendDueReply)
LIST = Script("schedule.list", ListReply)
CANCEL = Script("schedule.cancel", CancelReply)
ORDINARY_AT = 12
"""The index of `ordinary`; the arguments before it describe the batch and the limits."""


def add(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    stamp: int = 0,
    count: int,
    size: int = 0,
    max_timestamp: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transaction: int = -1,
    max_count: int,
    max_bytes: int,
    channel: str,
    ordinary: int = 0,
    rows: int,
    later_records: int = 0,
    later_bytes: int = 0,
    rest: Sequence[Arg],
) -> Call[AppendReply]:
    """Store rows, and append the `ordinary` records of the batch.

    The first arguments are those of log.append. `rest` has the arguments of all rows, then the
    fields of the ordinary records.
    """
    k = keys.partition(topic, partition)
    batch = (count, size, min(max_timestamp, FAR))
    producer = (producer_id, producer_epoch, base_sequence, transaction)
    limits = (max_count, max_bytes, channel, ordinary, rows, later_records, later_bytes)
    return Call(
        ADD,
        (*k.appends, k.scheduled, k.scheduled_records, k.scheduled_ids),
        (topic_id, stamp, *batch, *producer, *limits, *rest),
    )


def rows_of(call: Call[AppendReply]) -> tuple[list[Row], Sequence[Arg]]:
    """Return the rows of a call of schedule.add, and the fields of its ordinary records."""
    count, rest, width = call.args[ORDINARY_AT + 1], call.args[ORDINARY_AT + 4 :], len(Row._fields)
    assert isinstance(count, int)
    ends = width * count
    return [Row(*rest[at : at + width]) for at in range(0, ends, width)], rest[ends:]  # type: ignore[arg-type]


def append_due(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    stamp: int = 0,
    max_rows: int,
    max_bytes: int,
) -> Call[AppendDueReply]:
    """Append the records that are due, at most so many rows and bytes of them."""
    k = keys.partition(topic, partition)
    return Call(
        APPEND_DUE,
        (*k.appends, k.scheduled, k.scheduled_records, k.scheduled_ids),
        (topic_id, stamp, max_rows, max_bytes),
    )


def list_scheduled(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    timed: int = 0,
    delayed: int = 0,
    most: int,
) -> Call[ListReply]:
    """List scheduled records after so many with a time and a delay; with most=0 only totals."""
    k = keys.partition(topic, partition)
    return Call(LIST, (k.log, k.scheduled, k.scheduled_records), (topic_id, timed, delayed, most))


def cancel(
    keys: Keys, topic: str, partition: int, *, topic_id: str, id: bytes = b"", number: int = -1
) -> Call[CancelReply]:
    """Remove the scheduled record of that id, or of that number."""
    k = keys.partition(topic, partition)
    return Call(
        CANCEL, (k.log, k.scheduled, k.scheduled_records, k.scheduled_ids), (topic_id, id, number)
    )
