"""The records of entries, whatever their layout."""

from collections.abc import Iterator, Sequence
from functools import partial

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.log.layouts.base import BaseLayout
from korvet.log.opening import in_thread
from korvet.topics.table import Topic
from korvet.wire.records import Record


def with_records(
    layout: BaseLayout, entries: Sequence[Entry], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[Entry, bool]]:
    """Yield each entry, and whether it has records for a committed read.

    Markers and entries of the transactions in `aborted`, as the read lists them, have none.
    """
    aborted_ids: set[int] = set()
    begins = sorted(aborted, key=lambda row: row[1], reverse=True)
    for entry in entries:
        while begins and begins[-1][1] <= entry.last:
            aborted_ids.add(begins.pop()[0])
        producer_id, is_marker = layout.transaction_of(entry)
        if is_marker:
            aborted_ids.discard(producer_id)
        yield entry, not is_marker and producer_id not in aborted_ids


async def read_records(
    topic: Topic, entries: Sequence[Entry], aborted: Sequence[tuple[int, int]] = ()
) -> list[Record]:
    """Return `records_in`; the thread opens batches."""
    work = partial(records_in, topic, entries, aborted)
    return await in_thread(work) if layout_of(topic).holds_batches else work()


def records_in(
    topic: Topic, entries: Sequence[Entry], aborted: Sequence[tuple[int, int]] = ()
) -> list[Record]:
    """Return the records of the entries at their own offsets, without markers.

    Leaves out the records of `aborted` transactions, as a committed read lists them.
    """
    layout = layout_of(topic)
    found: list[Record] = []
    for entry, has_records in with_records(layout, entries, aborted):
        if has_records:
            found += layout.records_of(topic, entry)
    return found
