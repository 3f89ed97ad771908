"""Record batches (message format v2): the 61-byte header, read, checked and patched in place.

Rules
- Only the header of a producer's batch is read; records are decoded when a layout or a client needs
  them one by one, and then by aiokafka's compiled reader.
- The CRC-32C covers everything from the attributes on: base offset and leader epoch can be patched
  without it, timestamp type and max timestamp cannot.
- A record is a plain tuple `(offset, timestamp, key, value, headers)`.
- aiokafka and crc32c are imported where they are needed: 0.1 s for Spark's processes that only read
  headers.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

from korvet.base.errors import ErrorCode
from korvet.base.late_import import aiokafka
from korvet.wire import compression

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = list[tuple[str, bytes | None]]
Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
MAGIC_AT = 16
MAGIC = 2
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
MAX_SPAN = 2**31 - 1
MAX_RECORDS = 500_000
"""Max records of a batch: the count is used as it is wherever records are not counted again."""
MAX_DECODED_RECORDS = 100_000
"""Max records of a batch that the broker decodes; each costs some hundred bytes."""
LEAST_RECORD = 7
MAX_HEADERS_PER_BATCH = 500_000
"""Max headers of a batch's records together.

Each costs a hundred bytes of memory, and compressed none at all.
"""
_LEAST_HEADER = 2

UNLIMITED = 2**31 - 1


class BadBatch(ValueError):
    """A produced batch is refused; `error` is Kafka's code, the message a sentence.

    `blamed` are the invalid records, each its index in the batch and a sentence; empty if the batch
    itself is invalid.
    """

    def __init__(
        self, error: ErrorCode, reason: str, blamed: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(reason)
        self.error = error
        self.blamed = blamed


def corrupt(reason: str) -> BadBatch:
    """Return the error for bytes that are no batch or message set."""
    return BadBatch(ErrorCode.CORRUPT_MESSAGE, reason)


def invalid(reason: str) -> BadBatch:
    """Return the error for a batch that a producer must not send."""
    return BadBatch(ErrorCode.INVALID_RECORD, reason)


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
        """Return the number of the records' compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def producer(self) -> tuple[int, int, int]:
        """Return producer id, epoch and base sequence; -1 each without a producer id."""
        if self.producer_id < 0:
            return -1, -1, -1
        return self.producer_id, self.producer_epoch, self.base_sequence


def read_header(batch: Buffer, at: int = 0) -> BatchHeader:
    """Return the header at `at`. Raises struct.error if fewer than 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(batch, at))


@cache
def crc_function() -> Callable[..., int]:
    """Return the function for CRC-32C; its library is imported with the first use."""
    import crc32c

    return crc32c.crc32c


def checksum(batch: Buffer) -> int:
    """Return the CRC-32C of the bytes that a batch's CRC covers."""
    return crc_function()(memoryview(batch)[ATTRIBUTES_AT:])


def check_produced(batch: Buffer) -> BatchHeader:
    """Return the header of a produced batch after every check that needs no decompression.

    Raises BadBatch: CORRUPT_MESSAGE, INVALID_RECORD or UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise invalid(f"{size} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.length != size - LOG_OVERHEAD:
        if HEADER_SIZE - LOG_OVERHEAD <= header.length < size - LOG_OVERHEAD:
            raise invalid("a partition takes exactly one record batch a request")
        ends_early = header.length > size - LOG_OVERHEAD
        raise BadBatch(
            ErrorCode.INVALID_RECORD if ends_early else ErrorCode.CORRUPT_MESSAGE,
            f"the batch says {header.length} bytes and has {size - LOG_OVERHEAD}",
        )
    if checksum(batch) != header.crc:
        raise corrupt("the batch's CRC-32C does not match its bytes")
    _check_count(header, size)
    attributes = header.attributes
    if attributes & CODEC_MASK > compression.ZSTD:
        raise BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {header.codec}")
    if attributes & CONTROL:
        raise invalid("a client cannot write a control batch")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise invalid("an idempotent batch needs an epoch and a sequence")
    return header


def _check_count(header: BatchHeader, size: int) -> None:
    records = header.records
    if records < 1 or header.last_offset_delta != records - 1:
        raise invalid(
            f"{header.records} records cannot end at offset delta {header.last_offset_delta}"
        )
    if records > MAX_RECORDS:
        raise too_many_records(records, MAX_RECORDS)
    if records * LEAST_RECORD > size - HEADER_SIZE and not header.codec:
        raise invalid(f"{size - HEADER_SIZE} bytes cannot hold {header.records} records")


def too_many_records(count: int, max_records: int) -> BadBatch:
    """Return the error for a batch of too many records: clients split it and retry."""
    return BadBatch(
        ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {count} records: {max_records} can be taken here."
    )


def too_many_headers() -> BadBatch:
    """Return the error for a batch whose records have too many headers together."""
    reason = f"The records of a batch have {MAX_HEADERS_PER_BATCH} headers at most."
    return BadBatch(ErrorCode.MESSAGE_TOO_LARGE, reason)


def records_of(batch: Buffer, *, limit: int = UNLIMITED) -> list[Record]:
    """Return the records of one batch, decompressed to at most `limit` bytes.

    Raises BadBatch: CORRUPT_MESSAGE for bytes that are no batch, MESSAGE_TOO_LARGE beyond `limit`
    or MAX_HEADERS_PER_BATCH. INVALID_RECORD is for records that do not parse: a producer would
    retry CORRUPT_MESSAGE again and again.
    """
    if len(batch) < HEADER_SIZE:
        raise corrupt(f"{len(batch)} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    plain: Buffer = batch
    if header.codec:
        body = inflate(header.codec, memoryview(batch)[HEADER_SIZE:], limit, invalid)
        plain = _uncompressed(header, body, CODEC_MASK)
    open_batch = aiokafka("record.default_records").DefaultRecordBatch
    corrupt_record = aiokafka("errors").CorruptRecordException
    try:
        if len(plain) - HEADER_SIZE > MAX_HEADERS_PER_BATCH * _LEAST_HEADER:
            return _counted(plain)
        found = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in open_batch(plain)]
    except BadBatch:
        raise
    except (corrupt_record, ValueError, MemoryError, OverflowError) as error:
        raise invalid(f"the records do not parse: {error}") from None
    return found


def _counted(plain: Buffer) -> list[Record]:
    """Return the records of a batch that is long enough to have too many headers."""
    longest = MAX_HEADERS_PER_BATCH * _LEAST_HEADER
    left = MAX_HEADERS_PER_BATCH - max(
        claimed_headers(memoryview(plain), HEADER_SIZE, longest), default=0
    )
    found: list[Record] = []
    if left >= 0:
        left = MAX_HEADERS_PER_BATCH
        for r in aiokafka("record.default_records").DefaultRecordBatch(plain):
            headers = r.headers
            if headers:
                left -= len(headers)
                if left < 0:
                    break
            found.append((r.offset, r.timestamp, r.key, r.value, headers))
    if left < 0:
        raise too_many_headers()
    return found


def decode_produced(batch: Buffer, *, limit: int) -> list[Record]:
    """Return the records of a produced batch; MESSAGE_TOO_LARGE above MAX_DECODED_RECORDS too."""
    count = read_header(batch).records
    if count > MAX_DECODED_RECORDS:
        raise too_many_records(count, MAX_DECODED_RECORDS)
    return records_of(batch, limit=limit)


def open_section(batch: Buffer, header: BatchHeader, limit: int) -> Buffer:
    """Return the records of a produced batch, decompressed to at most `limit` bytes.

    Valid until the next call. Raises BadBatch for bytes that some clients could not decompress.
    """
    section = memoryview(batch)[HEADER_SIZE:]
    if not header.codec:
        return section
    return inflate(header.codec, section, limit, invalid, compression.decompress_produced)


def decode_section(header: BatchHeader, section: Buffer) -> list[Record]:
    """Return the records of an opened section; the producer's timestamps count."""
    plain = _uncompressed(header, section, CODEC_MASK | LOG_APPEND_TIME)
    return decode_produced(plain, limit=UNLIMITED)


def _uncompressed(header: BatchHeader, section: Buffer, cleared: int) -> bytes:
    """Return the batch of decompressed records, without these bits of its attributes."""
    plain = header._replace(attributes=header.attributes & ~cleared)
    return b"".join((HEADER.pack(*plain), section))


def inflate(
    codec: int,
    payload: Buffer,
    limit: int,
    error_of: Callable[[str], BadBatch],
    decompress: Callable[[int, Buffer, int], Buffer] = compression.decompress,
) -> Buffer:
    """Decompress a payload to at most `limit` bytes. Raises `error_of` for corrupt bytes."""
    try:
        return decompress(codec, payload, limit)
    except compression.CorruptPayload as error:
        raise error_of(str(error)) from None
    except compression.PayloadTooLarge as error:
        raise BadBatch(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None


def claimed_headers(plain: memoryview, at: int, longest: int) -> Iterator[int]:
    """Return the header count of each record from `at` on that is longer than `longest` bytes.

    It is read before any object is made of a record: a header of two bytes becomes a hundred in
    memory, and a compressed batch may have millions. Stops at bytes that are no record.
    """
    end = len(plain)
    try:
        while at < end:
            low = plain[at]
            if low & 1:
                return  # below 0
            # Nearly all are shorter than 8 KB: decoded without a call.
            if low < 0x80:
                length, at = low >> 1, at + 1
            elif (high := plain[at + 1]) < 0x80:
                length, at = (low & 0x7F | high << 7) >> 1, at + 2
            else:
                length, at = read_varint(plain, at)
            if length > longest:
                position = at + 1  # after the attributes: timestamp delta, offset delta
                for _ in range(2):
                    position = read_varint(plain, position)[1]
                for _ in ("key", "value"):
                    size, position = read_varint(plain, position)
                    position += max(size, 0)
                yield read_varint(plain, position)[0]
            at += length
    except IndexError:
        return


def read_varint(data: bytes | memoryview, at: int, width: int = 10) -> tuple[int, int]:
    """Return the zigzag varint of at most `width` bytes, and the next position.

    Raises IndexError if it does not end.
    """
    number = 0
    for n in range(width):
        byte = data[at + n]
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + n + 1
    raise IndexError
