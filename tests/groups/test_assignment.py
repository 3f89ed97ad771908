"""Check the decoding of subscriptions and assignments that Kafka's clients encode."""

import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from korvet.groups.assignment import assigned_partitions

PLACES = [("orders", [0, 7]), ("none", []), ("ünï", [1])]
GOOD = ConsumerProtocolMemberAssignment(0, PLACES, b"more").encode()


def test_an_assignment_lists_its_partitions() -> None:
    assert assigned_partitions(GOOD) == [("orders", 0), ("orders", 7), ("ünï", 1)]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"tasks",
        struct.pack(">hi", 0, 2_000_000_000),
        struct.pack(">hih", 0, 1, -5),
        struct.pack(">hih1si", 0, 1, 1, b"t", -1),
        struct.pack(">hih1si", 0, 1, 1, b"t", 2_000_000_000),
        struct.pack(">hih2si", 0, 1, 2, b"\xff\xff", 0),
    ],
)
def test_a_malformed_assignment_lists_no_partitions(bad: bytes) -> None:
    assert assigned_partitions(bad) == []


def test_a_truncated_assignment_lists_no_partitions() -> None:
    end = len(GOOD) - len(b"more") - 4
    assert all(assigned_partitions(GOOD[:at]) == [] for at in range(end))
