"""Build the record batches to send: seeded, half compressible, before the timed part."""

import random
import struct
import time

import cramjam
import crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WORDS = 512
CRC_AT, ATTRIBUTES_AT, PRODUCER_AT = 17, 21, 43
LENGTH_AT, HEADER_SIZE, LOG_OVERHEAD = 8, 61, 12
TRANSACTIONAL = 0x10
LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Header of an lz4 frame as Java's and librdkafka's producers send it: no checksums."""
LZ4_BLOCK = 65_536


def values(count: int, size: int, seed: int = 7) -> list[bytes]:
    """Return `count` values of `size` bytes, with words of one small vocabulary."""
    source = random.Random(seed)
    words = [source.randbytes(source.randint(2, 6)).hex().encode() for _ in range(WORDS)]
    payloads = []
    for _ in range(count):
        text = b""
        while len(text) < size:
            text += source.choice(words) + b" "
        payloads.append(text[:size])
    return payloads


def batch(records: int, size: int, codec: str = "none", seed: int = 7) -> bytes:
    """Build a v2 batch of `records` records of `size` bytes, without keys, timestamped now."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0 if codec == "lz4" else CODECS[codec],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=records * (size + 64) + 1024,
    )
    now = time.time_ns() // 1_000_000
    for index, value in enumerate(values(records, size, seed)):
        if builder.append(index, timestamp=now, key=None, value=value, headers=[]) is None:
            raise ValueError(f"a batch of {records} x {size} bytes does not fit into its builder")
    built = builder.build()
    if codec == "lz4":
        built[HEADER_SIZE:] = lz4_frame(bytes(built[HEADER_SIZE:]))
        struct.pack_into(">i", built, LENGTH_AT, len(built) - LOG_OVERHEAD)
        struct.pack_into(">h", built, ATTRIBUTES_AT, CODECS[codec])
        seal(built)
    return bytes(built)


def lz4_frame(data: bytes) -> bytes:
    """Compress as Java's producer does; aiokafka's frames have a checksum for each block."""
    frame = [LZ4_HEADER]
    for at in range(0, len(data), LZ4_BLOCK):
        block = bytes(cramjam.lz4.compress_block(data[at : at + LZ4_BLOCK], store_size=False))
        frame += (struct.pack("<i", len(block)), block)
    return b"".join((*frame, bytes(4)))


def seal(data: bytearray) -> None:
    """Set the batch's CRC-32C."""
    struct.pack_into(">I", data, CRC_AT, crc32c.crc32c(memoryview(data)[ATTRIBUTES_AT:]))


def stamp(
    data: bytearray, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> None:
    """Set the batch's producer id, epoch and first sequence number."""
    (attributes,) = struct.unpack_from(">h", data, ATTRIBUTES_AT)
    attributes = attributes & ~TRANSACTIONAL | (TRANSACTIONAL if transactional else 0)
    struct.pack_into(">h", data, ATTRIBUTES_AT, attributes)
    struct.pack_into(">qhi", data, PRODUCER_AT, producer_id, epoch, sequence)
    seal(data)
