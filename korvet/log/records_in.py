"""The records of entries, whatever their layout."""

from collections.abc import Sequence

from korvet.log.entry import Entry
from korvet.log.layouts import layout_of
from korvet.topics.table import Topic
from korvet.wire.records import Record


def records_in(
    topic: Topic, entries: Sequence[Entry], aborted: Sequence[tuple[int, int]] = ()
) -> list[Record]:
    """Return the records of the entries at their own offsets, without markers.

    Leaves out the records of `aborted` transactions, as a committed read lists them.
    """
    layout = layout_of(topic)
    found: list[Record] = []
    dropped: set[int] = set()
    pending = sorted(aborted, key=lambda row: row[1], reverse=True)
    for entry in entries:
        while pending and pending[-1][1] <= entry.last:
            dropped.add(pending.pop()[0])
        producer_id, is_marker = layout.transaction_of(entry)
        if is_marker:
            dropped.discard(producer_id)
        elif producer_id not in dropped:
            found += layout.records_of(topic, entry)
    return found
