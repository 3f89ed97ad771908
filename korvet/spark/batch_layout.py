"""Entries of layout `batch`, as records by columns.

Rules
- The batches of a chunk are read together (batches.py), or, where they are not what that expects,
  by the compiled reader.
- A batch of which nothing but offsets and one time is wanted is not opened.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from korvet.log import byte_offsets
from korvet.log.entry import batch_of
from korvet.log.entry_id import split_id
from korvet.spark.aborted import Aborted, Undone
from korvet.spark.alike import Unlike
from korvet.spark.batches import Body, unpack
from korvet.spark.catalog import Log
from korvet.spark.parts import Part, joined, listed
from korvet.wire import compression, record_entries, records

_GROUP_BYTES = 4 << 20
"""Batches are joined up to so many bytes of records; one may have more by itself."""
_TIME = {"timestamp"}


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


class BatchLayout:
    """Reads entries of one partition into columns of one schema."""

    def __init__(self, log: Log, schema: Any, aborted: Sequence[Aborted]) -> None:
        self._log = log
        self._schema = schema
        self._names = set(schema.names)
        self._contents = self._names & {"key", "value", "headers", "timestamp"}
        self._undone = Undone(aborted)

    def parts(self, rows: Sequence[Any]) -> Iterator[Part]:
        """The records of these entries."""
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
        rows = byte_offsets.records_of(split_id(raw_id)[1] - count + 1, fields)
        stamped = record_entries.append_time_of(fields) is not None
        return listed(rows, self._names, shift=0, stamped=stamped) if rows else None

    def _batch(self, raw_id: bytes, fields: Sequence[bytes]) -> _Batch | None:
        """The batch of an entry; None for what has no records, or none that count."""
        batch, count = batch_of(fields)
        if batch is None:
            return None
        appended = record_entries.append_time_of(fields)
        milliseconds, sequence = split_id(raw_id)
        last = sequence
        if self._log.mode == "time":
            last = (milliseconds << self._log.bits) | sequence
        base = last - count + 1
        header = records.read_header(batch)
        attributes = header.attributes
        if attributes & records.CONTROL:
            return None
        if attributes & records.TRANSACTIONAL and self._undone.has(header.producer_id, base):
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
                body = bytes(compression.decompress(header.codec, body, records.MAX_SPAN))
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
        return part

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
        shift = each.base - each.header.base_offset
        return listed(records.records_of(each.batch), self._names, shift=shift, stamped=stamped)
