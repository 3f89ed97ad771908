"""Check the message classes, the registry and the codecs, apart from the bytes."""

from typing import Annotated
from uuid import UUID

import msgspec
import pytest

from korvet.wire.layout import Field, Message, layout
from korvet.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.schema import (
    NotEncodable,
    UnsupportedVersion,
    decode,
    encode,
    encode_parts,
    i32,
    messages,
    request,
)
from tests.wire.values import CLASSES


def a_produce_request(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic])


def a_fetch_response(*records: object) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=i, error_code=0, high_watermark=0, records=value)  # type: ignore[arg-type]
        for i, value in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_messages_have_key_versions_and_first_flexible_version() -> None:
    info = HeartbeatRequest.__message__
    assert (info.key, info.versions, info.flexible, info.request) == (12, (0, 4), 4, True)
    assert info.name == "HeartbeatRequest"
    assert HeartbeatRequest in messages()


def test_every_request_has_its_response_in_the_same_versions() -> None:
    sides: dict[int, list[tuple[object, ...]]] = {}
    for cls in CLASSES:
        info = cls.__message__
        sides.setdefault(info.key, []).append((info.versions, info.flexible))
    assert all(len(pair) == 2 and pair[0] == pair[1] for pair in sides.values())


def test_a_key_is_given_once() -> None:
    with pytest.raises(TypeError, match="key 12 belongs to"):

        @request(key=12, versions=(0, 0), flexible=None)
        class Another(Message):
            pass


def test_values_are_frozen_and_keyword_only() -> None:
    request = MetadataRequest(topics=None)
    with pytest.raises(AttributeError):
        request.topics = []  # type: ignore[misc]
    with pytest.raises(TypeError):
        MetadataRequest(None)  # type: ignore[call-arg]


@pytest.mark.parametrize("version", [-1, 14, 99])
def test_a_version_that_never_was_is_unsupported_in_both_directions(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match="MetadataRequest exists in 0 to 13"):
        decode(MetadataRequest, b"", version)
    with pytest.raises(UnsupportedVersion):
        encode(MetadataRequest(topics=None), version)


def test_a_field_outside_its_versions_has_its_default_and_is_not_written() -> None:
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id="static"
    )
    assert decode(HeartbeatRequest, encode(request, 3), 3) == request
    without = decode(HeartbeatRequest, encode(request, 2), 2)
    assert without == msgspec.structs.replace(request, group_instance_id=None)


def test_decoded_records_are_views_into_the_request_not_copies() -> None:
    frame = bytearray(encode(a_produce_request(b"payload"), 9))
    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"payload"


def test_encoded_records_are_passed_through_not_copied() -> None:
    first, second, third = b"one" * 50, memoryview(b"two"), bytearray(b"three")
    parts = encode_parts(a_fetch_response(first, [second, third]), 12)
    assert [any(part is given for part in parts) for given in (first, second, third)] == [True] * 3
    again = decode(FetchResponse, b"".join(parts), 12)
    assert [bytes(p.records) for p in again.responses[0].partitions] == [first, b"twothree"]  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", [b"", [], [b""]])
def test_no_records_are_a_length_of_zero_and_absent_ones_are_null(empty: object) -> None:
    version = 11
    some = decode(FetchResponse, encode(a_fetch_response(empty, None), version), version)
    assert [p.records for p in some.responses[0].partitions] == [b"", None]


def test_a_message_without_records_is_one_part() -> None:
    assert len(encode_parts(MetadataRequest(topics=None), 12)) == 1


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(MetadataRequest(topics=[]), 9)
    assert plain[-1:] == b"\0"
    tagged = plain[:-1] + bytes.fromhex("02 05 03 616263 ff01 00")
    assert decode(MetadataRequest, tagged, 9) == MetadataRequest(topics=[])
    fetch = FetchRequest(cluster_id="c", max_wait_ms=0, min_bytes=0, topics=[])
    encoded = encode(fetch, 12)
    assert encoded.endswith(bytes.fromhex("01 00 02 0263"))
    more = encoded[:-5] + bytes.fromhex("02 00 02 0263 63 04 01020304")
    assert decode(FetchRequest, more, 12) == fetch


def test_more_than_127_unknown_tagged_fields_are_skipped_too() -> None:
    plain = encode(MetadataRequest(topics=[]), 9)
    tagged = plain[:-1] + bytes.fromhex("c801") + bytes.fromhex("0500") * 200
    assert decode(MetadataRequest, tagged, 9) == MetadataRequest(topics=[])


NO_FIT = [
    (MetadataRequest(topics=None), 0, "topics"),
    (
        MetadataResponse(
            brokers=[],
            topics=[MetadataResponseTopic(error_code=0, name=None, partitions=[])],
        ),
        9,
        "topics[].name",
    ),
    (
        MetadataResponse(
            brokers=None,  # type: ignore[arg-type]
            topics=[],
        ),
        12,
        "brokers",
    ),
    (HeartbeatRequest(group_id="g", generation_id=1 << 31, member_id="m"), 0, "generation_id"),
    (HeartbeatRequest(group_id="g" * 40_000, generation_id=1, member_id="m"), 0, "group_id"),
    (HeartbeatRequest(group_id="\ud800", generation_id=1, member_id="m"), 4, "group_id"),
    (a_fetch_response("text"), 4, "responses[].partitions[].records"),
    (a_fetch_response([1]), 4, "responses[].partitions[].records"),
]


@pytest.mark.parametrize(("value", "version", "path"), NO_FIT, ids=[row[2] for row in NO_FIT])
def test_what_a_version_cannot_hold_is_never_encoded(
    value: Message, version: int, path: str
) -> None:
    with pytest.raises(NotEncodable) as caught:
        encode(value, version)
    assert str(caught.value).startswith(path)


def test_the_same_id_is_the_same_object_however_often_it_arrives() -> None:
    topic = FetchableTopicResponse(topic_id=UUID(int=7), partitions=[])
    encoded = encode(FetchResponse(responses=[topic, topic]), 13)
    first, second = decode(FetchResponse, encoded, 13).responses
    assert first.topic_id is second.topic_id


def test_lists_of_defaults_are_not_shared() -> None:
    first, second = (
        decode(FetchRequest, encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 4), 4)
        for _ in range(2)
    )
    assert first.forgotten_topics_data is not second.forgotten_topics_data


def test_an_annotation_without_a_wire_type_is_refused_by_name() -> None:
    class Loose(Message):
        number: int

    with pytest.raises(TypeError, match=r"Loose\.number"):
        layout(Loose, 0, flexible=False)


def test_a_tagged_field_needs_a_flexible_version_and_a_default() -> None:
    class TooEarly(Message):
        number: Annotated[i32, Field(tag=0)] = 0

    class Bare(Message):
        number: Annotated[i32, Field(tag=0)]

    with pytest.raises(TypeError, match=r"TooEarly\.number is tagged"):
        layout(TooEarly, 0, flexible=False)
    with pytest.raises(TypeError, match=r"Bare\.number is tagged and has no default"):
        layout(Bare, 0, flexible=True)
