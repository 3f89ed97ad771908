"""Layouts: the ways in which a topic's entries hold records, one strategy object each.

    record   one stream entry per record
    batch    one stream entry per record batch
    bytes    offset.mode=bytes: one stream entry per record batch or Kafka 0.7 message set;
             an offset is a byte position

Rules
- `layout_of` is the only place that asks for a topic's storage.format and offset.mode.
- A layout makes log.append's arguments of what `korvet/log/validator.py` has accepted: it does not
  check again.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias

from korvet.log.entry import Entry
from korvet.log.layouts.base import BaseLayout
from korvet.log.layouts.batch import BatchLayout
from korvet.log.layouts.bytes import BytesLayout
from korvet.log.layouts.record import RecordLayout
from korvet.log.opening import in_thread
from korvet.topics.table import Topic
from korvet.wire.records import Record

Layout: TypeAlias = RecordLayout | BatchLayout
RECORD, BATCH, BYTES = RecordLayout(), BatchLayout(), BytesLayout()


def layout_of(topic: Topic) -> Layout:
    """Return the layout that the topic was created with."""
    policy = topic.policy
    if policy.offset_mode == "bytes":
        return BYTES
    return BATCH if policy.storage_format == "batch" else RECORD


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


async def read_records(topic: Topic, entries: Sequence[Entry]) -> list[Record]:
    """Return `records_in`; the thread opens batches."""
    work = partial(records_in, topic, entries)
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
