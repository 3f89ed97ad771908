"""Segments: immutable objects of record batches with final offsets; see docs/segments.md.

    batches   from position 0, contiguous, base offsets and leader epochs final
    index     a row per chunk: first offset, position, max timestamp, records, CRC-32C
    aborted   a row per aborted transaction: producer id, first offset, marker, last stable offset
    header    JSON: SegmentHeader
    trailer   rows of index, rows of aborted, bytes of header, CRC-32C of the footer, magic

Rules
- A chunk is a run of whole batches of at least CHUNK_BYTES; the last one of a segment may be
  smaller. Its CRC covers all its bytes: base offsets too, which no CRC of a batch covers.
- The footer is everything after the batches. Its CRC covers index, aborted rows and header.
- All numbers are big-endian.
- The functions that walk the batches decode no records. The bytes have the right checksums, but
  another program may have written them: each walk raises CorruptSegment at a batch whose length is
  negative, and struct.error at the start of a batch that is cut. It ends in any case.
"""

import operator
import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import msgspec

from korvet.wire import records
from korvet.wire.records import BatchHeader, Buffer, crc_function

CHUNK_BYTES = 64 * 1024
"""Min bytes of a chunk, the smallest part of a segment that can be verified."""
MAGIC = b"KORVSEG1"
FORMAT = 1
_ROW = struct.Struct(">qqqII")
_ABORTED = struct.Struct(">qqqq")
_COUNTS = struct.Struct(">III")
_TRAILER = struct.Struct(">IIII8s")
TRAILER_BYTES = _TRAILER.size
_OFFSET = struct.Struct(">q")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_SPAN = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
_COUNT = struct.Struct(">i")
_NAME = re.compile(r"[\w.:-]{1,255}", re.ASCII)
MAX_INT64 = 2**63 - 1


class IndexRow(NamedTuple):
    """A chunk: its first offset, its position, its records and the CRC-32C of its bytes."""

    offset: int
    position: int
    max_timestamp: int
    records: int
    crc: int


class IndexRows(Sequence[IndexRow]):
    """The rows of an index, in order of offset and position, as columns.

    A broker keeps the indexes of many segments: in columns, a row takes 32 bytes in place of 250.
    """

    __slots__ = ("_max_timestamps", "crcs", "offsets", "positions", "records")

    def __init__(self, data: Buffer) -> None:
        columns = list(zip(*_ROW.iter_unpack(data), strict=True)) or [()] * len(IndexRow._fields)
        self.offsets = array("q", columns[0])
        self.positions = array("q", columns[1])
        self._max_timestamps = array("q", columns[2])
        self.records = array("I", columns[3])
        self.crcs = array("I", columns[4])

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, at: int) -> IndexRow: ...
    @overload
    def __getitem__(self, at: slice) -> list[IndexRow]: ...
    def __getitem__(self, at: int | slice) -> IndexRow | list[IndexRow]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        return IndexRow(
            self.offsets[at],
            self.positions[at],
            self._max_timestamps[at],
            self.records[at],
            self.crcs[at],
        )

    def at_offset(self, offset: int) -> int:
        """Return the number of the last row at or below the offset, 0 if there is none."""
        return max(0, bisect_right(self.offsets, offset) - 1)

    def at_position(self, position: int, low: int = 0) -> int:
        """Return the number of the first row from `low` on at or above the position."""
        return bisect_left(self.positions, position, low)


class CorruptSegment(ValueError):
    """A segment's bytes are not those that were written; the message says where."""


class SegmentHeader(msgspec.Struct, frozen=True):
    """The header of a segment, which covers the offsets from `first` to `last`."""

    id: str
    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    first: int
    last: int
    records: int
    bytes: int
    """Bytes of the batches: the position of the index."""
    max_timestamp: int
    """The newest timestamp of a record, in ms; -1 without records."""
    storage_format: str
    offset_mode: str
    created_ms: int
    format: int = FORMAT


class AbortedRow(NamedTuple):
    """An aborted transaction with a record in the segment; `last` is its marker's offset."""

    producer_id: int
    first: int
    last: int
    stable: int

    @classmethod
    def parse(cls, member: bytes, score: bytes) -> "AbortedRow":
        """Return the transaction of a row of the index of aborted transactions."""
        producer_id, first, stable = map(int, member.split(b":"))
        return cls(producer_id, first, int(float(score)), stable)


@dataclass(eq=False, repr=False)
class Segment:
    """The footer of a segment: where its chunks are, and what they hold."""

    header: SegmentHeader
    rows: IndexRows
    aborted: Sequence[AbortedRow]

    def chunk_of(self, offset: int) -> int:
        """Return the number of the chunk to read the offset from."""
        return self.rows.at_offset(offset)

    def chunk_since(self, timestamp: int) -> int | None:
        """Return the first chunk with a record at or after the timestamp, or None."""
        return next((n for n, row in enumerate(self.rows) if row.max_timestamp >= timestamp), None)

    def end_of(self, chunk: int) -> int:
        """Return the position after a chunk."""
        after = chunk + 1
        positions = self.rows.positions
        return positions[after] if after < len(positions) else self.header.bytes

    def offset_after(self, chunk: int) -> int:
        """Return an offset above those of the chunk, at or below those of the next one."""
        after = chunk + 1
        offsets = self.rows.offsets
        return offsets[after] if after < len(offsets) else self.header.last + 1

    def chunks_within(self, first: int, size: int) -> int:
        """Return the chunk after those from `first` on that fit the size; at least `first` does."""
        rows = self.rows
        end = rows.positions[first] + size
        if end >= self.header.bytes:
            return len(rows)
        return max(first + 1, rows.at_position(end + 1, first) - 1)

    def verify(self, first: int, data: Buffer) -> int:
        """Check the chunks in `data`, from number `first` on; return the number after the last.

        Raises CorruptSegment with the offsets of the first chunk that differs.
        """
        rows, view, crc = self.rows, memoryview(data), crc_function()
        offsets, crcs, base_of = rows.offsets, rows.crcs, _OFFSET.unpack_from
        size, chunk, position = len(view), first, 0
        begin = rows.positions[first]
        while position < size:
            end = self.end_of(chunk) - begin
            part = view[position:end]
            is_whole = end <= size and crc(part) == crcs[chunk]
            if not is_whole or base_of(part)[0] != offsets[chunk]:
                raise CorruptSegment(
                    f"offsets {offsets[chunk]} to {self.offset_after(chunk) - 1} of "
                    f"{self.header.topic}-{self.header.partition}: "
                    f"checksum differs at position {begin + position}"
                )
            position, chunk = end, chunk + 1
        return chunk

    def aborted_in(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return producer id and first offset of aborted transactions within these offsets."""
        return [
            (row.producer_id, row.first)
            for row in self.aborted
            if row.first <= last and row.last >= first
        ]


def footer_of(
    header: SegmentHeader, rows: Iterable[IndexRow], aborted: Iterable[AbortedRow]
) -> bytes:
    """Return the footer of a segment, trailer included."""
    index = [_ROW.pack(*row) for row in rows]
    dropped = [_ABORTED.pack(*row) for row in aborted]
    text = msgspec.json.encode(header)
    counts = (len(index), len(dropped), len(text))
    footer = b"".join((*index, *dropped, text))
    return footer + _TRAILER.pack(*counts, _footer_crc(footer, counts), MAGIC)


def footer_size(trailer: Buffer) -> int:
    """Return the bytes of the footer, trailer included, given the object's last bytes."""
    rows, aborted, header, _, magic = _unpack_trailer(trailer)
    if magic != MAGIC:
        raise CorruptSegment("not a segment: the magic number at its end differs")
    return rows * _ROW.size + aborted * _ABORTED.size + header + TRAILER_BYTES


def read_footer(footer: Buffer) -> Segment:
    """Return the segment of a footer, trailer included. Raises CorruptSegment."""
    if footer_size(footer) != len(footer):
        raise CorruptSegment("the footer's length differs")
    rows, aborted, header, crc, _ = _unpack_trailer(footer)
    view = memoryview(footer)[:-TRAILER_BYTES]
    if _footer_crc(view, (rows, aborted, header)) != crc:
        raise CorruptSegment("the footer's checksum differs")
    split = rows * _ROW.size
    after = split + aborted * _ABORTED.size
    try:
        found = msgspec.json.decode(view[after:], type=SegmentHeader)
    except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
        raise CorruptSegment(f"the header cannot be decoded: {error}") from None
    if found.format != FORMAT:
        raise CorruptSegment(f"format {found.format} is unknown; this version reads {FORMAT}")
    aborted_rows = list(map(AbortedRow._make, _ABORTED.iter_unpack(view[split:after])))
    segment = Segment(found, IndexRows(view[:split]), aborted_rows)
    flaw = _flaw_of_header(found) or _flaw_of_rows(segment)
    if flaw:
        raise CorruptSegment(flaw)
    return segment


def _flaw_of_header(header: SegmentHeader) -> str:
    """Return what no writer puts into a header; empty if there is nothing."""
    names = (header.id, header.cluster_id, header.topic, header.topic_id)
    if not all(map(_NAME.fullmatch, names)):
        return "a name in the header has characters that none has"
    if not 0 <= header.first <= header.last <= MAX_INT64:
        return f"the header has offsets from {header.first} to {header.last}"
    numbers = (header.partition, header.records, header.bytes, header.max_timestamp + 1)
    if not all(0 <= number <= MAX_INT64 for number in numbers):
        return "a number in the header is negative or too large"
    return ""


def _flaw_of_rows(segment: Segment) -> str:
    """Return what no writer puts into the rows of a footer; empty if there is nothing."""
    header, rows = segment.header, segment.rows
    begins = [*rows.positions, header.bytes]
    if begins[0] or not all(map(operator.lt, begins, begins[1:])):
        return "the positions of the index do not rise from 0 to the end of the batches"
    offsets = [*rows.offsets, header.last + 1]
    if not all(map(operator.lt, offsets, offsets[1:])):
        return "the offsets of the index do not rise to the last one"
    if sum(rows.records) != header.records:
        return "the records of the index are not those of the header"
    if any(row.producer_id < 0 or not 0 <= row.first <= row.last for row in segment.aborted):
        return "an aborted transaction has no valid offsets"
    return ""


def read_segment(data: Buffer) -> tuple[Segment, memoryview]:
    """Return a whole segment's footer and its batches, verified. Raises CorruptSegment."""
    view = memoryview(data)
    size = min(footer_size(view), len(view))
    segment = read_footer(view[len(view) - size :])
    batches = view[: segment.header.bytes]
    if len(batches) + size != len(view):
        raise CorruptSegment(
            f"{len(view) - size} bytes of batches in place of {segment.header.bytes}"
        )
    if segment.verify(0, batches) != len(segment.rows):
        raise CorruptSegment("chunks are missing")
    return segment, batches


def _unpack_trailer(data: Buffer) -> tuple[int, int, int, int, bytes]:
    if len(data) < TRAILER_BYTES:
        raise CorruptSegment("not a segment: too short")
    rows, aborted, header, crc, magic = _TRAILER.unpack_from(data, len(data) - TRAILER_BYTES)
    return rows, aborted, header, crc, magic


def _footer_crc(footer: Buffer, counts: tuple[int, int, int]) -> int:
    crc = crc_function()
    return crc(_COUNTS.pack(*counts), crc(footer))


def headers_in(batches: Buffer) -> Iterator[tuple[int, int, BatchHeader]]:
    """Yield position, size and header of each batch.

    Raises CorruptSegment where no whole batch begins: the bytes may not be verified.
    """
    at = 0
    while at < len(batches):
        if len(batches) - at < records.HEADER_SIZE:
            raise _corrupt(at)
        header = records.read_header(batches, at)
        size = header.length + records.LOG_OVERHEAD
        if size < records.HEADER_SIZE or at + size > len(batches) or header.magic != records.MAGIC:
            raise _corrupt(at)
        yield at, size, header
        at += size


def count_records(batches: Buffer) -> int:
    """Return how many records whole batches have, markers included."""
    at = count = 0
    while at < len(batches):
        count += _COUNT.unpack_from(batches, at + records.HEADER_SIZE - _COUNT.size)[0]
        length = _OFFSET_AND_LENGTH.unpack_from(batches, at)[1]
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return count


def skip_batches(batches: Buffer, offset: int) -> int:
    """Return where the first batch begins that does not end below the offset."""
    at = 0
    while at < len(batches):
        base, length, delta = _SPAN.unpack_from(batches, at)
        if base + delta >= offset:
            break
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return at


def last_offset(batches: Buffer, at: int) -> int:
    """Return the last offset of the batches from position `at` on."""
    last, end, unpack = -1, len(batches), _SPAN.unpack_from
    while at < end:
        base, length, delta = unpack(batches, at)
        last = base + delta
        if length < 0:
            raise _corrupt(at)
        at += length + records.LOG_OVERHEAD
    return last


def find_batches(batches: Buffer, at: int, offset: int, max_bytes: int) -> tuple[int, int, int]:
    """Return where those batches begin and end, searched from position `at` on, and the offset."""
    begin, after = -1, -1
    while at < len(batches):
        base, length, delta = _SPAN.unpack_from(batches, at)
        size = length + records.LOG_OVERHEAD
        if length < 0:
            raise _corrupt(at)
        if begin < 0 and base + delta >= offset:
            begin = at
        elif begin >= 0 and at + size - begin > max_bytes:
            break
        at += size
        after = base + delta + 1
    return (begin, at, after) if begin >= 0 else (at, at, -1)


def _corrupt(at: int) -> CorruptSegment:
    return CorruptSegment(f"no record batch at position {at}")
