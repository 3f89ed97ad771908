"""Check that the reader of `benchmarks.budget` detects lost, changed, doubled and unordered
records."""

import struct
from collections.abc import Callable

import pytest

from benchmarks.budget_reader import Partition, Wrong
from korvet.testing.bench.payloads import CRC_AT, batch

TOPIC, RECORDS = "t", 10
MADE = [batch(RECORDS, 50, seed=seed) for seed in range(3)]
CRCS = [struct.unpack_from(">I", each, CRC_AT)[0] for each in MADE]


def at(offset: int, variant: int) -> bytes:
    return struct.pack(">q", offset) + MADE[variant][8:]


def reply(*batches: bytes, error: int = 0) -> bytes:
    """Return a Fetch v11 reply of one partition."""
    body = struct.pack(">iihii", 0, 0, 0, 0, 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    body += struct.pack(">iihqqqii", 1, 0, error, 1000, 1000, 0, -1, -1)
    data = b"".join(batches)
    return body + struct.pack(">i", len(data)) + data


def test_batches_in_order_are_counted_and_a_cut_one_is_left() -> None:
    partition = Partition(TOPIC, 0, CRCS)
    assert partition.take(reply(at(0, 0), at(10, 1), at(20, 2)[:-1]))
    assert (partition.position, partition.batches, partition.high_watermark) == (20, 2, 1000)
    assert partition.take(reply(at(20, 2), at(30, 0))) and not partition.take(reply())
    assert partition.position == 40


def changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda: reply(at(20, 2)), "offset 20 in place of 10"),
        (lambda: reply(at(0, 0)), "offset 0 in place of 10"),
        (lambda: reply(changed(at(10, 1))), "the CRC of the batch at 10 differs"),
        (lambda: reply(at(10, 2)), "another batch at 10 than was sent"),
        (lambda: reply(error=1), "Fetch at 10: error code 1"),
    ],
)
def test_what_does_not_follow_is_an_error(second: Callable[[], bytes], reason: str) -> None:
    partition = Partition(TOPIC, 0, CRCS)
    assert partition.take(reply(at(0, 0)))
    with pytest.raises(Wrong, match=reason):
        partition.take(second())
