"""Decode entries of layout `batch` into columns.

Rules
- Decode the batches of a chunk together (`batch_records`). If they have an unexpected shape, decode
  them one by one with the compiled reader.
- Do not decompress a batch if only offsets and one append time are requested.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from korvet.log.entry import OffsetMap, split_id
from korvet.log.layouts import bytes as bytes_layout
from korvet.log.layouts.batch import batch_of
from korvet.spark.decode.batch_records import BatchBody, decode_records
from korvet.spark.decode.layout_decoder import (
    MAX_ENTRIES,
    ColumnBatch,
    LayoutDecoder,
    batch_from_records,
    concat_batches,
)
from korvet.spark.decode.uniform_entries import NotUniform
from korvet.spark.decode.xrange_reply import XRangeReply
from korvet.spark.partitions import PartitionLog
from korvet.store.raw_reply import parsed
from korvet.wire import compression, record_entries, records
from korvet.wire.segments import AbortedRow

_GROUP_BYTES = 4 << 20
"""Max bytes of records to decode together; a single batch may exceed it."""
_TIME = {"timestamp"}


class _StoredBatch(NamedTuple):
    """A batch whose records are requested."""

    batch: bytes
    header: records.BatchHeader
    base: int
    kind: tuple[bool, bool]
    """Whether it has an append time, and whether its records need not be decoded."""
    moment: int
    """Its append time, if it has one (ms)."""
    body: Any
    """Its decompressed records."""


class BatchDecoder(LayoutDecoder):
    """Decodes layout `batch`, and segments."""

    chunk_bytes = 2 << 20
    tail_entries = MAX_ENTRIES
    holds_batches = True

    def __init__(self, log: PartitionLog, schema: Any, aborted: Sequence[AbortedRow]) -> None:
        super().__init__(log, schema, aborted)
        self._places = OffsetMap(log.mode, log.bits)
        self._contents = self._names & {"key", "value", "headers", "timestamp"}

    @staticmethod
    def parse_reply(raw: memoryview) -> XRangeReply:
        return XRangeReply.of(parsed(raw))

    def parts(self, reply: XRangeReply) -> Iterator[ColumnBatch]:
        self._places = self.places_of(reply)
        if self._log.mode == "bytes":
            for row in reply.rows:
                if (part := self._positions(self._last(row[0]), row[1])) is not None:
                    yield part
            return
        group: list[_StoredBatch] = []
        size = 0
        for row in reply.rows:
            each = self._batch(self._last(row[0]), row[1])
            if each is None:
                continue
            if group and (each.kind != group[0].kind or size > _GROUP_BYTES):
                yield self._decode_group(group)
                group, size = [], 0
            group.append(each)
            size += len(each.body)
        if group:
            yield self._decode_group(group)

    def _last(self, raw_id: bytes) -> int | None:
        """Return the last offset of an entry; None if it has none."""
        return self._places.offset(*split_id(raw_id))

    def _positions(self, last: int | None, fields: Sequence[bytes]) -> ColumnBatch | None:
        """Return the records of an entry in offset mode `bytes`."""
        batch, count = batch_of(fields)
        if batch is None or last is None:
            return None
        rows = bytes_layout.records_of(last - count + 1, fields)
        stamped = record_entries.append_time_of(fields) is not None
        return batch_from_records(rows, self._names, shift=0, stamped=stamped) if rows else None

    def _batch(self, last: int | None, fields: Sequence[bytes]) -> _StoredBatch | None:
        """Return the batch of an entry; None if it is a marker, foreign or aborted."""
        batch, count = batch_of(fields)
        if batch is None or last is None:
            return None
        appended = record_entries.append_time_of(fields)
        base = last - count + 1
        header = records.read_header(batch)
        attributes = header.attributes
        if attributes & records.CONTROL:
            return None
        if attributes & records.TRANSACTIONAL and self._aborted.contains(header.producer_id, base):
            return None
        stamped = appended is not None or bool(attributes & records.LOG_APPEND_TIME)
        moment = header.max_timestamp if appended is None else appended
        # A compacted batch has fewer records than offsets.
        bare = header.records == count and (
            not self._contents or (stamped and self._contents == _TIME)
        )
        body: Any = b""
        if not bare:
            body = memoryview(batch)[records.HEADER_SIZE :]
            if header.codec:
                body = bytes(compression.decompress(header.codec, body, records.MAX_SPAN))
        return _StoredBatch(batch, header, base, (stamped, bare), moment, body)

    def _decode_group(self, group: Sequence[_StoredBatch]) -> ColumnBatch:
        """Return the records of batches that have the same `kind`."""
        stamped, bare = group[0].kind
        counts = [each.header.records for each in group]
        if bare:
            spans = [
                np.arange(each.base, each.base + n) for each, n in zip(group, counts, strict=True)
            ]
            part = ColumnBatch(
                np.concatenate(spans), np.zeros(sum(counts), dtype=np.int64), stamped
            )
        else:
            part = self._columns_of(group, stamped)
        if stamped:
            part.times = np.repeat([each.moment for each in group], counts)
        return part

    def _columns_of(self, group: Sequence[_StoredBatch], stamped: bool) -> ColumnBatch:
        bodies = [
            BatchBody(each.body, each.header.records, each.base, each.header.first_timestamp)
            for each in group
        ]
        type_ = self._schema.field("headers").type if "headers" in self._names else None
        try:
            found = decode_records(bodies, self._contents, type_)
        except NotUniform:
            return concat_batches([self._decode_singly(each, stamped) for each in group])
        return ColumnBatch(
            found.offsets, found.times, stamped, found.keys, found.values, found.headers
        )

    def _decode_singly(self, batch: _StoredBatch, stamped: bool) -> ColumnBatch:
        shift = batch.base - batch.header.base_offset
        return batch_from_records(
            records.records_of(batch.batch), self._names, shift=shift, stamped=stamped
        )
