"""Check that records appended as columns give the same entries as single appends."""

import random

import pyarrow as pa
import pytest

from korvet.scripts.keys import Keys
from korvet.spark.write.record_block import RecordBlock
from korvet.wire import record_entries
from korvet.wire.records import Headers, Record
from tests.spark.topic_log import Log


def block_of(found: list[Record]) -> RecordBlock:
    times, keys, values = ([record[n] for record in found] for n in (1, 2, 3))
    headers = [record[4] for record in found]
    return RecordBlock(
        pa.array(times, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        headers if any(headers) else None,
    )


def drawn(draw: random.Random, count: int, shape: str) -> list[Record]:
    def some(longest: int) -> bytes:
        return draw.randbytes(longest if shape == "equal" else draw.randint(0, longest))

    keyed = draw.random() < 0.5
    return [
        (n, draw.randrange(-1, 10**13), some(9) if keyed else None, some(70_000 // count), [])
        for n in range(count)
    ]


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_columns_become_the_same_entries_as_records(log: Log, seed: int, stamped: bool) -> None:
    draw = random.Random(seed)
    times = {"message_timestamp_type": "LogAppendTime"} if stamped else {}
    topic = log.create("t", 2, "record", ("time", "dense")[seed % 2], **times)
    for count in (1, 2, 70):
        found = drawn(draw, count, draw.choice(("equal", "unequal")))
        low = draw.randrange(count)
        whole = block_of(found)
        assert whole.records() == found
        block = RecordBlock.concat([whole.slice(0, low), whole.slice(low, count)])
        columns = block.columns(None)
        assert columns is not None and columns[0] == b"columns"
        for partition, fields in enumerate((columns, record_entries.fields_of(found))):
            reply = log.store.run(
                log.keys.partition("t", partition, topic.id).append(
                    stamp=int(stamped),
                    count=count,
                    size=int(block.record_sizes().sum()),
                    max_timestamp=block.timestamp_range()[2],
                    fields=fields,
                )
            )
            assert reply.error == 0
    first, second = (stored(log, partition) for partition in range(2))
    assert first == second


def stored(log: Log, partition: int) -> list[list[bytes]]:
    """Return the fields of each entry without its append time."""
    rows = log.store.command("XRANGE", Keys().partition("t", partition).stream, "-", "+")
    return [f[2:] if f[0] == b"append.time" else f for _, f in rows]


def test_a_foreign_entry_between_appends_loses_no_record(log: Log) -> None:
    topic = log.create("t", 1, "record", "dense")
    log.store.command("XADD", "korvet:t:0", "*", "value", "native")
    found: list[Record] = [(n, 5, None, b"v" * n, []) for n in range(4)]
    columns = block_of(found).columns(None)
    assert columns is not None
    call = log.keys.partition("t", 0, topic.id).append(
        count=4, size=9, max_timestamp=5, fields=columns
    )
    assert log.store.run(call).base == 1
    values = [fields[1] for fields in stored(log, 0)]
    assert values == [b"native", b"", b"v", b"vv", b"vvv"]


HEADERS: Headers = [("h", b"1")]
ODD: dict[str, list[Record]] = {
    "headers": [(0, 1, b"k", b"v", []), (1, 1, b"k", b"v", HEADERS)],
    "a value is null": [(0, 1, b"k", b"v", []), (1, 1, b"k", None, [])],
    "some keys are null": [(0, 1, b"k", b"v", []), (1, 1, None, b"v", [])],
    "a value to compress": [(0, 1, b"k", b"v" * 11, []), (1, 1, b"k", b"v", [])],
}


@pytest.mark.parametrize("found", ODD.values(), ids=ODD)
def test_records_with_headers_or_nulls_are_appended_one_by_one(found: list[Record]) -> None:
    block = block_of(found)
    assert block.columns(10) is None
    assert block.records() == found
    assert RecordBlock.concat([block.slice(0, 1), block.slice(1, 2)]).records() == found
