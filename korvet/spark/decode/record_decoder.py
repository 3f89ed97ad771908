"""Decode entries of layout `record` into columns.

Rules
- Use columns of entries with the same fields (`xrange_reply`). If there are too many groups, or
  values do not fit their fields, decode entries one by one.
- Transaction markers form a separate group, which is left out.
- An entry without a timestamp gets the time in its id, or in dense mode the time of reading.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from korvet.log.entry import DENSE_MS, LAST, NATURAL_END, OffsetMap, split_id
from korvet.spark import arrow
from korvet.spark.decode.layout_decoder import (
    TAIL_ENTRIES,
    ColumnBatch,
    LayoutDecoder,
    batch_from_records,
    concat_batches,
)
from korvet.spark.decode.uniform_entries import NotUniform, UniformEntries
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import PartitionLog
from korvet.wire import compression, control_records, record_entries
from korvet.wire.segments import AbortedRow

_VALUE_CODECS = {f"value.{name}".encode(): number for number, name in enumerate(compression.NAMES)}
_STAMP, _TRANSACTION = b"append.time", b"transaction"
_RECORD_FIELDS = {b"key", b"value", b"timestamp", _STAMP, _TRANSACTION}
_HEADERS = (b"header.", b"null.header.")
_TO_MICROS = 1000


class RecordDecoder(LayoutDecoder):
    """Decodes layout `record`, and foreign entries."""

    chunk_bytes = 1 << 20
    tail_entries = TAIL_ENTRIES
    holds_batches = False

    def __init__(self, log: PartitionLog, schema: Any, aborted: Sequence[AbortedRow]) -> None:
        super().__init__(log, schema, aborted)
        self._met_ms = int(time.time() * 1000)

    @staticmethod
    def parse_reply(raw: memoryview) -> XRangeReply:
        return XRangeReply(raw)

    def parts(self, reply: XRangeReply) -> Iterator[ColumnBatch]:
        places = self.places_of(reply)
        part = self._merge_groups(reply.groups) if places.is_natural else None
        if part is not None:
            yield part
            return
        by_stamp: list[list[Any]] = []
        for row in reply.rows:
            stamped = bool(row[1]) and row[1][0] == _STAMP
            if not by_stamp or by_stamp[-1][0] != stamped:
                by_stamp.append([stamped, []])
            by_stamp[-1][1].append(row)
        for stamped, group in by_stamp:
            yield self._decode_singly(group, stamped, places)

    def _merge_groups(self, kinds: Sequence[UniformEntries] | None) -> ColumnBatch | None:
        """Return all groups as one sorted batch, or None if a group needs single decoding."""
        kinds = [kind for kind in kinds or () if not _is_marker(kind)]
        if not kinds or not all(map(_is_plain, kinds)):
            return None
        if len({_STAMP in kind.columns for kind in kinds}) > 1:
            return None
        try:
            parts = [self._columns(kind) for kind in kinds]
        except NotUniform:
            return None
        if len(parts) == 1:
            return parts[0]
        return concat_batches(parts).sorted_by_offset()

    def _columns(self, entries: UniformEntries) -> ColumnBatch:
        """Return a group's records; raise NotUniform if an entry has no offset or time."""
        stamped = _STAMP in entries.columns
        clock = entries.columns.get(_STAMP if stamped else b"timestamp")
        milliseconds, offsets = self._offsets(*entries.ids())
        times = milliseconds if clock is None else entries.numbers(clock)
        part = ColumnBatch(offsets, times, stamped)
        if "key" in self._names:
            part.keys = _column(entries, b"key")
        if "value" in self._names:
            part.values = _value_column(entries)
        if "headers" in self._names:
            part.headers = _headers_column(entries, self._schema.field("headers").type)
        return self._committed(part, entries) if self._aborted else part

    def _committed(self, part: ColumnBatch, entries: UniformEntries) -> ColumnBatch:
        """Return the batch without records of aborted transactions."""
        if _first_names(entries)[:1] != [_TRANSACTION]:
            return part
        producers = entries.numbers(entries.columns[_TRANSACTION])
        lost = self._aborted.contain_each(producers, part.offsets)
        return part.where(~lost) if lost.any() else part

    def _offsets(self, milliseconds: Any, sequence: Any) -> tuple[Any, Any]:
        """Return time and offset of each entry; raise NotUniform if an id has no offset."""
        if self._log.mode != "time":
            if milliseconds[0] != DENSE_MS or milliseconds[-1] != DENSE_MS:
                raise NotUniform
            return np.full(len(sequence), self._met_ms), sequence
        bits = self._log.bits
        if sequence.max() >= 1 << bits or milliseconds[-1] >= NATURAL_END >> bits:
            raise NotUniform
        return milliseconds, (milliseconds << self._log.bits) | sequence

    def _decode_singly(self, rows: Sequence[Any], stamped: bool, places: OffsetMap) -> ColumnBatch:
        found = []
        for raw_id, fields in rows:
            if control_records.is_marker(fields):
                continue
            milliseconds, sequence = split_id(raw_id)
            offset = places.offset(milliseconds, sequence)
            if offset is None:
                continue
            if self._log.mode != "time" or milliseconds >= LAST:
                milliseconds = self._met_ms
            producer_id = control_records.producer_of(fields)
            if producer_id is not None and self._aborted.contains(producer_id, offset):
                continue
            found.append(record_entries.record_of(offset, milliseconds, fields))
        if not found:
            return ColumnBatch(np.empty(0, np.int64), np.empty(0, np.int64), stamped)
        return batch_from_records(found, self._names, shift=0, stamped=stamped)


def _first_names(entries: UniformEntries) -> list[bytes]:
    """Return the field names without `append.time`."""
    names = list(entries.columns)
    return names[1:] if names[:1] == [_STAMP] else names


def _is_marker(entries: UniformEntries) -> bool:
    """Return whether the entries are transaction markers (see control_records.is_marker)."""
    names = _first_names(entries)
    return len(names) > 2 and names[:2] == [b"control", _TRANSACTION]


def _is_plain(entries: UniformEntries) -> bool:
    """Return whether the entries have only fields of records."""
    return all(
        name in _RECORD_FIELDS or name in _VALUE_CODECS or name.startswith(_HEADERS)
        for name in entries.columns
    )


def _column(entries: UniformEntries, name: bytes) -> Any:
    spans = entries.columns.get(name)
    return pa.nulls(entries.count, pa.binary()) if spans is None else entries.binary(spans)


def _headers_column(entries: UniformEntries, type_: Any) -> Any:
    """Return headers of entries with the same header names, like Spark's Kafka source."""
    fields = [name for name in entries.columns if name.startswith(_HEADERS)]
    count, width = entries.count, len(fields)
    if not fields:
        return pa.nulls(count, type_)
    names = pa.array([each.split(b"header.", 1)[1].decode("utf-8", "replace") for each in fields])
    values = [
        pa.nulls(count, pa.binary())
        if each.startswith(b"null.")
        else entries.binary(entries.columns[each])
        for each in fields
    ]
    # Reorder from column by column to record by record.
    order = np.add.outer(np.arange(count), count * np.arange(width)).ravel()
    pairs = pa.StructArray.from_arrays(
        [
            names.take(arrow.to_arrow(np.tile(np.arange(width), count))),
            pa.concat_arrays(values).take(arrow.to_arrow(order)),
        ],
        fields=list(type_.value_type),
    )
    edges = arrow.to_arrow(np.arange(0, count * width + 1, width, dtype=np.int32), pa.int32())
    return pa.ListArray.from_arrays(edges, pairs, type=type_)


def _value_column(entries: UniformEntries) -> Any:
    for name, spans in entries.columns.items():
        if name in _VALUE_CODECS:
            packed = entries.binary(spans).to_pylist()
            values = [record_entries.record_of(0, 0, (name, each))[3] or b"" for each in packed]
            return pa.array(values, pa.binary())
    return _column(entries, b"value")
