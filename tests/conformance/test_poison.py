"""Check that each batch of `poison` gets Kafka 4.3's error code, or is refused by Korvet only."""

from functools import cache
from typing import NamedTuple

import pytest

from korvet.wire import compression, records
from korvet.wire.records import BadBatch
from tests.conformance import poison
from tests.support.connected_broker import Broker, broker
from tests.support.exchanges import fetch
from tests.support.raw_client import to_produce
from tests.support.wire_client import batches_in

__all__ = ["broker"]

INVALID_RECORD, CORRUPT_MESSAGE, INVALID_TIMESTAMP = 87, 2, 32
UNSUPPORTED_COMPRESSION_TYPE, MESSAGE_TOO_LARGE = 76, 10
FAILS = -1
"""Kafka's error code if the request fails with an internal error: nothing is stored."""

STRICTER = frozenset(
    {
        # Kafka does not check these in a compressed batch. Its consumers fail on them.
        "a record longer than the batch",
        "a record of the maximal length",
        "a last record longer than the batch",
        "a record too long by one",
        "a record too short by one",
        "a record of negative length",
        "a record of length 0",
        # Kafka checks these in a compressed batch only. Consumers skip or repeat records.
        "equal offset deltas",
        "offset deltas with gaps",
        "descending offset deltas",
        "a negative offset delta",
        "an offset delta above the last",
        # The Java client reads these; other clients do not.
        "a key of negative length",
        "a value of negative length",
        "a header value of negative length",
        "a header name that is no UTF-8",
        "attributes above 127 in a record",
        "section: trailing bytes",
        "section: damaged lz4 content checksum",
        # InitProducerId returns no such producer.
        "header: producer without epoch",
    }
)
OTHERWISE = {
    # The producer splits the batch, as for any other size limit.
    **{("header: maximal count", codec): MESSAGE_TOO_LARGE for codec in compression.NAMES},
    # zstd reports this damage as a result that no buffer has room for.
    ("section: damaged at its end", "zstd"): MESSAGE_TOO_LARGE,
    ("header: codec 5", "none"): UNSUPPORTED_COMPRESSION_TYPE,
    ("header: codec 6", "none"): UNSUPPORTED_COMPRESSION_TYPE,
    ("header: codec 7", "none"): UNSUPPORTED_COMPRESSION_TYPE,
}
FORMS = [("record", "dense"), ("batch", "dense"), ("batch", "bytes")]


class Row(NamedTuple):
    """A batch and the error code that the broker returns for it."""

    case: str
    codec: str
    batch: bytes
    wanted: int


@cache
def rows() -> tuple[Row, ...]:
    recorded = poison.read()
    return tuple(
        Row(case, codec, batch, wanted(case, codec, recorded[case][codec]))
        for case, codec, batch in poison.rows()
    )


def wanted(case: str, codec: str, recorded: int) -> int:
    """Return Korvet's error code if Kafka's is `recorded`."""
    if (case, codec) in OTHERWISE:
        return OTHERWISE[case, codec]
    if recorded == FAILS or (recorded == 0 and case in STRICTER):
        return INVALID_RECORD
    return recorded


async def answers(broker: Broker, topic: str, batches: list[bytes]) -> list[int]:
    """Return the error code of each batch, sent to the topic's partitions in turn."""
    response = await broker.ask(to_produce(topic, batches), poison.PRODUCE)
    return [row.error_code for row in response.responses[0].partition_responses]


@pytest.mark.parametrize(("form", "mode"), FORMS)
async def test_no_poisonous_batch_is_stored(broker: Broker, form: str, mode: str) -> None:
    table = rows()
    await broker.create("t", partitions=len(table), storage_format=form, offset_mode=mode)
    found = await answers(broker, "t", [row.batch for row in table])
    different = [
        (row.case, row.codec, code, row.wanted)
        for row, code in zip(table, found, strict=True)
        if code != row.wanted
    ]
    assert not different
    keys = broker.services.keys
    streams = [keys.partition("t", at).stream for at in range(len(table))]
    lengths = [await broker.services.store.command("XLEN", stream) for stream in streams]
    assert [bool(length) for length in lengths] == [row.wanted == 0 for row in table]


async def test_header_validation_leaves_the_records_of_a_batch_unread(broker: Broker) -> None:
    section = poison.sealed(poison.BODIES["trailing bytes"], compression.NONE)
    await broker.create("t", storage_format="batch", records_validation="header")
    assert await answers(broker, "t", [section]) == [0]
    await broker.create("r", storage_format="record", records_validation="header")
    # A record of 2 GB, in a batch that is large enough for its headers to be counted.
    long = poison.sealed(b"\xfe\xff\xff\xff\x0f" + bytes(40_000), compression.NONE)
    for refused in (section, long):
        assert await answers(broker, "r", [refused]) == [INVALID_RECORD]


@pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
async def test_a_wrong_max_timestamp_is_corrected(broker: Broker, codec: int) -> None:
    newest = poison.NOW_MS + 3600
    body = compression.compress(codec, poison.BODIES["a timestamp above the header's"])
    sent = poison.sealed(body, codec, attributes=records.LOG_APPEND_TIME)
    await broker.create("t", storage_format="batch")
    assert await answers(broker, "t", [sent]) == [0]
    (entry,) = await broker.services.store.command(
        "XRANGE", broker.services.keys.partition("t", 0).stream, "-", "+"
    )
    header = records.check_produced(bytes(entry[1][1]))
    assert (header.max_timestamp, header.attributes) == (newest, codec)


async def test_poison_of_an_older_broker_ends_no_other_request(broker: Broker) -> None:
    await broker.create("t", partitions=2, storage_format="batch", records_validation="header")
    bad = poison.sealed(b"garbage of a producer", compression.ZSTD)
    good = poison.sealed(poison.SOUND, compression.NONE)
    assert await answers(broker, "t", [bad, good]) == [0, 0]
    assert await answers(broker, "t", [good, good]) == [0, 0]
    with pytest.raises(BadBatch):
        records.records_of(bad)
    for partition in (0, 1):
        found = await fetch(broker, 0, number=partition)
        assert found.error_code == 0
        assert len(list(batches_in(bytes(found.records)))) == 2
