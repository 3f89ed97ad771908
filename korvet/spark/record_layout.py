"""Entries of layout `record`, as records by columns.

Rules
- Entries with the same fields are columns already (replies.py). Where there are too many kinds, or
  contents that are not what their names say, entries are read one by one.
- Markers of transactions are entries of a kind of their own, which is passed over.
- The id of an entry without a timestamp tells when it came. Dense ones tell nothing: it is the
  moment of reading then.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from korvet.log.entry_id import DENSE_MS, split_id
from korvet.spark import arrays
from korvet.spark.aborted import Aborted, Undone
from korvet.spark.alike import Alike, Unlike
from korvet.spark.catalog import Log
from korvet.spark.parts import Part, joined, listed
from korvet.spark.replies import Reply
from korvet.wire import compression, control_records, record_entries

_VALUE_CODECS = {f"value.{name}".encode(): number for number, name in enumerate(compression.NAMES)}
_STAMP, _TRANSACTION = b"append.time", b"transaction"
_PLAIN = {b"key", b"value", b"timestamp", _STAMP, _TRANSACTION}
_HEADERS = (b"header.", b"null.header.")
_TO_MICROS = 1000


class RecordLayout:
    """Reads entries of one partition into columns of one schema."""

    def __init__(self, log: Log, schema: Any, aborted: Sequence[Aborted]) -> None:
        self._log = log
        self._schema = schema
        self._names = set(schema.names)
        self._undone = Undone(aborted)
        self._met_ms = int(time.time() * 1000)

    def parts(self, reply: Reply) -> Iterator[Part]:
        """The records of these entries."""
        part = self._together(reply.kinds)
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
            yield self._singly(group, stamped)

    def _together(self, kinds: Sequence[Alike] | None) -> Part | None:
        """The part that all of them are, if each is one of columns."""
        kinds = [kind for kind in kinds or () if not _is_marker(kind)]
        if not kinds or not all(map(_is_plain, kinds)):
            return None
        if len({_STAMP in kind.columns for kind in kinds}) > 1:
            return None
        try:
            parts = [self._columns(kind) for kind in kinds]
        except Unlike:
            return None
        if len(parts) == 1:
            return parts[0]
        return joined(parts).in_order()

    def _columns(self, found: Alike) -> Part:
        """Their records; Unlike where an entry has no offset of its own, or no time."""
        stamped = _STAMP in found.columns
        clock = found.columns.get(_STAMP if stamped else b"timestamp")
        milliseconds, offsets = self._offsets(*found.ids())
        times = milliseconds if clock is None else found.numbers(clock)
        part = Part(offsets, times, stamped)
        if "key" in self._names:
            part.keys = _column(found, b"key")
        if "value" in self._names:
            part.values = _value_column(found)
        if "headers" in self._names:
            part.headers = _headers_column(found, self._schema.field("headers").type)
        return self._committed(part, found) if self._undone else part

    def _committed(self, part: Part, found: Alike) -> Part:
        """The records but for those of aborted transactions."""
        if _first_names(found)[:1] != [_TRANSACTION]:
            return part
        producers = found.numbers(found.columns[_TRANSACTION])
        lost = self._undone.have(producers, part.offsets)
        return part.where(~lost) if lost.any() else part

    def _offsets(self, milliseconds: Any, sequence: Any) -> tuple[Any, Any]:
        """When each came and its offset; Unlike where an entry has no offset of its own."""
        if self._log.mode != "time":
            if milliseconds[0] != DENSE_MS or milliseconds[-1] != DENSE_MS:
                raise Unlike
            return np.full(len(sequence), self._met_ms), sequence
        if sequence.max() >= 1 << self._log.bits:
            raise Unlike
        return milliseconds, (milliseconds << self._log.bits) | sequence

    def _singly(self, rows: Sequence[Any], stamped: bool) -> Part:
        found = []
        for raw_id, fields in rows:
            if control_records.is_marker(fields):
                continue
            milliseconds, sequence = split_id(raw_id)
            if self._log.mode == "time":
                if sequence >= 1 << self._log.bits:
                    continue
                offset = (milliseconds << self._log.bits) | sequence
            elif milliseconds != DENSE_MS:
                continue
            else:
                milliseconds, offset = self._met_ms, sequence
            producer_id = control_records.producer_of(fields)
            if producer_id is not None and self._undone.has(producer_id, offset):
                continue
            found.append(record_entries.record_of(offset, milliseconds, fields))
        if not found:
            return Part(np.empty(0, np.int64), np.empty(0, np.int64), stamped)
        return listed(found, self._names, shift=0, stamped=stamped)


def _first_names(found: Alike) -> list[bytes]:
    """The names of the fields, but for the one that says when an entry was appended."""
    names = list(found.columns)
    return names[1:] if names[:1] == [_STAMP] else names


def _is_marker(found: Alike) -> bool:
    """Whether the entries are markers, as markers.is_marker tells of one."""
    names = _first_names(found)
    return len(names) > 2 and names[:2] == [b"control", _TRANSACTION]


def _is_plain(found: Alike) -> bool:
    """Whether the entries have the fields of records and nothing else."""
    return all(
        name in _PLAIN or name in _VALUE_CODECS or name.startswith(_HEADERS)
        for name in found.columns
    )


def _column(found: Alike, name: bytes) -> Any:
    spans = found.columns.get(name)
    return pa.nulls(found.count, pa.binary()) if spans is None else found.binary(spans)


def _headers_column(found: Alike, type_: Any) -> Any:
    """Headers of the same names in every entry, as Spark's Kafka source has them."""
    fields = [name for name in found.columns if name.startswith(_HEADERS)]
    count, width = found.count, len(fields)
    if not fields:
        return pa.nulls(count, type_)
    names = pa.array([each.split(b"header.", 1)[1].decode("utf-8", "replace") for each in fields])
    values = [
        pa.nulls(count, pa.binary())
        if each.startswith(b"null.")
        else found.binary(found.columns[each])
        for each in fields
    ]
    # One column behind another becomes one record behind another.
    order = np.add.outer(np.arange(count), count * np.arange(width)).ravel()
    pairs = pa.StructArray.from_arrays(
        [
            names.take(arrays.of(np.tile(np.arange(width), count))),
            pa.concat_arrays(values).take(arrays.of(order)),
        ],
        fields=list(type_.value_type),
    )
    edges = arrays.of(np.arange(0, count * width + 1, width, dtype=np.int32), pa.int32())
    return pa.ListArray.from_arrays(edges, pairs, type=type_)


def _value_column(found: Alike) -> Any:
    for name, spans in found.columns.items():
        if name in _VALUE_CODECS:
            packed = found.binary(spans).to_pylist()
            values = [record_entries.record_of(0, 0, (name, each))[3] or b"" for each in packed]
            return pa.array(values, pa.binary())
    return _column(found, b"value")
