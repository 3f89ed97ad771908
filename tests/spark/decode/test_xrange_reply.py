"""Check that XRANGE replies as columns equal those of the ordinary parser."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from korvet.log.entry import DENSE_MS
from korvet.spark.columns import ALWAYS, arrow_schema
from korvet.spark.decode import xrange_reply
from korvet.spark.decode.decoder import Decoder
from korvet.spark.decode.record_decoder import RecordDecoder
from korvet.spark.decode.uniform_entries import NotUniform, UniformEntries
from korvet.spark.decode.xrange_reply import FixedWidth, XRangeReply
from korvet.spark.partitions import OffsetRange, PartitionLog
from korvet.wire import compression, control_records
from korvet.wire.segments import AbortedRow

ID = "0123456789abcdef" * 2
Entry = tuple[bytes, Sequence[bytes]]


def encoded(entries: Sequence[Entry]) -> memoryview:
    """Return the reply as Redis sends it."""
    out = [b"*%d\r\n" % len(entries)]
    for id_, fields in entries:
        out.append(b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(id_), id_, len(fields)))
        out += [b"$%d\r\n%b\r\n" % (len(each), each) for each in fields]
    return memoryview(b"".join(out))


def drawn(draw: random.Random, count: int, longest: int) -> list[Entry]:
    """Draw entries with the same fields; no value contains the start of an entry."""
    found = []
    for n in range(count):
        key, value = (draw.randbytes(draw.randint(0, longest)) for _ in range(2))
        moment = b"%d" % draw.randrange(-(10**6), 10**13)
        found.append(
            (b"%d-%d" % (DENSE_MS, n), (b"key", key, b"value", value, b"timestamp", moment))
        )
    return found


def columns(found: UniformEntries) -> dict[bytes, Any]:
    return {name: found.binary(spans).to_pylist() for name, spans in found.columns.items()}


@pytest.mark.parametrize("seed", range(20))
def test_columns_equal_the_entries_of_the_ordinary_parser(seed: int) -> None:
    draw = random.Random(seed)
    entries = drawn(draw, draw.randint(1, 60), draw.choice((0, 3, 12, 1500)))
    reply = XRangeReply(encoded(entries))
    assert len(reply) == len(entries) == len(reply.rows)
    assert reply.uniform is not None
    assert columns(reply.uniform) == {
        name: [fields[place] for _, fields in reply.rows]
        for place, name in ((1, b"key"), (3, b"value"), (5, b"timestamp"))
    }
    times = reply.uniform.numbers(reply.uniform.columns[b"timestamp"])
    assert times.tolist() == [int(fields[5]) for _, fields in entries]
    milliseconds, sequence = reply.uniform.ids()
    assert set(milliseconds.tolist()) == {DENSE_MS}
    assert sequence.tolist() == list(range(len(entries)))
    assert reply.last_id == entries[-1][0]


def fixed(count: int) -> list[Entry]:
    """Draw entries that differ only in the bytes of their values."""
    return [
        (b"%d-%d" % (DENSE_MS, 100 + n), (b"key", b"%04d" % n, b"value", b"%05d" % (n * 7)))
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 900])
def test_entries_of_equal_lengths_are_decoded_as_fixed_width(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xrange_reply, "group_by_fields", lambda *_: pytest.fail("it was walked"))
    found = XRangeReply(encoded(fixed(count))).uniform
    assert found is not None
    assert columns(found) == {
        b"key": [b"%04d" % n for n in range(count)],
        b"value": [b"%05d" % (n * 7) for n in range(count)],
    }
    assert found.ids()[1].tolist() == [100 + n for n in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_fixed_width_only_if_all_bytes_between_values_are_equal(seed: int) -> None:
    draw = random.Random(seed)
    count, widths = draw.randint(2, 30), [draw.randint(0, 20) for _ in range(draw.randint(1, 4))]
    names = [b"n" * n for n in draw.sample(range(1, 20), len(widths))]
    rows = [
        (b"7-%02d" % n, [each for k, name in enumerate(names) for each in (name, values[k])])
        for n in range(count)
        if (values := [draw.randbytes(width) for width in widths])
    ]
    body = bytearray(encoded(rows))[len(b"*%d\r\n" % count) :]
    found = FixedWidth.of(memoryview(bytes(body)), count)
    assert found is not None
    assert columns(found) == {
        name: [fields[2 * n + 1] for _, fields in rows] for n, name in enumerate(names)
    }
    size = len(body) // count
    contents = [place for spans in [found._ids, *found.columns.values()] for place in range(*spans)]
    template = sorted(set(range(size)).difference(contents))
    for place in template:
        changed = bytearray(body)
        changed[draw.randrange(1, count) * size + place] ^= 1 << draw.randrange(8)
        assert FixedWidth.of(memoryview(bytes(changed)), count) is None


@pytest.mark.parametrize("known", [[0, 1, 2, 3], [0, 1, 2, 4], [5, 7, 8, 9], [1, 9, 10, 11]])
def test_dense_ids_are_read_where_some_are_missing(known: list[int]) -> None:
    found = XRangeReply(
        encoded([(b"%d-%d" % (DENSE_MS, n), (b"value", b"v")) for n in known])
    ).uniform
    assert found is not None
    assert [each.tolist() for each in found.ids()] == [[DENSE_MS] * 4, known]


@pytest.mark.parametrize("text", [b"-5", b"00", b"07", b"9" * 18, b"9" * 19, b"1" * 19])
def test_numbers_of_equal_lengths_are_read_as_others_are(text: bytes) -> None:
    also = b"1" * len(text)
    found = XRangeReply(encoded([(b"1-1", (b"n", also)), (b"1-2", (b"n", text))])).uniform
    assert isinstance(found, FixedWidth)
    if int(text) < 2**63:
        assert found.numbers(found.columns[b"n"]).tolist() == [int(also), int(text)]
    else:
        with pytest.raises(NotUniform):
            found.numbers(found.columns[b"n"])


@pytest.mark.parametrize(
    "fields",
    [
        (b"kez", b"abcd", b"value", b"12345"),
        (b"key", b"abc", b"value", b"123456"),
        (b"key", b"x" * 25),
    ],
)
def test_an_entry_of_equal_length_with_other_fields_is_read_correctly(
    fields: tuple[bytes, ...],
) -> None:
    entries = fixed(40)
    entries[17] = (entries[17][0], fields)
    size = len(encoded(entries[:1])) - len("*1\r\n")
    assert len(encoded(entries)) == 40 * size + len("*40\r\n")
    reply = XRangeReply(encoded(entries))
    if fields[0] == b"key" and len(fields) == 4:
        assert reply.uniform is not None
        assert columns(reply.uniform)[b"key"][16:18] == [b"0016", b"abc"]
    else:
        assert reply.uniform is None
    assert reply.rows[17] == [entries[17][0], list(fields)]


def test_ids_of_time_logs_are_read_in_both_halves() -> None:
    reply = XRangeReply(
        encoded([(b"1700000000000-7", (b"value", b"a")), (b"17-10", (b"value", b""))])
    )
    assert reply.uniform is not None
    with pytest.raises(NotUniform):
        reply.uniform.ids()
    reply = XRangeReply(
        encoded([(b"%d-%d" % (10**12 + n, n), (b"value", b"a")) for n in range(12)])
    )
    assert reply.uniform is not None
    milliseconds, sequence = reply.uniform.ids()
    assert milliseconds.tolist() == list(range(10**12, 10**12 + 12))
    assert sequence.tolist() == list(range(12))


BEGIN = b"*2\r\n$21\r\n9223372036854775807-9\r\n*2\r\n"


def test_a_value_that_ends_like_an_entry_start_is_a_value() -> None:
    entries = fixed(40)
    entries[17] = (entries[17][0], (b"key", b"longer*2", b"value", b"x" + BEGIN))
    found = XRangeReply(encoded(entries)).uniform
    assert found is not None
    assert columns(found)[b"key"][17] == b"longer*2"


UNLIKE: dict[str, list[Entry]] = {
    "other fields": [(b"1-1", (b"key", b"k")), (b"1-2", (b"value", b"v"))],
    "more fields": [(b"1-1", (b"key", b"k")), (b"1-2", (b"key", b"k", b"value", b"v"))],
    "a longer name": [(b"1-1", (b"key", b"k")), (b"1-2", (b"key2", b"k"))],
    "a field twice": [(b"1-1", (b"key", b"k", b"key", b"l"))],
    "contents like an entry": [(b"1-1", (b"key", b"\r\n" + BEGIN)), (b"1-2", (b"key", b"y"))],
    "contents like half an entry": [(b"1-1", (b"key", b"\r\n*2\r\n$")), (b"1-2", (b"key", b"y"))],
}


@pytest.mark.parametrize("entries", UNLIKE.values(), ids=UNLIKE)
def test_mixed_entries_are_left_to_the_ordinary_parser(entries: list[Entry]) -> None:
    reply = XRangeReply(encoded(entries))
    assert reply.uniform is None
    assert reply.rows == [[id_, list(fields)] for id_, fields in entries]
    assert reply.last_id == entries[-1][0]


@pytest.mark.parametrize("text", [b"", b"0x10", b"0X1f", b"1.5", b"soon", b"9" * 30])
def test_only_decimal_digits_are_parsed_as_integers(text: bytes) -> None:
    for before in (b"5", b"1" * len(text)):
        reply = XRangeReply(
            encoded([(b"1-1", (b"timestamp", before)), (b"1-2", (b"timestamp", text))])
        )
        assert reply.uniform is not None
        with pytest.raises(NotUniform):
            reply.uniform.numbers(reply.uniform.columns[b"timestamp"])


def test_a_foreign_id_below_the_dense_ones_is_noticed() -> None:
    dense = b"%d-1" % DENSE_MS
    odd = [(b"5-1", (b"value", b"a")), (dense, (b"value", b"a"))]
    reply = XRangeReply(encoded(odd))
    assert reply.uniform is not None
    with pytest.raises(NotUniform):
        reply.uniform.ids()


def test_no_entries_are_no_columns_and_no_rows() -> None:
    reply = XRangeReply(encoded([]))
    assert (len(reply), reply.uniform, reply.rows) == (0, None, [])


HEADERS = (b"header.a", b"header.b", b"null.header.c", b"header.\xc3\xa9")


def several(draw: random.Random, count: int, mode: str) -> list[Entry]:
    """Draw entries of brokers and other clients, with and without key, value and headers."""
    shapes = [
        (draw.random() < 0.7, draw.random() < 0.8, draw.sample(HEADERS, draw.choice([0, 0, 1, 3])))
        for _ in range(draw.randint(2, 6))
    ]
    found = []
    for n in range(count):
        keyed, valued, headers = draw.choice(shapes)
        fields = [b"key", draw.randbytes(draw.randint(0, 9))] if keyed else []
        value = draw.randbytes(draw.randint(0, 40))
        if valued and draw.random() < 0.1:
            fields += [b"value.lz4", compression.compress(compression.LZ4, value)]
        elif valued:
            fields += [b"value", value]
        fields += [b"timestamp", b"%d" % (10**12 + n)]
        fields += [each for name in headers for each in (name, b"" if name[0] == 110 else b"x")]
        id_ = b"%d-%d" % ((10**12 + n // 7, n % 7) if mode == "time" else (DENSE_MS, n))
        found.append((id_, fields))
    return found


@pytest.mark.parametrize("mode", ["dense", "time"])
@pytest.mark.parametrize("seed", range(10))
def test_entries_of_several_kinds_are_columns_in_their_order(mode: str, seed: int) -> None:
    entries = several(random.Random(seed), 2000, mode)
    log = PartitionLog("t", 0, ID, is_batch=False, mode=mode, bits=10)
    schema = arrow_schema((*ALWAYS, "headers"))
    end = (10**12 + 2000) << 10
    reply = XRangeReply(encoded(entries))
    assert reply.groups is not None
    assert len(reply.groups) > 1
    assert reply.last_id == entries[-1][0]
    found = [
        pa.Table.from_batches(Decoder(OffsetRange(log, 0, end), schema).decode(each)).to_pylist()
        for each in (reply, XRangeReply.of(reply.rows))
    ]
    assert len(found[0]) == 2000
    assert found[0] == found[1]


def transactions(
    draw: random.Random, count: int, stamp: list[bytes]
) -> tuple[list[Entry], list[AbortedRow]]:
    """Draw plain records between those of two producers with committed and aborted transactions."""
    found: list[Entry] = []
    aborted: list[AbortedRow] = []
    begun: dict[int, int] = {}
    for n in range(count):
        id_ = b"%d-%d" % (DENSE_MS, n)
        number = draw.choice((0, 0, 7, 4_000_000_000_000))
        record = [b"value", draw.randbytes(draw.randint(0, 40)), b"timestamp", b"%d" % n]
        transaction = [b"transaction", b"%d" % number] if number else []
        if number in begun and draw.random() < 0.1:
            committed = draw.random() < 0.5
            transaction = control_records.fields_of(n, number, 3, committed)
            first = begun.pop(number)
            if not committed:
                aborted.append(AbortedRow(number, first, n, n))
            record = []
        elif number:
            begun.setdefault(number, n)
        found.append((id_, [*stamp, *transaction, *record]))
    return found, aborted


@pytest.mark.parametrize("committed_only", [True, False])
@pytest.mark.parametrize("stamp", [[], [b"append.time", b"1700000000000"]], ids=["", "stamped"])
@pytest.mark.parametrize("seed", range(5))
def test_transactions_are_columns_without_markers_and_what_was_aborted(
    seed: int, stamp: list[bytes], committed_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, aborted = transactions(random.Random(seed), 3000, stamp)
    assert aborted
    log = PartitionLog("t", 0, ID, is_batch=False, mode="dense", bits=10)
    schema = arrow_schema((*ALWAYS, "headers"))
    wanted = OffsetRange(log, 5, 2990), schema, aborted if committed_only else []
    parsed = [(id_, list(fields)) for id_, fields in entries]
    singly = pa.Table.from_batches(Decoder(*wanted).decode(XRangeReply.of(parsed))).to_pylist()
    monkeypatch.setattr(RecordDecoder, "_decode_singly", lambda *_: pytest.fail("one by one"))
    found = pa.Table.from_batches(
        Decoder(*wanted).decode(XRangeReply(encoded(entries)))
    ).to_pylist()
    assert found == singly
    lost = {n for n in range(5, 2990) if b"control" in entries[n][1]}
    if committed_only:
        for each in aborted:
            name = b"%d" % each.producer_id
            lost |= {n for n in range(each.first, each.last) if name in entries[n][1]}
    assert [row["offset"] for row in found] == [n for n in range(5, 2990) if n not in lost]


def test_too_many_groups_are_left_to_the_parser() -> None:
    entries = [(b"1-%d" % n, (b"value", b"v", b"header.%d" % (n % 17), b"")) for n in range(2000)]
    assert XRangeReply(encoded(entries)).groups is None
    few = [(b"1-%d" % n, (b"value", b"v", b"header.%d" % (n % 2), b"")) for n in range(199)]
    assert XRangeReply(encoded(few)).groups is None
    assert XRangeReply(encoded(few[:1] + few)).groups is not None
