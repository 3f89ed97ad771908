"""Parse the rows of an XRANGE reply into entries that fit a read."""

from collections.abc import Sequence
from time import time
from typing import Any

from korvet.log.entry_id import LAST, split_id
from korvet.log.layouts import layout_of
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.wire.records import MAX_SPAN

MAX_RECORD_BYTES = 64 << 20
"""Bytes of a foreign entry above which it is skipped, or max.message.bytes if that is more: the
default limits of clients are near 100 MB."""


def take_rows(
    rows: Sequence[Any], offset: int, request: ReadRequest, result: ReadResult, cache: ReadCache
) -> bool:
    """Add the entries that fit to the result. Returns whether one did not.

    Foreign entries without an offset or records are counted and left out, and so are records that
    no client takes. A large record below that bound is sent as the only one, whatever the client
    asks for. Entries of layout `record` above the log end wait until they are numbered.
    """
    topic, partition, entries = request.topic, request.partition, result.entries
    layout, policy = layout_of(topic), topic.policy
    parse, is_time, bits = layout.parse_entry, policy.offset_mode == "time", policy.offset_bits
    places = cache.offset_map(topic, partition)
    is_plain = is_time and places.is_natural
    end = LAST if layout.holds_batches else result.end
    has_tail = layout.has_tail and not request.raw
    max_bytes = max(MAX_RECORD_BYTES, policy.max_message_bytes)
    had, now_ms, full = len(entries), int(time() * 1000), False
    for raw_id, fields in rows:
        milliseconds, sequence = split_id(raw_id)
        last: int | None
        if is_plain and sequence < 1 << bits:
            last = (milliseconds << bits) | sequence
        else:
            last = places.offset(milliseconds, sequence)
        if last is not None and last >= end:
            full = True
            break
        if not is_time or milliseconds >= LAST:
            milliseconds = now_ms
        entry = None if last is None else parse(last, milliseconds, fields, request.decompress)
        if entry is None or last is None:
            cache.skip(topic, partition, raw_id)
            continue
        if entry.size > max_bytes:
            cache.skip(topic, partition, raw_id, entry.size)
            continue
        if has_tail and layout.last_record(entry) < offset:
            continue
        if entries and (
            result.size + entry.size > request.max_bytes or last - entries[0].first > MAX_SPAN
        ):
            full = True
            break
        entries.append(entry)
        result.size += entry.size
    if entries:
        result.end = max(result.end, entries[-1].last + 1)
        cache.learn_entries(topic, partition, offset, entries[had:], result.end)
    return full
