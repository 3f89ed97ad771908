"""Check that any bytes decode or raise MalformedRequest with the field, in bounded memory."""

import codecs
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.wire.layout import Message
from korvet.wire.messages.fetch import FetchRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.produce import ProduceRequest
from korvet.wire.primitives import AS_JAVA
from korvet.wire.schema import MalformedRequest, decode, encode
from tests.wire.values import CASES, CLASSES, a_message, case_id

ENDLESS = b"\xff" * 12


def refused(cls: type[Message], data: bytes, version: int) -> str:
    with pytest.raises(MalformedRequest) as caught:
        decode(cls, data, version)
    return str(caught.value)


def survives(cls: type[Message], data: bytes, version: int) -> None:
    """Decode the bytes. The only exception is MalformedRequest."""
    try:
        assert type(decode(cls, data, version)) is cls
    except MalformedRequest as error:
        assert ": " in str(error)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_message_cut_anywhere_is_refused_and_one_byte_more_too(
    cls: type[Message], version: int
) -> None:
    random = Random(f"{cls.__name__} {version}")
    encoded = min((encode(a_message(cls, version, random), version) for _ in range(8)), key=len)
    for end in range(min(len(encoded), 600)):
        refused(cls, encoded[:end], version)
    assert "1 bytes after the end" in refused(cls, encoded + b"\0", version)
    assert type(decode(cls, encoded + b"\0", version, exact=False)) is cls


@pytest.mark.parametrize("cls", CLASSES, ids=case_id)
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_damaged_bytes_are_decoded_or_malformed(
    cls: type[Message], data: st.DataObject, random: Random
) -> None:
    version = data.draw(st.integers(*cls.__message__.versions))
    encoded = bytearray(encode(a_message(cls, version, random), version)[:2000])
    for _ in range(random.randrange(1, 4)):
        if encoded:
            encoded[random.randrange(len(encoded))] = random.choice((0, 1, 127, 128, 254, 255))
    survives(cls, bytes(encoded), version)
    survives(cls, random.randbytes(random.randrange(60)), version)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=case_id)
def test_a_huge_length_anywhere_is_decoded_or_malformed(cls: type[Message], version: int) -> None:
    random = Random(f"wild {cls.__name__} {version}")
    encoded = min((encode(a_message(cls, version, random), version) for _ in range(8)), key=len)
    for at in range(min(len(encoded), 200)):
        for wild in (b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", ENDLESS):
            survives(cls, encoded[:at] + wild + encoded[at + len(wild) :], version)


HUGE_COUNTS = [
    (MetadataRequest, 0, "7fffffff", "topics: a count of 2147483647 where 0 bytes are left"),
    (MetadataRequest, 0, "fffffffe", "topics: a count of -2"),
    (MetadataRequest, 0, "ffffffff", "topics: a count of -1"),
    (MetadataRequest, 1, "fffffffe", "topics: a count of -2"),
    (MetadataRequest, 9, "ffffffff0f", "topics: a count of 4294967294"),
    (MetadataRequest, 9, "ffffffffff0f", "topics: a varint longer than 5 bytes"),
    (MetadataRequest, 9, "02 ff7f", "topics[0].name: a length of 16382 where 0 bytes are left"),
    (MetadataRequest, 1, "00000001 fffe", "topics[0].name: a length of -2"),
    (MetadataRequest, 1, "00000001 ffff", "topics[0].name: a length of -1"),
    (ProduceRequest, 3, "fffe 0001 00000000 00000000", "transactional_id: a length of -2"),
    (
        ProduceRequest,
        3,
        "ffff 0001 00000000 00000001 0001 74 00000001 00000007 7fffffff",
        "topic_data[0].partition_data[0].records: a length of 2147483647 where 0 bytes are left",
    ),
    (
        ProduceRequest,
        9,
        "00 0001 00000000 01 01 00 ffffffff0f",
        "tagged field 0 claims 4294967295 bytes, more than there are",
    ),
    (FetchRequest, 12, "ffffffff 00", "replica_id to topics: the data ends here"),
    (FetchRequest, 12, "ffffffff 00000000 00000000", "replica_id to topics: the data ends here"),
    (
        FetchRequest,
        12,
        "ffffffff 00000000 00000000 00000000 00 00000000 00000000 01 01 01 01 00 03 0761 62",
        "cluster_id: a length of 6 where 2 bytes are left",
    ),
    (
        FetchRequest,
        12,
        "ffffffff 00000000 00000000 00000000 00 00000000 00000000 01 01 01 01 00 04 02 61 00 00",
        "cluster_id: its tag announced 4 bytes",
    ),
]


@pytest.mark.parametrize(
    ("cls", "version", "text", "reason"), HUGE_COUNTS, ids=[row[3] for row in HUGE_COUNTS]
)
def test_a_wrong_length_or_count_is_named_with_its_field(
    cls: type[Message], version: int, text: str, reason: str
) -> None:
    assert reason in refused(cls, bytes.fromhex(text), version)


@pytest.mark.parametrize("length", [2**15 - 1, 2**15])
def test_a_text_is_no_longer_in_a_flexible_version_than_in_others(length: int) -> None:
    """Otherwise clients of the other versions could not list a group of that name."""
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t" * length)])
    data = encode(wanted, 9)
    if length < 2**15:
        assert decode(MetadataRequest, data, 9) == wanted
    else:
        assert refused(MetadataRequest, data, 9) == "topics[0].name: a text of 32768 bytes"


TAGS = b"\x91\xa1\x0f" + bytes(2 * 250_001)
"""250,001 tagged fields of two bytes each: 100 MB of them would take seconds."""


@pytest.mark.parametrize(
    ("cls", "version", "start"),
    [
        (MetadataRequest, 9, bytes.fromhex("00 00 00 00")),
        (MetadataRequest, 9, bytes.fromhex("02 02 74")),
        (FetchRequest, 12, bytes(25) + bytes.fromhex("01 01 01")),
        (ProduceRequest, 9, bytes.fromhex("00 0001 00000000 01")),
    ],
)
def test_more_tagged_fields_than_any_request_has_are_refused(
    cls: type[Message], version: int, start: bytes
) -> None:
    assert "more elements than any request has" in refused(cls, start + TAGS, version)


def test_a_small_request_cannot_make_us_allocate_much() -> None:
    wrong: list[tuple[type[Message], int, bytes]] = [
        (MetadataRequest, 0, bytes.fromhex("7fffffff") + bytes(64)),
        (MetadataRequest, 9, bytes.fromhex("ffffffff07") + bytes(64)),
        (ProduceRequest, 3, bytes.fromhex("ffff 0001 00000000 7fffffff") + bytes(64)),
        (FetchRequest, 4, bytes(17) + bytes.fromhex("00000001 0000 7fffffff") + bytes(64)),
    ]
    for cls, version, data in wrong:
        refused(cls, data, version)  # the codec itself is compiled outside the measurement
    tracemalloc.start()
    try:
        for cls, version, data in wrong:
            refused(cls, data, version)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("version", [1, 9])
def test_text_that_is_not_utf_8_is_taken_as_java_takes_it(version: int) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="gr?n??")])
    data = encode(asked, version).replace(b"?n??", b"\xfcn\xe2\x98")
    found = decode(MetadataRequest, data, version)
    assert found.topics is not None
    assert found.topics[0].name == "gr\ufffdn\ufffd"


def test_no_text_costs_more_than_one_call_however_much_of_it_is_wrong() -> None:
    handler = codecs.lookup_error(AS_JAVA)
    calls = 0

    def counted(error: UnicodeError) -> tuple[str | bytes, int]:
        nonlocal calls
        calls += 1
        return handler(error)

    codecs.register_error(AS_JAVA, counted)
    try:
        data = bytes.fromhex("00000002") + 2 * (
            (5000).to_bytes(2, "big") + b"\xff\xc3a\x80b" * 1000
        )
        found = decode(MetadataRequest, data, 1)
    finally:
        codecs.register_error(AS_JAVA, handler)
    assert found.topics is not None
    assert [topic.name for topic in found.topics] == ["\ufffd\ufffda\ufffdb" * 1000] * 2
    assert calls == 2


def test_text_does_not_grow_beyond_what_text_can_be() -> None:
    for size, fits in ((10_922, True), (10_923, False)):
        data = bytes.fromhex("00000001") + size.to_bytes(2, "big") + b"\xff" * size
        if fits:
            found = decode(MetadataRequest, data, 1)
            assert encode(found, 1)[6:] == "\ufffd".encode() * size
        else:
            assert refused(MetadataRequest, data, 1) == "topics[0].name: not UTF-8"
