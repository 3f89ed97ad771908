"""Build record batches, and patch the header of stored ones."""

import struct
from collections.abc import Iterable
from itertools import chain

from korvet.base.late_import import aiokafka
from korvet.wire import compression
from korvet.wire.records import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    UNLIMITED,
    BatchHeader,
    Buffer,
    Record,
    checksum,
    read_header,
)

_POSITION = struct.Struct(">q4si")
"""A header's first fields: base offset, length, leader epoch."""
COPIED = 2048
"""Length of a batch from which on it is sent as two buffers instead of one copy."""
_LAST_MS = 2**63 - 2


def with_max_timestamp(batch: Buffer, header: BatchHeader, newest: int) -> bytearray:
    """Return a copy of the batch with that max timestamp, as a CreateTime batch."""
    found = bytearray(batch)
    attributes = header.attributes & ~LOG_APPEND_TIME
    put_header(found, header._replace(attributes=attributes, max_timestamp=newest))
    return found


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
    """Build one v2 batch of these records (at least one, offsets rising, span below 2^31).

    `append_time` makes it a LogAppendTime batch of that time. `producer` is (id, epoch, base
    sequence). Offsets count from `base`, or else from the first record's.
    """
    builder = aiokafka("record.default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression.NONE,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=UNLIMITED,
    )
    append = builder.append
    rows = iter(records)
    first = next(rows)
    rows = chain((first,), rows)
    timeless = first[1] == -1
    if timeless:
        # For the builder, -1 means that no record has come yet: it takes the next one's time
        # instead.
        rows = ((at, min(ms, _LAST_MS) + 1, key, value, more) for at, ms, key, value, more in rows)
    if base < 0:
        base = first[0]
    for offset, timestamp, key, value, headers in rows:
        append(offset - base, timestamp, key, value, headers)
    batch: bytearray = builder.build()
    if timeless:
        header = read_header(batch)
        late = header._replace(first_timestamp=-1, max_timestamp=header.max_timestamp - 1)
        put_header(batch, late)
    if codec:
        batch = _compressed(batch, codec)
    set_position(batch, base, leader_epoch)
    if append_time is not None:
        set_append_time(batch, append_time)
    return batch


def _compressed(batch: bytearray, codec: int) -> bytearray:
    """Compress an uncompressed batch with that codec."""
    return with_codec(read_header(batch), memoryview(batch)[HEADER_SIZE:], codec)


def with_codec(header: BatchHeader, section: Buffer, codec: int) -> bytearray:
    """Return the batch of these decompressed records, compressed with that codec."""
    found = bytearray(HEADER_SIZE) + compression.compress(codec, section)
    length, attributes = len(found) - LOG_OVERHEAD, header.attributes & ~CODEC_MASK | codec
    put_header(found, header._replace(length=length, attributes=attributes))
    return found


def put_header(batch: bytearray, header: BatchHeader) -> None:
    """Write the header of the batch; the CRC is computed."""
    HEADER.pack_into(batch, 0, *header)
    struct.pack_into(">I", batch, CRC_AT, checksum(batch))


def retain_records(batch: Buffer, first: int, last: int, staying: Iterable[Record]) -> bytearray:
    """Build the batch with only these records (at least one), over the same offsets.

    `first` and `last` are the batch's offsets in its log. Everything else is kept.
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
    put_header(built, patched)
    return built


def batch_at_offset(
    batch: Buffer, base_offset: int, leader_epoch: int, append_time: int | None
) -> list[Buffer]:
    """Return a stored batch as buffers to send, at its offset.

    Only a small batch is copied: a copy of a few bytes takes less than sending two buffers.
    """
    if append_time is None:
        head = _POSITION.pack(base_offset, bytes(batch[8:12]), leader_epoch)
        if len(batch) < COPIED:
            return [head + batch[MAGIC_AT:]]
        return [head, memoryview(batch)[MAGIC_AT:]]
    stamped = bytearray(batch)
    set_position(stamped, base_offset, leader_epoch)
    set_append_time(stamped, append_time)
    return [stamped]


def set_position(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch, which the CRC does not cover."""
    _POSITION.pack_into(batch, 0, base_offset, bytes(batch[8:12]), leader_epoch)


def set_append_time(batch: bytearray, append_time: int) -> None:
    """Make the batch a LogAppendTime batch of that time, with a new CRC."""
    # Field by field: a Fetch does this for each batch of a topic with LogAppendTime.
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, append_time)
    struct.pack_into(">I", batch, CRC_AT, checksum(batch))


def extend_to(batch: bytearray, last: int) -> None:
    """Extend the batch to offset `last`, as if later records had been compacted away."""
    header = read_header(batch)
    put_header(batch, header._replace(last_offset_delta=last - header.base_offset))
