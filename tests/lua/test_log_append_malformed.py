"""Check log.append and log.append_many: malformed fields are an error, and nothing is written."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import BATCH_AT, append_many, batch_of
from korvet.scripts.call import Call
from korvet.store.errors import ScriptFailed
from korvet.testing import ContractViolation, ScriptError
from tests.lua.partition import ID, KEYS, Part
from tests.support.store_runners import Runner

FAILED = (ScriptError, ScriptFailed)
ROW = (2, b"value", b"v")
FAR = 2**53
MANY = (8000, *(b"x",) * 8000)
MOST = 7990
COLUMN = (b"x", 1, b"", b"v")

MALFORMED: dict[str, tuple[str, str, int, tuple[Any, ...]]] = {
    "a record too few": ("record", "time", 3, ROW * 2),
    "a record too many": ("record", "time", 2, ROW * 3),
    "half a record": ("record", "dense", 2, (*ROW, 2, b"value")),
    "an odd number of fields": ("record", "dense", 2, (*ROW, 3, b"a", b"b", b"c")),
    "a number that is none": ("record", "dense", 2, (*ROW, b"two", b"value", b"v")),
    "a number beyond the end": ("record", "dense", 3, (*ROW, 2**63 - 1, b"value", b"v", *ROW)),
    "a number below zero": ("record", "dense", 3, (*ROW, -2, b"value", b"v", *ROW)),
    "a first record of an odd number": ("record", "dense", 1, (3, b"a", b"b", b"c")),
    "a first record of half a field": ("record", "dense", 1, (1, b"value")),
    "a first record of nothing": ("record", "dense", 2, (0, *ROW)),
    "a row too few": ("record", "time", 3, (-1, b"value", b"a", b"b")),
    "a row too many": ("record", "dense", 1, (-1, b"value", b"a", b"b")),
    "more rows than time": ("record", "dense", FAR, (-1, b"value", b"a", b"b")),
    "a column too few": ("record", "dense", 1, (b"columns", 2, b"value", 1, b"", b"v")),
    "a value too few": ("record", "dense", 3, (b"columns", 1, b"value", 2, b"", b"aabb")),
    "a length too few": ("record", "time", 2, (b"columns", 1, b"value", -1, b"\2\0\0\0", b"aa")),
    "a length too wide": ("record", "time", 2, (b"columns", 1, b"value", -1, b"\2\0" * 2, b"aa")),
    "more values than time": ("record", "time", FAR, (b"columns", 1, b"value", 1, b"", b"a")),
    "no columns": ("record", "dense", 1, (b"columns", 0)),
    "columns without a number": ("record", "dense", 1, (b"columns",)),
    "no number of columns": ("record", "time", 1, (b"columns", b"one", *COLUMN)),
    "no fields": ("record", "dense", 1, ()),
    "no entry": ("batch", "dense", 1, ()),
    "an odd number of an entry's fields": ("batch", "time", 1, (b"data", b"v", b"count")),
    "more records than a batch has": ("batch", "dense", FAR, (b"batch",)),
    "no records": ("record", "dense", 0, ()),
    "fewer than no records": ("batch", "dense", -7, (b"batch",)),
    "half an entry": ("record", "bytes", 2, (10, 2, b"data", b"v", 10, 2, b"data")),
    "an entry of odd fields": ("record", "bytes", 2, (10, 2, b"data", b"v", 10, 3, *ROW)),
    "more fields than Lua's stack holds": ("record", "dense", 2, (*ROW, *MANY)),
    "an entry of more fields": ("record", "bytes", 2, (10, 2, b"data", b"v", 10, *MANY)),
    "rows of more fields": ("record", "dense", 1, (-4000, *MANY[1:])),
    "columns of more fields": ("record", "dense", 1, (b"columns", 4000, *COLUMN * 4000)),
    "a batch of more fields": ("batch", "time", 1, MANY[1:]),
    "an entry without offsets": ("record", "bytes", 2, (10, 2, b"data", b"v", 0, 2, b"a", b"b")),
}

malformed = pytest.mark.parametrize(
    ("form", "mode", "count", "fields"), MALFORMED.values(), ids=MALFORMED.keys()
)


@malformed
def test_what_is_no_batch_is_an_error_and_leaves_nothing_behind(
    runner: Runner, form: str, mode: str, count: int, fields: tuple[Any, ...]
) -> None:
    part = Part(runner, form, mode).create()
    part.append(2)
    before = (part.ids(), part.state())
    call = KEYS.partition("t", 0, ID).append(count=count, size=20, max_timestamp=1, fields=fields)
    with pytest.raises(FAILED, match="no batch"):
        runner.run(call)
    assert (part.ids(), part.state()) == before
    assert part.append(2).previous == int(before[1]["next"])


FULL: dict[str, tuple[str, str, int, tuple[Any, ...]]] = {
    "records": ("record", "dense", 3, (MOST, *(b"x",) * MOST, *ROW, MOST, *(b"x",) * MOST)),
    "rows": ("record", "time", 2, (-MOST // 2, *(b"x",) * (MOST * 3 // 2))),
    "columns": ("record", "time", 1, (b"columns", MOST // 2, *COLUMN * (MOST // 2))),
    "a batch": ("batch", "dense", 1, (b"x",) * MOST),
    "spans": ("record", "bytes", 2, (1, *ROW, 1, MOST, *(b"x",) * MOST)),
}


@pytest.mark.parametrize("stamp", [0, 1])
@pytest.mark.parametrize(("form", "mode", "count", "fields"), FULL.values(), ids=FULL.keys())
def test_an_entry_may_have_as_many_fields_as_lua_holds(
    runner: Runner, form: str, mode: str, count: int, fields: tuple[Any, ...], stamp: int
) -> None:
    part = Part(runner, form, mode).create()
    batch = {"count": count, "size": 20, "max_timestamp": 1, "fields": fields}
    reply = runner.run(KEYS.partition("t", 0, ID).append(stamp=stamp, **batch))
    assert (reply.error, len(part.ids())) == (0, count)


WRONG: dict[str, tuple[str, tuple[Any, ...]]] = {
    "too little": ("record", (*ROW, 2, b"value")),
    "rows": ("record", MALFORMED["rows of more fields"][3]),
    "columns": ("record", MALFORMED["columns of more fields"][3]),
    "a batch": ("batch", MANY[1:]),
}


@pytest.mark.parametrize(("form", "fields"), WRONG.values(), ids=WRONG.keys())
def test_valid_batches_in_a_call_with_a_malformed_one_are_appended(
    runner: Runner, form: str, fields: tuple[Any, ...]
) -> None:
    parts = [Part(runner, form, "dense", topic=name).create() for name in ("a", "b", "c")]
    batches = [batch_of(part.call(2)) for part in parts]
    batches[1] = [*batches[1][:7], *fields]
    reply = runner.run(
        append_many(KEYS, [(p.topic, 0, ID, 0, [b]) for p, b in zip(parts, batches, strict=True)])
    )
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert [answer.error for answer in reply.answers] == [0, failed, 0]
    assert reply.reason.startswith(b"korvet:b:0: no batch")
    entries = 2 if form == "record" else 1
    assert [len(part.ids()) for part in parts] == [entries, 0, entries]


@pytest.mark.parametrize(
    "at",
    range(7),
    ids=["count", "size", "max_timestamp", "id", "epoch", "sequence", "transaction"],
)
@pytest.mark.parametrize("number", [b"inf", b"nan", b"1e400", b"", b"x", b"1.5", b"0x1.8", b"1e-1"])
def test_no_number_spoils_what_a_log_counts(runner: Runner, at: int, number: bytes) -> None:
    part = Part(runner, "batch", "dense").create()
    batch = batch_of(part.call(2, producer_id=1, producer_epoch=0, base_sequence=0))
    wrong = [*batch[:at], number, *batch[at + 1 :]]
    reply = runner.run(append_many(KEYS, [("t", 0, ID, 0, [wrong])]))
    assert reply.answers[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert b"no batch" in reply.reason
    call = part.call(2)
    with pytest.raises((*FAILED, ContractViolation), match=r"no batch|got .* for the int"):
        runner.run(Call(call.script, call.keys, (*call.args[:BATCH_AT], *wrong)))
    assert (part.ids(), part.bounds().next) == ([], 0)


@pytest.mark.parametrize(
    "change",
    [
        {2: 3},
        {2: 1},
        {2: b"x"},
        {2: b"inf"},
        {2: -1},
        {2: b"1.5"},
        {3: 5},
        {3: b"inf"},
        {3: b"9.5"},
        {3: -1},
        {3: b""},
        {-1: None},
    ],
    ids=str,
)
def test_the_counts_of_a_call_are_checked_before_any_write(
    runner: Runner, change: dict[int, Any]
) -> None:
    """The first of two batches was appended, although the caller got a Lua error."""
    part = Part(runner, "batch", "dense").create()
    call = append_many(KEYS, [("t", 0, ID, 0, [batch_of(part.call(2))] * 2)])
    args = [change.get(at, each) for at, each in enumerate(call.args)]
    if -1 in change:
        del args[-1]
    with pytest.raises(FAILED, match=r"log\.append_many: ARGV are not those of 1 partitions"):
        runner.run(Call(call.script, call.keys, args))
    assert (part.ids(), part.bounds().next) == ([], 0)
