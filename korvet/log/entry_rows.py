"""Parse the rows of an XRANGE reply into entries that fit a read."""

from collections.abc import Sequence
from time import time
from typing import Any

from korvet.log.entry_id import DENSE_MS, split_id
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

    Foreign entries without records are counted and left out, and so are records that no client
    takes. A large record below that bound is sent as the only one, whatever the client asks for.
    """
    topic, partition, entries = request.topic, request.partition, result.entries
    layout, policy = layout_of(topic), topic.policy
    parse, is_time, bits = layout.parse_entry, policy.offset_mode == "time", policy.offset_bits
    has_tail = layout.has_tail and not request.raw
    most = max(MAX_RECORD_BYTES, policy.max_message_bytes)
    had, now_ms, full = len(entries), int(time() * 1000), False
    for raw_id, fields in rows:
        milliseconds, sequence = split_id(raw_id)
        if is_time:
            last = (milliseconds << bits) | sequence
            has_offset = sequence < 1 << bits
        else:
            last, has_offset = sequence, milliseconds == DENSE_MS
            milliseconds = now_ms
        entry = parse(last, milliseconds, fields, request.decompress) if has_offset else None
        if entry is None:
            cache.skip(topic, partition, raw_id)
            continue
        if entry.size > most:
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
