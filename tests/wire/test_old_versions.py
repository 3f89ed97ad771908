"""Check the versions that Kafka 4 dropped against aiokafka, which still has them."""

import random
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.struct import Struct

from korvet.wire.layout import Layout, Message, Slot
from korvet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from korvet.wire.schema import decode, encode, layout_of
from tests.wire.test_oracle import KNOWN
from tests.wire.values import CASES, a_message, case_id

_MODULES = ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce")
_BY_ENDING = {"Request": True, "Response": False}


def _theirs() -> dict[tuple[int, int, bool], type[Struct]]:
    """Return aiokafka's classes by (key, version, whether it is a request)."""
    found = {}
    for module in _MODULES:
        for name, cls in vars(import_module(f"aiokafka.protocol.{module}")).items():
            stem = name.partition("_v")[0]
            request = next((r for end, r in _BY_ENDING.items() if stem.endswith(end)), None)
            if request is not None and hasattr(cls, "API_VERSION") and hasattr(cls, "SCHEMA"):
                found[cls.API_KEY, cls.API_VERSION, request] = cls
    return found


THEIRS = _theirs()
DROPPED = [
    (cls, version, THEIRS[place])
    for cls, version in CASES
    if (cls, version) not in KNOWN
    and (place := (cls.__message__.key, version, cls.__message__.request)) in THEIRS
]


def test_the_versions_in_question_are_all_there() -> None:
    places = {(cls.__message__.key, version) for cls, version, _ in DROPPED}
    assert {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)} <= places
    assert {(8, 0), (8, 1), (9, 0), (19, 0), (19, 1), (20, 0), (32, 0)} <= places


def _in_order(layout: Layout, value: Any) -> list[Any]:
    """Return our value in aiokafka's form: nested lists without field names."""
    return [_item(slot, getattr(value, slot.name)) for slot in layout.plain]


def _item(slot: Slot, value: Any) -> Any:
    if value is None:
        return None
    if slot.kind == "list" and slot.item is not None:
        return [_item(slot.item, item) for item in value]
    if slot.body is not None:
        return _in_order(slot.body, value)
    return value


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize(("cls", "version", "theirs"), DROPPED, ids=case_id)
def test_aiokafka_reads_what_we_write_and_writes_what_we_read(
    cls: type[Message], version: int, theirs: type[Struct]
) -> None:
    chance = random.Random(f"old {cls.__name__} {version}")
    for _ in range(8):
        ours = a_message(cls, version, chance, mild=True)
        encoded = encode(ours, version)
        stream = BytesIO(encoded)
        read = [field.decode(stream) for field in theirs.SCHEMA.fields]
        assert stream.read() == b""
        assert _as_lists(read) == _in_order(layout_of(cls, version), ours)
        assert decode(cls, theirs.SCHEMA.encode(read), version) == ours


BY_HAND = [
    (
        OffsetForLeaderEpochRequest,
        0,
        "00000001 0001 74 00000001 00000002 00000003",
        ["t", 2, -1, 3],
    ),
    (
        OffsetForLeaderEpochRequest,
        2,
        "00000001 0001 74 00000001 00000002 00000009 00000003",
        ["t", 2, 9, 3],
    ),
]


@pytest.mark.parametrize(("cls", "version", "text", "expected"), BY_HAND, ids=case_id)
def test_versions_that_no_library_has_match_bytes_written_by_hand(
    cls: type[OffsetForLeaderEpochRequest], version: int, text: str, expected: list[object]
) -> None:
    request = decode(cls, bytes.fromhex(text), version)
    partition = request.topics[0].partitions[0]
    got = [
        request.topics[0].topic,
        partition.partition,
        partition.current_leader_epoch,
        partition.leader_epoch,
    ]
    assert got == expected
    assert encode(request, version) == bytes.fromhex(text)


def test_version_0_of_an_epochs_end_has_no_leader_epoch() -> None:
    start, end = "00000001 0001 74 00000001 0000 00000002", "0000000000000007"
    for version, middle in ((0, ""), (1, "00000005")):
        data = bytes.fromhex(start + middle + end)
        response = decode(OffsetForLeaderEpochResponse, data, version)
        partition = response.topics[0].partitions[0]
        assert (partition.partition, partition.end_offset) == (2, 7)
        assert partition.leader_epoch == (5 if version else -1)
        assert encode(response, version) == data
