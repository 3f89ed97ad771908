"""Check message sets of Kafka 0.7: accepted and refused sets, and the offsets of records."""

import gzip
import struct
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.wire import compression, message_sets_v07
from korvet.wire.records import BadBatch
from tests.legacy.wire import gzipped, message

LIMITS = {"limit": 1 << 20, "max_bytes": 1 << 16}


def snapped(*payloads: bytes, framed: bool) -> bytes:
    """Compress the payloads into one snappy message, raw or in the framing of snappy-java."""
    inner = b"".join(map(message, payloads))
    if framed:
        return message(compression.compress(compression.SNAPPY, inner), codec=2)
    return message(bytes(cramjam.snappy.compress_raw(inner)), codec=2)


def raw_of(data: bytes) -> bytes:
    return b"".join(bytes(piece.raw) for piece in message_sets_v07.pieces(data, **LIMITS))


def records(data: bytes, first: int = 0) -> list[tuple[int, bytes | None]]:
    return [(row[0], row[3]) for row in message_sets_v07.records_of(data, first, 7)]


def refused(data: bytes, **limits: int) -> tuple[ErrorCode, str]:
    with pytest.raises(BadBatch) as caught:
        message_sets_v07.pieces(data, **{**LIMITS, **limits})
    return caught.value.error, str(caught.value)


ONE = message(b"one")
GOOD = ONE + message(b"", magic=0) + gzipped(b"a", b"", b"ccc") + message(b"last")

REFUSED = {
    "an empty set": (b"", "empty"),
    "half a length": (ONE + b"\0\0", "2 bytes are no message"),
    "half a message": (ONE + ONE[:-1], "says it has 9 bytes"),
    "a length too small": (struct.pack(">ibbI", 3, 1, 0, 0), "says it has 3 bytes"),
    "a negative length": (struct.pack(">ibbI", -5, 1, 0, 0) + bytes(20), "says it has -5 bytes"),
    "a wrong checksum": (ONE + ONE[:-1] + b"X", "CRC-32"),
    "a wrong checksum of magic 0": (message(b"old", magic=0)[:-1] + b"X", "CRC-32"),
    "magic 2": (b"\0\0\0\x09\x02\0" + bytes(7), "magic 2"),
    "a payload that is no gzip": (message(b"plain", codec=1), "gzip"),
    "a payload that is no snappy": (message(b"\xff\xff\xff\xff", codec=2), "snappy"),
    "half a message inside": (message(gzip.compress(ONE[:-1]), codec=1), "says it has"),
    "compression in compression": (
        message(gzip.compress(gzipped(b"x")), codec=1),
        "holds another compressed one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_set_is_refused_whole(name: str) -> None:
    data, words = REFUSED[name]
    error, reason = refused(data)
    assert (error, words in reason) == (ErrorCode.CORRUPT_MESSAGE, True), reason


def test_codecs_of_later_kafkas_are_unknown() -> None:
    assert refused(message(b"x", codec=3))[0] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_long_message_and_a_bomb_are_too_large() -> None:
    assert refused(message(bytes(100)), max_bytes=105)[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert message_sets_v07.pieces(message(bytes(100)), limit=0, max_bytes=106)
    bomb = message(gzip.compress(message(bytes(1 << 20))), codec=1)
    assert refused(bomb)[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert message_sets_v07.pieces(bomb, limit=1 << 21, max_bytes=1 << 20)


def test_bombs_are_bounded_together() -> None:
    one = message(gzip.compress(message(bytes(600_000))), codec=1)
    assert message_sets_v07.pieces(one, **LIMITS)
    assert refused(one + one)[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_a_good_set_is_kept_byte_for_byte() -> None:
    assert raw_of(GOOD) == GOOD


@pytest.mark.parametrize("framed", [True, False])
def test_snappy_is_read_raw_and_framed(framed: bool) -> None:
    data = snapped(b"a", b"bb", framed=framed)
    assert raw_of(data) == data
    assert records(data, 100) == [(100, b"a"), (101, b"bb")]


def test_every_record_has_an_offset_inside_its_message() -> None:
    packed = len(ONE) + 9
    end = len(GOOD) - len(message(b"last"))
    assert records(GOOD, 1000) == [
        (1000, b"one"),
        (1000 + len(ONE), b""),
        (1000 + packed, b"a"),
        (1001 + packed, b""),
        (1002 + packed, b"ccc"),
        (1000 + end, b"last"),
    ]


def test_an_empty_compressed_set_is_kept_and_holds_nothing() -> None:
    empty = gzipped()
    (piece,) = message_sets_v07.pieces(empty, **LIMITS)
    assert (bytes(piece.raw), piece.records, piece.tail) == (empty, 0, len(empty))
    (piece,) = message_sets_v07.pieces(ONE + empty, **LIMITS)
    assert (piece.records, piece.tail) == (1, len(ONE) + len(empty) - 1)


def test_a_message_with_more_records_than_bytes_is_packed_again() -> None:
    dense = gzipped(*[b"same"] * 2000)
    assert len(dense) < 2000
    found = message_sets_v07.pieces(ONE + dense + ONE, **LIMITS)
    data = b"".join(bytes(piece.raw) for piece in found)
    assert data != ONE + dense + ONE
    rows = records(data)
    assert [value for _, value in rows] == [b"one", *[b"same"] * 2000, b"one"]
    assert len({offset for offset, _ in rows}) == 2002
    assert sum(piece.records for piece in found) == 2002


def test_the_compressed_messages_of_a_set_hold_only_so_many_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_sets_v07, "MAX_INNER", 3)
    assert message_sets_v07.pieces(gzipped(b"", b"", b""), **LIMITS)
    assert refused(gzipped(b"", b"", b"", b""))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert message_sets_v07.pieces(gzipped(b"", b"") + gzipped(b""), **LIMITS)
    assert refused(gzipped(b"", b"") + gzipped(b"", b""))[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_a_long_set_is_stored_in_pieces() -> None:
    data = b"".join(message(bytes([n % 256]) * 1000) for n in range(1000))
    found = message_sets_v07.pieces(data, **LIMITS)
    assert len(found) == 8
    assert b"".join(bytes(piece.raw) for piece in found) == data
    assert max(len(piece.raw) for piece in found) < message_sets_v07.PIECE_BYTES + 1010


messages = st.lists(
    st.one_of(
        st.binary(max_size=60).map(message),
        st.binary(max_size=60).map(lambda body: message(body, magic=0)),
        st.lists(st.binary(max_size=30), max_size=6).map(lambda bodies: gzipped(*bodies)),
        st.lists(st.binary(max_size=30), max_size=6).map(
            lambda bodies: snapped(*bodies, framed=True)
        ),
    ),
    min_size=1,
    max_size=12,
)


@given(parts=messages, first=st.integers(0, 1 << 50))
def test_pieces_say_how_many_records_there_are_and_where_the_last_one_is(
    parts: list[bytes], first: int
) -> None:
    at = first
    for piece in message_sets_v07.pieces(b"".join(parts), **LIMITS):
        rows = records(bytes(piece.raw), at)
        at += len(piece.raw)
        assert len(rows) == piece.records
        offsets = [offset for offset, _ in rows]
        assert offsets == sorted(set(offsets))
        assert (offsets[-1] if offsets else at - len(piece.raw) - 1) == at - piece.tail - 1


@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_kept_unchanged(data: bytes) -> None:
    try:
        found = message_sets_v07.pieces(data, **LIMITS)
    except BadBatch:
        return
    assert b"".join(bytes(piece.raw) for piece in found) == data


@given(rows=st.lists(st.one_of(st.none(), st.binary(max_size=80)), min_size=1, max_size=20))
def test_records_of_newer_clients_become_messages(rows: list[bytes | None]) -> None:
    built = message_sets_v07.build((n, 0, b"key", value, []) for n, value in enumerate(rows))
    assert len(built) == sum(
        message_sets_v07.sizes((n, 0, None, v, []) for n, v in enumerate(rows))
    )
    assert [value for _, value in records(bytes(built))] == [value or b"" for value in rows]
    assert raw_of(bytes(built)) == built


def test_the_checksum_covers_the_payload_alone() -> None:
    assert message_sets_v07.message(b"payload") == (
        struct.pack(">ibbI", 13, 1, 0, zlib.crc32(b"payload")) + b"payload"
    )
