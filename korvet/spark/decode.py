"""Entries to Arrow: what XRANGE answered becomes a record batch with the columns asked for.

Rules
- Layout `batch`: the batches of a chunk are read together (batches.py), or, where they are not what
  that expects, by the compiled reader.
- Layout `record`: entries with the same fields are columns already (replies.py); where there are
  too many kinds, or marks of transactions, entries are read one by one.
- Only the columns asked for are built.
- Transaction markers are no records. A committed read also leaves out what a transaction wrote
  that was aborted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from korvet import byte_topics
from korvet.offsets import DENSE_MS, split_id
from korvet.reading import batch_of
from korvet.spark import arrays
from korvet.spark.alike import Alike, Unlike
from korvet.spark.batches import Body, unpack
from korvet.spark.catalog import Range
from korvet.spark.columns import APPEND_TIME, CREATE_TIME
from korvet.spark.parts import Part, joined
from korvet.spark.replies import Reply
from korvet.wire import codecs, entries, markers, records
from korvet.wire.records import Record

_VALUE_CODECS = {f"value.{name}".encode(): number for number, name in enumerate(codecs.NAMES)}
_PLAIN = {b"key", b"value", b"timestamp", b"append.time", b"transaction"}
_HEADERS = (b"header.", b"null.header.")
_TO_MICROS = 1000
_GROUP_BYTES = 4 << 20
"""Batches are joined up to so many bytes of records; one may have more by itself."""
_TIME = {"timestamp"}
NUMBERED = frozenset({"topic", "partition", "offset"})
"""Columns that an offset alone says."""
NUMBERED_ROWS = 1 << 16


class Aborted(msgspec.Struct, frozen=True):
    """A producer's transaction that never happened: its records from `first` to the marker."""

    producer_id: int
    first: int
    marker: int


class _Batch(NamedTuple):
    """A batch whose records are wanted."""

    batch: bytes
    header: records.BatchHeader
    base: int
    kind: tuple[bool, bool]
    """Whether the log's clock stamped it, and whether nothing but offsets has to be known."""
    moment: int
    """When it was appended, if stamped."""
    body: Any
    """Its records, decompressed."""


class Decoder:
    """Decodes the entries of one range into record batches of one schema."""

    def __init__(self, wanted: Range, schema: Any, aborted: Sequence[Aborted] = ()) -> None:
        self._log = wanted.log
        self._aborted = aborted
        self._start, self._end = wanted.start, wanted.end
        self._schema = schema
        self._names = set(schema.names)
        self._contents = self._names & {"key", "value", "headers", "timestamp"}

    def decode(self, reply: Reply) -> Iterator[Any]:
        """The records of these entries that lie in the range, as record batches."""
        parts = self._batches(reply.rows) if self._log.is_batch else self._entries(reply)
        for part in parts:
            if len(part.offsets):
                yield self._assemble(part)

    def numbered(self, known: Range) -> Iterator[Any]:
        """Record batches of a range that has a record at every offset, of NUMBERED columns."""
        for start in range(known.start, known.end, NUMBERED_ROWS):
            offsets = np.arange(start, min(start + NUMBERED_ROWS, known.end), dtype=np.int64)
            yield self._assemble(Part(offsets, None, False))

    # Layout `batch`.

    def _batches(self, rows: Sequence[Any]) -> Iterator[Part]:
        if self._log.mode == "bytes":
            for row in rows:
                if (part := self._positions(row[0], row[1])) is not None:
                    yield part
            return
        group: list[_Batch] = []
        held = 0
        for row in rows:
            each = self._batch(row[0], row[1])
            if each is None:
                continue
            if group and (each.kind != group[0].kind or held > _GROUP_BYTES):
                yield self._unpacked(group)
                group, held = [], 0
            group.append(each)
            held += len(each.body)
        if group:
            yield self._unpacked(group)

    def _positions(self, raw_id: bytes, fields: Sequence[bytes]) -> Part | None:
        """The records of an entry whose offsets are byte positions."""
        batch, count = batch_of(fields)
        if batch is None:
            return None
        rows = byte_topics.records_of(split_id(raw_id)[1] - count + 1, fields)
        stamped = entries.append_time_of(fields) is not None
        return self._within(self._listed(rows, 0, stamped)) if rows else None

    def _batch(self, raw_id: bytes, fields: Sequence[bytes]) -> _Batch | None:
        """The batch of an entry; None for what has no records, or none that count."""
        batch, count = batch_of(fields)
        if batch is None:
            return None
        appended = entries.append_time_of(fields)
        milliseconds, sequence = split_id(raw_id)
        last = sequence
        if self._log.mode == "time":
            last = (milliseconds << self._log.bits) | sequence
        base = last - count + 1
        header = records.read_header(batch)
        attributes = header.attributes
        if attributes & records.CONTROL:
            return None
        if attributes & records.TRANSACTIONAL and self._is_aborted(header.producer_id, base):
            return None
        stamped = appended is not None or bool(attributes & records.LOG_APPEND_TIME)
        moment = header.max_timestamp if appended is None else appended
        # A compacted batch holds fewer records than it takes offsets.
        bare = header.records == count and (
            not self._contents or (stamped and self._contents == _TIME)
        )
        body: Any = b""
        if not bare:
            body = memoryview(batch)[records.HEADER_SIZE :]
            if header.codec:
                body = bytes(codecs.decompress(header.codec, body, records.MAX_SPAN))
        return _Batch(batch, header, base, (stamped, bare), moment, body)

    def _unpacked(self, group: Sequence[_Batch]) -> Part:
        """The records of batches of one kind."""
        stamped, bare = group[0].kind
        counts = [each.header.records for each in group]
        if bare:
            spans = [
                np.arange(each.base, each.base + n) for each, n in zip(group, counts, strict=True)
            ]
            part = Part(np.concatenate(spans), np.zeros(sum(counts), dtype=np.int64), stamped)
        else:
            part = self._columns_of(group, stamped)
        if stamped:
            part.times = np.repeat([each.moment for each in group], counts)
        return self._within(part)

    def _columns_of(self, group: Sequence[_Batch], stamped: bool) -> Part:
        bodies = [
            Body(each.body, each.header.records, each.base, each.header.first_timestamp)
            for each in group
        ]
        type_ = self._schema.field("headers").type if "headers" in self._names else None
        try:
            found = unpack(bodies, self._contents, type_)
        except Unlike:
            return joined([self._one_by_one(each, stamped) for each in group])
        return Part(found.offsets, found.times, stamped, found.keys, found.values, found.headers)

    def _one_by_one(self, each: _Batch, stamped: bool) -> Part:
        return self._listed(
            records.records_of(each.batch), each.base - each.header.base_offset, stamped
        )

    def _listed(self, rows: Sequence[Record], shift: int, stamped: bool) -> Part:
        offsets, times, keys, values, headers = zip(*rows, strict=True)
        part = Part(
            np.array(offsets, dtype=np.int64) + shift, np.array(times, dtype=np.int64), stamped
        )
        if "key" in self._names:
            part.keys = pa.array(keys, pa.binary())
        if "value" in self._names:
            part.values = pa.array(values, pa.binary())
        if "headers" in self._names:
            part.headers = [_pairs(each) for each in headers]
        return part

    # Layout `record`.

    def _entries(self, reply: Reply) -> Iterator[Part]:
        part = self._together(reply.kinds)
        if part is not None:
            yield self._within(part)
            return
        by_stamp: list[list[Any]] = []
        for row in reply.rows:
            stamped = bool(row[1]) and row[1][0] == b"append.time"
            if not by_stamp or by_stamp[-1][0] != stamped:
                by_stamp.append([stamped, []])
            by_stamp[-1][1].append(row)
        for stamped, group in by_stamp:
            yield self._within(self._singly(group, stamped))

    def _together(self, kinds: Sequence[Alike] | None) -> Part | None:
        """The part that all of them are, if each is one of columns."""
        if not kinds or not all(map(self._is_plain, kinds)):
            return None
        if len({b"append.time" in kind.columns for kind in kinds}) > 1:
            return None
        try:
            parts = [self._columns(kind) for kind in kinds]
        except Unlike:
            return None
        if len(parts) == 1:
            return parts[0]
        return joined(parts).in_order()

    def _is_plain(self, found: Alike) -> bool:
        """Whether the entries have the fields of records and nothing else that matters here."""
        names = found.columns.keys()
        known = all(
            name in _PLAIN or name in _VALUE_CODECS or name.startswith(_HEADERS) for name in names
        )
        return known and not (self._aborted and b"transaction" in names)

    def _columns(self, found: Alike) -> Part:
        """Their records; Unlike where an entry has no offset of its own, or no time."""
        stamped = b"append.time" in found.columns
        clock = found.columns.get(b"append.time" if stamped else b"timestamp")
        milliseconds, offsets = self._offsets(*found.ids())
        times = milliseconds if clock is None else found.numbers(clock)
        part = Part(offsets, times, stamped)
        if "key" in self._names:
            part.keys = _column(found, b"key")
        if "value" in self._names:
            part.values = _value_column(found)
        if "headers" in self._names:
            part.headers = _headers_column(found, self._schema.field("headers").type)
        return part

    def _offsets(self, milliseconds: Any, sequence: Any) -> tuple[Any, Any]:
        """Milliseconds and offsets; Unlike where an entry has no offset of its own."""
        if self._log.mode != "time":
            if milliseconds[0] != DENSE_MS or milliseconds[-1] != DENSE_MS:
                raise Unlike
            return milliseconds, sequence
        if sequence.max() >= 1 << self._log.bits:
            raise Unlike
        return milliseconds, (milliseconds << self._log.bits) | sequence

    def _singly(self, rows: Sequence[Any], stamped: bool) -> Part:
        found = []
        for raw_id, fields in rows:
            if markers.is_marker(fields):
                continue
            milliseconds, sequence = split_id(raw_id)
            if self._log.mode == "time":
                if sequence >= 1 << self._log.bits:
                    continue
                offset = (milliseconds << self._log.bits) | sequence
            elif milliseconds != DENSE_MS:
                continue
            else:
                offset = sequence
            producer_id = markers.producer_of(fields)
            if producer_id is not None and self._is_aborted(producer_id, offset):
                continue
            record = entries.record_of(offset, milliseconds, fields)
            if stamped:
                record = (offset, entries.append_time_of(fields) or 0, *record[2:])
            found.append(record)
        if not found:
            return Part(np.empty(0, np.int64), np.empty(0, np.int64), stamped)
        return self._listed(found, 0, stamped)

    # Both.

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        return any(
            each.producer_id == producer_id and each.first <= offset < each.marker
            for each in self._aborted
        )

    def _within(self, part: Part) -> Part:
        """The records of the part that lie in the range."""
        return part.between(self._start, self._end)

    def _assemble(self, part: Part) -> Any:
        count = len(part.offsets)
        build: dict[str, Callable[[Any], Any]] = {
            "key": lambda _: part.keys,
            "value": lambda _: part.values,
            "topic": lambda _: arrays.same_text(self._log.topic, count),
            "partition": lambda type_: arrays.same(self._log.partition, count, type_),
            "offset": lambda type_: arrays.of(part.offsets, type_),
            "timestamp": lambda type_: arrays.of(part.times * _TO_MICROS, type_),
            "timestampType": lambda type_: arrays.same(
                APPEND_TIME if part.stamped else CREATE_TIME, count, type_
            ),
            "headers": lambda type_: (
                part.headers
                if isinstance(part.headers, pa.Array)
                else pa.array(part.headers, type_)
            ),
        }
        columns = [build[field.name](field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _pairs(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    """Headers as Spark's Kafka source has them: null where there is none."""
    return [{"key": name, "value": value} for name, value in headers] or None


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
            values = [entries.record_of(0, 0, (name, each))[3] or b"" for each in packed]
            return pa.array(values, pa.binary())
    return _column(found, b"value")
