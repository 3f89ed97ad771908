"""Build a segment: batches, their chunks' checksums, and the footer; see docs/segments.md."""

from collections.abc import Iterable, Sequence

import msgspec

from korvet.wire import records
from korvet.wire.records import BatchHeader, Buffer, crc_function
from korvet.wire.segments import (
    CHUNK_BYTES,
    AbortedRow,
    CorruptSegment,
    IndexRow,
    SegmentHeader,
    footer_of,
)


class SegmentWriter:
    """Collects the batches of a segment; `first` is the first offset it covers.

    They are copied into a buffer, except for large ones that never change: `add_parts`.
    """

    def __init__(self, first: int, buffer: bytearray | None = None) -> None:
        self.first = first
        self.last = first - 1
        self.records = 0
        self.max_timestamp = -1
        self.size = 0
        self.buffer = bytearray() if buffer is None else buffer
        self._filled = 0
        self._pieces: list[Buffer | slice] = []
        """The segment so far: buffers, and slices of the one buffer."""
        self._rows: list[IndexRow] = []
        self._position = 0
        """Where the open chunk begins."""
        self._offset = -1
        self._newest = -1
        self._count = 0
        self._sum = 0

    def add(self, batch: Buffer) -> None:
        """Append a batch with final offsets, above those of the batches before it.

        The first one may begin below `first`: DeleteRecords can start a log inside a batch.
        """
        self.add_run(batch, [(0, len(batch), records.read_header(batch))])

    def add_run(self, batches: Buffer, headers: Iterable[tuple[int, int, BatchHeader]]) -> None:
        """Append contiguous batches: `headers` has position, size and header of each."""
        view, begin, crc = memoryview(batches), 0, crc_function()
        for at, size, header in headers:
            if self._note(header, size):
                self._sum = crc(view[begin : at + size], self._sum)
                begin = at + size
                self._close_chunk()
        if begin < len(view):
            self._sum = crc(view[begin:], self._sum)
        self._copy(view)

    def add_parts(self, parts: Sequence[Buffer]) -> None:
        """Append one batch in parts, which are kept as they are. Raises CorruptSegment."""
        size, head, crc = sum(map(len, parts)), b"", crc_function()
        for part in parts:
            head += memoryview(part)[: records.HEADER_SIZE - len(head)]
        is_whole = len(head) == records.HEADER_SIZE
        header = records.read_header(head) if is_whole else None
        if (
            header is None
            or header.length + records.LOG_OVERHEAD != size
            or header.magic != records.MAGIC
        ):
            raise CorruptSegment(f"no record batch after offset {self.last}")
        is_full = self._note(header, size)
        for part in parts:
            self._sum = crc(part, self._sum)
        self._pieces += parts
        if is_full:
            self._close_chunk()

    def _note(self, header: BatchHeader, size: int) -> bool:
        """Count a batch; return whether the open chunk is large enough with it."""
        last = header.base_offset + header.last_offset_delta
        if last <= self.last or (self.size and header.base_offset <= self.last):
            raise ValueError(f"batch at {header.base_offset} after offset {self.last}")
        if self._offset < 0:
            self._offset = header.base_offset
        self.size += size
        self.last = last
        if not header.attributes & records.CONTROL:
            self.records += header.records
            self._count += header.records
            self._newest = max(self._newest, header.max_timestamp)
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        return self.size - self._position >= CHUNK_BYTES

    def _copy(self, data: Buffer) -> None:
        begin, self._filled = self._filled, self._filled + len(data)
        self.buffer[begin : self._filled] = data
        before = self._pieces[-1] if self._pieces else None
        if isinstance(before, slice):
            self._pieces[-1] = slice(before.start, self._filled)
        else:
            self._pieces.append(slice(begin, self._filled))

    def _close_chunk(self) -> None:
        row = IndexRow(self._offset, self._position, self._newest, self._count, self._sum)
        self._rows.append(row)
        self._position, self._offset, self._newest = self.size, -1, -1
        self._count = self._sum = 0

    def finish(self, header: SegmentHeader, aborted: Iterable[AbortedRow]) -> list[Buffer]:
        """Return the segment in parts; `header` gets offsets, sizes and counts."""
        if self._offset >= 0:
            self._close_chunk()
        whole = msgspec.structs.replace(
            header,
            first=self.first,
            last=self.last,
            records=self.records,
            bytes=self.size,
            max_timestamp=self.max_timestamp,
        )
        self._copy(footer_of(whole, self._rows, aborted))
        view = memoryview(self.buffer)
        return [view[each] if isinstance(each, slice) else each for each in self._pieces]
