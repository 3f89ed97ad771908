"""Record batches (message format v2): the 61-byte header, read, checked and patched in place.

Rules
- A producer's batch is looked at through its header only; records are decoded when a layout or a
  client needs them one by one, and then by aiokafka's compiled reader.
- The CRC-32C covers everything from the attributes on: base offset and leader epoch can be
  patched without it, timestamp type and max timestamp cannot.
- A record is a plain tuple `(offset, timestamp, key, value, headers)`.
- aiokafka and crc32c are imported by what needs them: a tenth of a second for processes of Spark's
  that only look at headers.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from korvet.errors import ErrorCode
from korvet.wire import compression
from korvet.wire.header_counts import claimed_headers

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = list[tuple[str, bytes | None]]
Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
_PLACE = struct.Struct(">q4si")
"""A header's first fields: base offset, length as it is, leader epoch."""
COPIED = 2048
LOG_OVERHEAD = 12
MAGIC_AT = 16
MAGIC = 2
ATTRIBUTES_AT = 21
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
MAX_SPAN = 2**31 - 1
BOMB_FACTOR = 64
"""A batch may decompress to this many times `message.max.bytes` at most."""

MAX_RECORDS = 500_000
"""A batch holds so many records at most: its count is believed wherever it is not counted again."""
MAX_TAKEN_APART = 100_000
"""So many where the broker takes it apart: each costs it some hundred bytes, and Redis some µs."""
LEAST_RECORD = 7
MAX_HEADERS_TOGETHER = 500_000
"""So many headers have the records of a batch together: each costs a hundred bytes, and compressed
none at all."""
_LEAST_HEADER = 2

_UNLIMITED = 2**31 - 1
_LAST_MS = 2**63 - 2


class BadBatch(ValueError):
    """A produced batch cannot be taken; `error` is Kafka's code, the message a sentence.

    `blamed` are the records it cannot be taken for, each its place in the batch and a sentence;
    none, where it is not for single records.
    """

    def __init__(
        self, error: ErrorCode, reason: str, blamed: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(reason)
        self.error = error
        self.blamed = blamed


class BatchHeader(NamedTuple):
    """The fields of a v2 batch header, in wire order. Lengths in bytes, timestamps in ms."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def codec(self) -> int:
        """The number of the codec the records are compressed with."""
        return self.attributes & CODEC_MASK

    @property
    def producer(self) -> tuple[int, int, int]:
        """Id, epoch and sequence of an idempotent batch; without an id the others mean nothing."""
        if self.producer_id < 0:
            return -1, -1, -1
        return self.producer_id, self.producer_epoch, self.base_sequence


def read_header(batch: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`; nothing is checked but that 61 bytes are there (struct.error)."""
    return BatchHeader._make(HEADER.unpack_from(batch, at))


def checksum(batch: Buffer) -> int:
    """The CRC-32C of what a batch's own covers."""
    import crc32c

    found: int = crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:])
    return found


def check(batch: Buffer, *, verify_crc: bool = True) -> BatchHeader:
    """The header of a batch that a client produced, after every check that needs no decompression.

    Raises BadBatch: CORRUPT_MESSAGE, INVALID_RECORD or UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise BadBatch(ErrorCode.INVALID_RECORD, f"{size} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.length != size - LOG_OVERHEAD:
        if HEADER_SIZE - LOG_OVERHEAD <= header.length < size - LOG_OVERHEAD:
            raise BadBatch(
                ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch a request"
            )
        ends_early = header.length > size - LOG_OVERHEAD
        raise BadBatch(
            ErrorCode.INVALID_RECORD if ends_early else ErrorCode.CORRUPT_MESSAGE,
            f"the batch says {header.length} bytes and has {size - LOG_OVERHEAD}",
        )
    if verify_crc and checksum(batch) != header.crc:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC-32C does not match its bytes")
    _check_count(header, size)
    attributes = header.attributes
    if attributes & CODEC_MASK > compression.ZSTD:
        raise BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {header.codec}")
    if attributes & CONTROL:
        raise BadBatch(ErrorCode.INVALID_RECORD, "a client cannot write a control batch")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BadBatch(
            ErrorCode.INVALID_RECORD, "an idempotent batch needs an epoch and a sequence"
        )
    return header


def _check_count(header: BatchHeader, size: int) -> None:
    records = header.records
    if records < 1 or header.last_offset_delta != records - 1:
        raise BadBatch(
            ErrorCode.INVALID_RECORD,
            f"{header.records} records cannot end at offset delta {header.last_offset_delta}",
        )
    if records > MAX_RECORDS:
        raise too_many(records, MAX_RECORDS)
    if records * LEAST_RECORD > size - HEADER_SIZE and not header.codec:
        raise BadBatch(
            ErrorCode.INVALID_RECORD,
            f"{size - HEADER_SIZE} bytes cannot hold {header.records} records",
        )


def too_many(count: int, most: int) -> BadBatch:
    """The refusal of a batch of so many records: clients split it and try again."""
    return BadBatch(
        ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {count} records: {most} can be taken here."
    )


def records_of(batch: Buffer, *, limit: int = _UNLIMITED) -> list[Record]:
    """The records of one batch, decompressed to at most `limit` bytes.

    Raises BadBatch: CORRUPT_MESSAGE for bytes that are none, INVALID_RECORD where records do not
    parse (a producer would send what is CORRUPT_MESSAGE again and again), MESSAGE_TOO_LARGE beyond
    `limit` or MAX_HEADERS_TOGETHER.
    """
    if len(batch) < HEADER_SIZE:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    plain: Buffer = batch
    if header.codec:
        plain = _inflate(batch, header, limit)
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record.default_records import DefaultRecordBatch

    try:
        if len(plain) - HEADER_SIZE > MAX_HEADERS_TOGETHER * _LEAST_HEADER:
            return _counted(plain)
        found = [
            (r.offset, r.timestamp, r.key, r.value, r.headers) for r in DefaultRecordBatch(plain)
        ]
    except BadBatch:
        raise
    except (CorruptRecordException, ValueError, MemoryError, OverflowError) as error:
        raise BadBatch(ErrorCode.INVALID_RECORD, f"the records do not parse: {error}") from None
    return found


def _counted(plain: Buffer) -> list[Record]:
    """The records of a batch that is long enough to have too many headers."""
    from aiokafka.record.default_records import DefaultRecordBatch

    longest = MAX_HEADERS_TOGETHER * _LEAST_HEADER
    left = MAX_HEADERS_TOGETHER - max(
        claimed_headers(memoryview(plain), HEADER_SIZE, longest), default=0
    )
    found: list[Record] = []
    if left >= 0:
        left = MAX_HEADERS_TOGETHER
        for r in DefaultRecordBatch(plain):
            headers = r.headers
            if headers:
                left -= len(headers)
                if left < 0:
                    break
            found.append((r.offset, r.timestamp, r.key, r.value, headers))
    if left < 0:
        raise BadBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The records of a batch have {MAX_HEADERS_TOGETHER} headers at most.",
        )
    return found


def taken_apart(batch: Buffer, *, limit: int) -> list[Record]:
    """The same of a batch that a client produced; MESSAGE_TOO_LARGE above MAX_TAKEN_APART too."""
    count = read_header(batch).records
    if count > MAX_TAKEN_APART:
        raise too_many(count, MAX_TAKEN_APART)
    return records_of(batch, limit=limit)


def _inflate(batch: Buffer, header: BatchHeader, limit: int) -> bytes:
    try:
        body = compression.decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    except compression.CorruptPayload as error:
        raise BadBatch(ErrorCode.INVALID_RECORD, str(error)) from None
    except compression.PayloadTooLarge as error:
        raise BadBatch(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    plain = header._replace(attributes=header.attributes & ~CODEC_MASK)
    return b"".join((HEADER.pack(*plain), body))


def build(
    records: Iterable[Record],
    *,
    codec: int = compression.NONE,
    append_time: int | None = None,
    leader_epoch: int = 0,
    transactional: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base: int = -1,
) -> bytearray:
    """One v2 batch of these records (at least one, offsets rising, span below 2^31).

    `append_time` makes it a LogAppendTime batch of that moment. `producer` is (id, epoch, base
    sequence). Offsets count from `base`, or else from the first record's.
    """
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression.NONE,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=_UNLIMITED,
    )
    append = builder.append
    rows = iter(records)
    first = next(rows)
    rows = chain((first,), rows)
    timeless = first[1] == -1
    if timeless:
        # To the builder -1 says that no record has come yet: it takes the next one's time instead.
        rows = ((at, min(ms, _LAST_MS) + 1, key, value, more) for at, ms, key, value, more in rows)
    if base < 0:
        base = first[0]
    for offset, timestamp, key, value, headers in rows:
        append(offset - base, timestamp, key, value, headers)
    batch: bytearray = builder.build()
    if timeless:
        header = read_header(batch)
        late = header._replace(first_timestamp=-1, max_timestamp=header.max_timestamp - 1)
        _put_header(batch, late)
    if codec:
        batch = _compressed(batch, codec)
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, leader_epoch)
    if append_time is not None:
        stamp(batch, append_time)
    return batch


def _compressed(batch: bytearray, codec: int) -> bytearray:
    """The batch, of which nothing is compressed, with that codec."""
    header = read_header(batch)
    found = batch[:HEADER_SIZE] + compression.compress(codec, memoryview(batch)[HEADER_SIZE:])
    _put_header(
        found,
        header._replace(length=len(found) - LOG_OVERHEAD, attributes=header.attributes | codec),
    )
    return found


def _put_header(batch: bytearray, header: BatchHeader) -> None:
    """The batch has that header, but for the CRC, which is its own."""
    HEADER.pack_into(batch, 0, *header)
    struct.pack_into(">I", batch, 17, checksum(batch))


def thinned(batch: Buffer, first: int, last: int, staying: Iterable[Record]) -> bytearray:
    """The batch with only these records (at least one), over the same offsets, all else kept.

    `first` and `last` are the offsets it takes in its log.
    """
    header = read_header(batch)
    built = build(
        staying,
        codec=header.codec,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        base=first,
    )
    patched = read_header(built)._replace(
        attributes=header.attributes,
        last_offset_delta=last - first,
        max_timestamp=header.max_timestamp,
    )
    _put_header(built, patched)
    return built


def place(
    batch: Buffer, base_offset: int, leader_epoch: int, append_time: int | None
) -> list[Buffer]:
    """A stored batch as buffers to send, at the offset it got. Only one of a few bytes is copied:
    that takes less than to send two buffers."""
    if append_time is None:
        head = _PLACE.pack(base_offset, bytes(batch[8:12]), leader_epoch)
        if len(batch) < COPIED:
            return [head + batch[MAGIC_AT:]]
        return [head, memoryview(batch)[MAGIC_AT:]]
    stamped = bytearray(batch)
    struct.pack_into(">q", stamped, 0, base_offset)
    struct.pack_into(">i", stamped, 12, leader_epoch)
    stamp(stamped, append_time)
    return [stamped]


def stamp(batch: bytearray, append_time: int) -> None:
    """The batch is a LogAppendTime batch of that moment, its CRC renewed."""
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, append_time)
    struct.pack_into(">I", batch, 17, checksum(batch))


def reach(batch: bytearray, last: int) -> None:
    """The batch ends at offset `last`, as if records behind its own had been compacted away."""
    (base,) = struct.unpack_from(">q", batch)
    struct.pack_into(">i", batch, 23, last - base)
    struct.pack_into(">I", batch, 17, checksum(batch))


def batches_in(data: Buffer) -> Iterator[memoryview]:
    """The whole batches that stand one behind another in `data`; half a batch is left."""
    view = memoryview(data)
    at = 0
    while at + LOG_OVERHEAD <= len(view):
        (length,) = struct.unpack_from(">i", view, at + 8)
        end = at + LOG_OVERHEAD + length
        if length <= 0 or end > len(view):
            return
        yield view[at:end]
        at = end
