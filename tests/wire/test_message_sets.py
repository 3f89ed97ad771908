"""Check message sets of formats v0 and v1, which clients up to Kafka 0.10 write and read."""

import struct
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.wire import compression, message_sets
from korvet.wire.records import BadBatch, Record

blobs = st.none() | st.binary(max_size=40)
rows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2**42), blobs, blobs), min_size=1, max_size=8
)
few = settings(max_examples=50, deadline=None, derandomize=True, database=None)
SETS = [(0, compression.NONE), (0, compression.GZIP), (0, compression.SNAPPY)] + [
    (1, n) for n in range(4)
]


def message(
    value: bytes | None, *, magic: int = 1, codec: int = 0, key: bytes | None = None
) -> bytes:
    """Return one message at offset 0."""
    body = struct.pack(">bb", magic, codec)
    body += struct.pack(">q", 77) * (magic == 1)
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def refusal(data: bytes, limit: int = 10_000) -> ErrorCode:
    with pytest.raises(BadBatch) as caught:
        message_sets.parse(data, limit=limit)
    assert str(caught.value)
    return caught.value.error


@pytest.mark.parametrize(("magic", "codec"), SETS)
@few
@given(made=rows, base=st.integers(0, 2**50))
def test_what_is_built_is_read_back(
    magic: int, codec: int, made: list[tuple[int, int, bytes | None, bytes | None]], base: int
) -> None:
    wanted: list[Record] = []
    offset = base
    for gap, time, key, value in made:
        offset += gap
        wanted.append((offset, time if magic else -1, key, value, []))
        offset += 1
    built = message_sets.build(wanted, magic=magic, codec=codec)
    assert message_sets.is_compressed(built) == (codec != compression.NONE)
    found = message_sets.parse(built, limit=100_000)
    assert found == [(n, *row[1:]) for n, row in enumerate(wanted)]


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, compression.LZ4), (0, compression.ZSTD), (1, compression.ZSTD)]
)
def test_a_codec_that_the_format_lacks_is_not_used(magic: int, codec: int) -> None:
    built = message_sets.build([(0, 1, None, b"v" * 500, [])], magic=magic, codec=codec)
    assert not message_sets.is_compressed(built)


@pytest.mark.parametrize("flags", [0x60, 0x68, 0x61, 0x69])
@pytest.mark.parametrize("checksum", [0x00, 0x82, 0xFF])
def test_lz4_of_the_first_format_is_read_with_any_header_checksum(
    flags: int, checksum: int
) -> None:
    # KAFKA-3160: the clients of Kafka 0.8.2 and 0.9 hash other bytes than the lz4 format defines.
    inner = b"".join(message(b"%d" % n * 200) for n in range(5))
    sizes = len(inner).to_bytes(8, "little") * (flags & 8 == 8) + bytes(4) * (flags & 1)
    frame = compression.compress(compression.LZ4, inner)
    plain = 7 if frame[4] & 8 == 0 else 15
    odd = frame[:4] + bytes((flags | frame[4] & 0x34, frame[5])) + sizes
    odd += bytes((checksum,)) + frame[plain:]
    found = message_sets.parse(message(odd, magic=0, codec=compression.LZ4), limit=100_000)
    assert [value for _, _, _, value, _ in found] == [b"%d" % n * 200 for n in range(5)]


def test_messages_carry_their_offsets() -> None:
    built = message_sets.build([(7, 1, None, b"a", []), (9, 1, None, b"b", [])], magic=0)
    assert struct.unpack_from(">q", built)[0] == 7
    (size,) = struct.unpack_from(">i", built, 8)
    assert struct.unpack_from(">q", built, 12 + size)[0] == 9


def test_a_compressed_set_has_the_offset_of_its_last_and_inner_ones_count_from_0() -> None:
    made: list[Record] = [(40, 1, None, b"a", []), (42, 1, None, b"b", [])]
    for magic, inner in ((0, [40, 42]), (1, [0, 2])):
        built = message_sets.build(made, magic=magic, codec=compression.GZIP)
        assert struct.unpack_from(">q", built)[0] == 42
        at = 12 + 6 + 8 * magic + 4 + 4
        plain = compression.decompress(compression.GZIP, built[at:], 1000)
        first = struct.unpack_from(">q", plain)[0]
        second = struct.unpack_from(">q", plain, 12 + struct.unpack_from(">i", plain, 8)[0])[0]
        assert [first, second] == inner


REFUSED = [
    (b"", ErrorCode.CORRUPT_MESSAGE),
    (b"x" * 10, ErrorCode.CORRUPT_MESSAGE),
    (message(b"v") + b"half", ErrorCode.CORRUPT_MESSAGE),
    (message(b"v", magic=2), ErrorCode.CORRUPT_MESSAGE),
    (message(b"v", codec=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (message(b"v", magic=0, codec=3), ErrorCode.CORRUPT_MESSAGE),
    (message(None, codec=1), ErrorCode.CORRUPT_MESSAGE),
    (message(b"no gzip", codec=1), ErrorCode.CORRUPT_MESSAGE),
    (
        message(
            compression.compress(1, message(compression.compress(1, message(b"v")), codec=1)),
            codec=1,
        ),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    (
        message(compression.compress(1, message(bytes(20_000))), codec=1),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    (message(compression.compress(1, b""), codec=1), ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("data", "error"), REFUSED)
def test_what_is_no_message_set_is_refused(data: bytes, error: ErrorCode) -> None:
    assert refusal(data) is error


def test_the_bound_holds_for_all_messages_of_a_set_together() -> None:
    one = message(
        compression.compress(compression.GZIP, message(bytes(6000))), codec=compression.GZIP
    )
    assert len(message_sets.parse(one, limit=10_000)) == 1
    assert refusal(one + one) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_cut_or_flipped_anywhere_is_corrupt(magic: int) -> None:
    data = message(b"value", magic=magic, key=b"key")
    for end in range(len(data)):
        assert refusal(data[:end]) is ErrorCode.CORRUPT_MESSAGE
    for at in range(8, len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        assert refusal(bytes(broken)) is ErrorCode.CORRUPT_MESSAGE


def test_random_bytes_are_a_message_set_or_refused() -> None:
    random = Random(3)
    for _ in range(500):
        data = bytearray(message(random.randbytes(random.randrange(30)), key=b"k"))
        size = random.choice((-1, 0, 13, 14, 2**31 - 1, len(data)))
        struct.pack_into(">i", data, 8, size)
        try:
            message_sets.parse(bytes(data), limit=1000)
        except BadBatch as error:
            assert error.error is ErrorCode.CORRUPT_MESSAGE


def test_only_as_many_records_go_into_a_set_as_it_may_hold_and_one_more() -> None:
    made: list[Record] = [(n, 1, None, bytes(100), []) for n in range(10)]
    kept = message_sets.first_within(made, 300, magic=1)
    assert 3 <= len(kept) <= 4
    assert message_sets.first_within(made, 0, magic=0) == made[:1]
    assert message_sets.first_within(made, 10**6, magic=0) == made
