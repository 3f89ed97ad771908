"""Check compression: round trips, limits on the result, and damaged data."""

import gzip
import struct
import zlib
from random import Random

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.wire.compression import (
    GZIP,
    LZ4,
    MAX_GZIP_MEMBERS,
    NAMES,
    NONE,
    SNAPPY,
    ZSTD,
    CorruptPayload,
    PayloadTooLarge,
    compress,
    decompress,
)

each = pytest.mark.parametrize("codec", range(5), ids=NAMES)
packing = pytest.mark.parametrize("codec", range(1, 5), ids=NAMES[1:])
few = settings(max_examples=50, deadline=None, derandomize=True, database=None)


@each
@few
@given(data=st.binary(max_size=3000))
def test_compressed_data_is_decompressed(codec: int, data: bytes) -> None:
    for kind in (bytes, bytearray, memoryview):
        packed = compress(codec, kind(data))
        assert bytes(decompress(codec, kind(packed), len(data))) == data


@packing
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 400_000, 3_000_000])
def test_the_bound_is_exact(codec: int, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, size)) == size
    if size:
        with pytest.raises(PayloadTooLarge):
            decompress(codec, packed, size - 1)


@packing
def test_damaged_bytes_are_corrupt_or_too_large_or_other_data(codec: int) -> None:
    random = Random(codec)
    packed = compress(codec, random.randbytes(500) + bytes(500))
    for _ in range(400):
        broken = bytearray(packed)
        for _ in range(random.randrange(1, 5)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        try:
            assert len(decompress(codec, broken[: random.randrange(len(broken)) + 1], 5000)) <= 5000
        except (CorruptPayload, PayloadTooLarge) as error:
            assert str(error)


@packing
def test_half_a_payload_is_corrupt(codec: int) -> None:
    packed = compress(codec, Random(1).randbytes(1000))
    with pytest.raises(CorruptPayload):
        decompress(codec, packed[: len(packed) // 2], 10_000)


def test_an_unknown_codec_is_corrupt() -> None:
    with pytest.raises(CorruptPayload, match="no codec 5"):
        decompress(5, b"", 10)


def test_snappy_is_read_with_and_without_javas_framing() -> None:
    data = b"abc" * 1000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert bytes(decompress(SNAPPY, raw, 3000)) == data
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for part in (data[:1000], data[1000:]):
        block = bytes(cramjam.snappy.compress_raw(part))
        framed += struct.pack(">i", len(block)) + block
    assert bytes(decompress(SNAPPY, framed, 3000)) == data
    with pytest.raises(PayloadTooLarge):
        decompress(SNAPPY, framed, 2999)


@pytest.mark.parametrize("tail", [b"\0", struct.pack(">i", -1), struct.pack(">i", 99) + b"x"])
def test_snappy_blocks_of_wrong_length_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptPayload):
        decompress(SNAPPY, compress(SNAPPY, b"abc") + tail, 1000)


def test_data_compressed_by_other_libraries_is_read() -> None:
    data = b"the same " * 500
    assert bytes(decompress(GZIP, gzip.compress(data), 9999)) == data
    assert bytes(decompress(LZ4, bytes(cramjam.lz4.compress(data)), 9999)) == data
    assert bytes(decompress(ZSTD, bytes(cramjam.zstd.compress(data)), 9999)) == data
    assert bytes(decompress(NONE, data, 0)) == data


def test_gzip_members_are_read_up_to_a_maximal_count() -> None:
    one = gzip.compress(b"one")
    assert (
        decompress(GZIP, one + gzip.compress(b"") + gzip.compress(b"two") + b"\0", 6) == b"onetwo"
    )
    with pytest.raises(PayloadTooLarge):
        decompress(GZIP, one * 3, 8)
    with pytest.raises(CorruptPayload):
        decompress(GZIP, one + one[:-1], 100)
    assert len(decompress(GZIP, one * MAX_GZIP_MEMBERS, 1000)) == 3 * MAX_GZIP_MEMBERS
    with pytest.raises(CorruptPayload):
        decompress(GZIP, one * (MAX_GZIP_MEMBERS + 1), 1000)


def test_lz4_uses_the_fast_level_and_independent_blocks() -> None:
    packed = compress(LZ4, b"some text, and some text again " * 9999)
    assert packed[4] & 0x20  # Kafka reads no blocks that depend on the previous one
    assert packed == lz4_encode(b"some text, and some text again " * 9999, level=0)


def test_gzip_uses_the_level_that_kafka_uses() -> None:
    data = bytes(Random(3).choices(range(7), k=9999))
    assert zlib.decompress(compress(GZIP, data), wbits=47) == data
    assert compress(GZIP, data)[10:] == gzip_encode(data, 6)[10:]
