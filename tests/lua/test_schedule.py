"""Check lua/schedule: records wait outside the log; they are appended once, in order, when due."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import Row
from korvet.scripts.calls.partition import AppendReply, ScheduleAppendDueReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.store_runners import Runner

SHAPES = [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")]
shapes = pytest.mark.parametrize(("form", "mode"), SHAPES, ids=lambda word: word)

PAST = 1_000


def payload(part: Part, value: bytes) -> bytes:
    """Return the stored form of a record with this value, as in lib.schedule."""
    if part.form == "batch":
        return value
    return b"".join(b"%d:%s" % (len(word), word) for word in (b"2", b"value", value))


def row(part: Part, value: bytes, kind: Any = "in", ms: int = 0, id: bytes = b"") -> Row:
    return Row(kind, ms, id, 1, 10, 5, payload(part, value))


def cancel(id: bytes) -> Row:
    return Row("cancel", 0, id, 0, 0, -1, b"")


def add(part: Part, *rows: Row, **changes: Any) -> AppendReply:
    """Append a batch of these rows, alone or with ordinary records."""
    words: dict[str, Any] = {
        "count": len(rows) + changes.get("ordinary", 0),
        "max_count": 100,
        "max_bytes": 10_000,
        "channel": KEYS.schedule_channel(),
        "rows": len(rows),
        "rest": [*(word for each in rows for word in each), *changes.pop("fields", ())],
    }
    place = KEYS.partition(part.topic, 0, changes.pop("topic_id", ID))
    return part.runner.run(place.schedule_add(**{**words, **changes}))


def move(
    part: Part, max_rows: int = 100, max_bytes: int = 10_000, **changes: Any
) -> ScheduleAppendDueReply:
    place = KEYS.partition(part.topic, 0, changes.pop("topic_id", ID))
    call = place.schedule_append_due(max_rows=max_rows, max_bytes=max_bytes, **changes)
    return part.runner.run(call)


def values(part: Part) -> list[bytes]:
    """Return the values in the log, in order."""
    rows: Any = part.runner.command("XRANGE", part.keys.stream, "-", "+")
    names = (b"value", b"batch", b"data")
    return [next(fields[at + 1] for at in (0, 2) if fields[at] in names) for _, fields in rows]


def waiting(part: Part) -> tuple[int, int]:
    """Return the totals of waiting records and bytes; check them against the keys."""
    rows: Any = part.runner.command("HVALS", part.keys.scheduled_records)
    found = part.runner.run(KEYS.partition(part.topic, 0, ID).schedule_list(most=1000))
    assert found.size == sum(map(len, rows))
    assert found.records == sum(int(each.split(b":")[0]) for each in rows)
    assert part.runner.command("ZCARD", part.keys.scheduled) == len(rows) == len(found.rows) // 5
    return found.records, found.size


def schedule_keys(part: Part) -> tuple[str, str, str]:
    """Return the keys that exist while records wait."""
    return part.keys.scheduled, part.keys.scheduled_records, part.keys.scheduled_ids


@shapes
def test_a_record_is_appended_when_it_is_due_and_not_before(
    lua: LuaRunner, form: str, mode: str
) -> None:
    part = Part(lua, form, mode).create()
    reply = add(part, row(part, b"a", "in", 1000))
    assert (reply.error, reply.base, reply.stored) == (0, -1, 1)
    assert waiting(part)[0] == 1
    assert move(part).wait_ms == 1000
    lua.advance(999)
    assert move(part) == ScheduleAppendDueReply(0, 0, -1, 1)
    lua.advance(4)
    assert move(part) == ScheduleAppendDueReply(0, 1, 3, -1)
    assert values(part) == [b"a"]
    assert waiting(part) == (0, 0)
    assert move(part) == ScheduleAppendDueReply(0, 0, -1, -1)
    assert part.bounds().records == 1


@shapes
def test_a_record_with_the_greatest_timestamp_is_appended(
    lua: LuaRunner, form: str, mode: str
) -> None:
    part = Part(lua, form, mode).create()
    add(part, row(part, b"a", "in", 0)._replace(max_timestamp=2**63 - 1))
    assert move(part).wait_ms == -1
    assert values(part) == [b"a"]


@shapes
def test_records_are_appended_by_due_time_and_then_by_arrival(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    dues = [(b"c", 30), (b"a", 10), (b"d", 30), (b"b", 10), (b"e", 40)]
    add(part, *(row(part, value, "at", due) for value, due in dues))
    for left in (3, 1, 0):
        assert move(part, max_rows=2).wait_ms == (0 if left else -1)
    assert values(part) == [b"a", b"b", b"c", b"d", b"e"]
    assert part.offsets() == sorted(set(part.offsets()))


@shapes
def test_a_batch_with_ordinary_records_is_stored_in_one_step(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    add(part, row(part, b"late", "at", PAST), ordinary=2, size=20, fields=part.fields(2))
    assert part.bounds().records == 2
    assert move(part).records == 1
    assert values(part)[-1] == b"late"
    assert part.bounds().bytes == 30


@shapes
def test_a_retried_batch_is_not_scheduled_twice(runner: Runner, form: str, mode: str) -> None:
    part = Part(runner, form, mode).create()
    who = {"producer_id": 7, "producer_epoch": 0}
    for sequence, ordinary in ((0, 1), (3, 0), (5, 2)):
        fields = part.fields(ordinary) if ordinary else ()
        batch = {"ordinary": ordinary, "fields": fields, "size": 10, "base_sequence": sequence}
        rows = [row(part, b"%d" % (sequence + n), "at", PAST) for n in range(2)]
        assert add(part, *rows, **who, **batch).stored == 1
        again = add(part, *rows, **who, **batch)
        assert (again.error, again.base, again.stored) == (0, -1, 0)
        move(part)
        assert add(part, *rows, **who, **batch).stored == 0
    assert waiting(part)[0] == 0
    assert [word for word in values(part) if word.isdigit()] == [b"0", b"1", b"3", b"4", b"5", b"6"]
    assert part.append(1, **who, base_sequence=9).stored == 1
    error = add(part, row(part, b"x"), **who, base_sequence=20).error
    assert error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert part.append(1, **who, base_sequence=9).stored == 0


REFUSALS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"max_count": 3, "later_records": 1}, ErrorCode.POLICY_VIOLATION),
    ({"later_bytes": 10_000}, ErrorCode.POLICY_VIOLATION),
    ({"ordinary": 1, "rows": 0, "later_records": 99}, ErrorCode.POLICY_VIOLATION),
    ({"topic_id": OTHER_ID}, ErrorCode.UNKNOWN_TOPIC_ID),
    ({"producer_id": 9, "base_sequence": 3}, ErrorCode.UNKNOWN_PRODUCER_ID),
    ({"max_count": 2}, ErrorCode.POLICY_VIOLATION),
    ({"max_bytes": 20}, ErrorCode.POLICY_VIOLATION),
]


@pytest.mark.parametrize(("changes", "error"), REFUSALS)
@shapes
def test_a_rejected_batch_changes_nothing(
    runner: Runner, form: str, mode: str, changes: dict[str, Any], error: ErrorCode
) -> None:
    part = Part(runner, form, mode).create()
    add(part, row(part, b"a", "in", 60_000), row(part, b"b", "in", 60_000, b"id"))
    before = (part.state(), waiting(part), part.ids())
    rows = (row(part, b"c", "in", 0, b"id"), cancel(b"id"), row(part, b"d"), row(part, b"e"))
    fields = {"ordinary": 1, "fields": part.fields(1), "size": 10}
    reply = add(part, *rows, **{**fields, **changes})
    assert (reply.error, reply.base, reply.stored) == (error, -1, 0)
    assert (part.state(), waiting(part), part.ids()) == before


@shapes
def test_a_record_of_a_waiting_id_counts_as_what_it_adds(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    add(part, row(part, b"a", "in", 60_000), row(part, b"b", "in", 60_000, b"id"))
    stored = int(part.state()["scheduled_bytes"])
    same, longer = (row(part, value, "in", 60_000, b"id") for value in (b"c", b"c" * 30))
    for _ in range(3):
        assert add(part, same, max_count=2, max_bytes=stored).error == ErrorCode.NONE
        assert int(part.state()["scheduled_bytes"]) == stored
    assert add(part, longer, max_bytes=stored).error == ErrorCode.POLICY_VIOLATION
    assert add(part, longer, max_count=1).error == ErrorCode.NONE


def test_a_topic_that_is_not_there_is_unknown(runner: Runner) -> None:
    part = Part(runner)
    assert add(part, row(part, b"a")).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(part).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = KEYS.partition("t", 0, ID).schedule_list(most=1)
    assert runner.run(found).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = KEYS.partition("t", 0, ID).schedule_cancel(id=b"a")
    assert runner.run(gone).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert runner.command("KEYS", "*") == []


def test_a_tombstone_with_the_id_cancels_even_in_the_same_batch(runner: Runner) -> None:
    part = Part(runner).create()
    add(part, row(part, b"a", "at", PAST, b"1"), row(part, b"b", "at", PAST, b"2"))
    add(part, cancel(b"1"), cancel(b"unknown"))
    add(part, row(part, b"c", "at", PAST, b"3"), cancel(b"3"), row(part, b"d", "at", PAST, b"4"))
    assert waiting(part)[0] == 2
    move(part)
    assert values(part) == [b"b", b"d"]
    assert runner.command("EXISTS", part.keys.scheduled_ids) == 0


def test_a_record_replaces_the_waiting_one_of_its_id(lua: LuaRunner) -> None:
    part = Part(lua).create()
    add(part, row(part, b"a", "in", 1000, b"1"))
    add(part, row(part, b"b", "in", 5000, b"1"), row(part, b"c", "in", 2000, b"1"))
    assert waiting(part)[0] == 1
    lua.advance(1500)
    assert move(part).wait_ms == 500
    lua.advance(500)
    move(part)
    assert values(part) == [b"c"]
    add(part, row(part, b"d", "at", PAST, b"1"))
    move(part)
    assert values(part) == [b"c", b"d"]


@pytest.mark.parametrize("by", [{"id": b"1"}, {"number": 0}])
def test_a_scheduled_record_is_cancelled_by_its_id_or_number(
    runner: Runner, by: dict[str, Any]
) -> None:
    part = Part(runner).create()
    add(part, row(part, b"a", "at", PAST, b"1"), row(part, b"b", "at", PAST))
    cancelling = KEYS.partition("t", 0, ID).schedule_cancel(**by)
    assert runner.run(cancelling).cancelled == 1
    assert runner.run(cancelling).cancelled == 0
    assert runner.run(KEYS.partition("t", 0, ID).schedule_cancel(id=b"no")).cancelled == 0
    wrong = KEYS.partition("t", 0, OTHER_ID).schedule_cancel(number=1)
    assert runner.run(wrong).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert waiting(part)[0] == 1
    move(part)
    assert values(part) == [b"b"]


def test_the_list_has_the_records_in_the_order_in_which_they_are_due(lua: LuaRunner) -> None:
    part = Part(lua).create()
    add(part, row(part, b"a", "in", 2000, b"x"), row(part, b"b", "in", 1000))
    lua.advance(1500)
    found = lua.run(KEYS.partition("t", 0, ID).schedule_list(most=10))
    due = b"%d" % (lua.now_ms() - 500), b"%d" % (lua.now_ms() + 500)
    assert found.rows[:4] == [1, due[0], b"", 1]
    assert found.rows[5:9] == [0, due[1], b"x", 1]
    assert found.overdue_ms == 500
    for number in range(6):
        add(part, row(part, b"c", "at", int(due[1]) + number % 3 - 1))
    found = lua.run(KEYS.partition("t", 0, ID).schedule_list(most=10))
    dues = [int(each) for each in found.rows[1::5]]
    assert (len(dues), dues) == (8, sorted(dues))
    pages: list[int | bytes] = []
    delayed = 0
    while len(pages) < len(found.rows):
        timed = len(pages) // 5 - delayed
        call = KEYS.partition("t", 0, ID).schedule_list(timed=timed, delayed=delayed, most=3)
        page = lua.run(call)
        pages += page.rows
        delayed += page.delayed
    assert (pages, delayed) == (found.rows, 2)
    for max_bytes, count in ((0, 1), (2 * int(found.rows[4]), 2)):
        call = KEYS.partition("t", 0, ID).schedule_list(most=10, max_bytes=max_bytes)
        assert lua.run(call).rows == found.rows[: 5 * count]
    totals = lua.run(KEYS.partition("t", 0, ID).schedule_list(most=0))
    assert (totals.records, totals.rows) == (8, [])


@shapes
def test_a_call_moves_a_bounded_number_of_bytes(runner: Runner, form: str, mode: str) -> None:
    part = Part(runner, form, mode).create()
    add(part, *(row(part, b"x" * 100, "at", PAST) for _ in range(3)))
    assert [move(part, max_bytes=250).records for _ in range(3)] == [2, 1, 0]
    add(part, row(part, b"x" * 100, "at", PAST))
    assert move(part, max_bytes=1).records == 1


def test_many_rows_are_one_command_and_a_thousand_move_in_a_call(runner: Runner) -> None:
    part = Part(runner).create()
    rows = [row(part, b"%d" % n, "at", PAST, b"%d" % n) for n in range(5000)]
    add(part, *rows, max_count=5000, max_bytes=10**6)
    moved = [move(part, max_rows=5000, max_bytes=10**6).records for _ in range(6)]
    assert moved == [1000] * 5 + [0]
    assert values(part) == [b"%d" % n for n in range(5000)]
    assert runner.command("EXISTS", *schedule_keys(part)) == 0


def test_records_of_layout_record_wait_together(runner: Runner) -> None:
    part = Part(runner, "record", "dense").create()
    together = payload(part, b"a") + payload(part, b"b")
    add(part, Row("at", PAST, b"", 2, 20, 7, together), row(part, b"c", "at", PAST), count=3)
    assert waiting(part)[0] == 3
    assert move(part, max_rows=2).records == 2
    assert move(part, max_rows=2).records == 1
    assert values(part) == [b"a", b"b", b"c"]
    assert part.bounds().records == 3


def test_a_batch_of_several_records_waits_and_moves_as_one_entry(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    add(part, Row("at", PAST, b"", 3, 90, 7, b"three"), count=3)
    assert waiting(part)[0] == 3
    assert move(part).records == 3
    assert part.offsets() == [2]
    assert part.bounds().records == 3


def test_the_append_time_is_that_of_the_move(lua: LuaRunner) -> None:
    part = Part(lua).create()
    add(part, row(part, b"a", "in", 1000), stamp=1)
    lua.advance(1000)
    move(part, stamp=1)
    (_, fields), *_ = lua.command("XRANGE", part.keys.stream, "-", "+")
    assert fields[:2] == [b"append.time", b"%d" % lua.now_ms()]


@shapes
def test_retention_counts_a_record_as_old_as_its_append(
    lua: LuaRunner, form: str, mode: str
) -> None:
    part = Part(lua, form, mode).create()
    add(part, row(part, b"a", "in", 1000), row(part, b"b", "in", 1000))
    lua.advance(1000)
    move(part)
    assert part.retain(ms=500).removed == 0
    lua.advance(1000)
    part.retain(ms=500)
    assert values(part) == []


def test_scheduled_records_go_after_foreign_entries(runner: Runner) -> None:
    part = Part(runner, "record", "dense").create()
    add(part, row(part, b"a", "at", PAST))
    part.native(b"value", b"native")
    move(part)
    assert values(part) == [b"native", b"a"]


def test_deleted_records_leave_the_scheduled_ones(runner: Runner) -> None:
    part = Part(runner).create()
    part.append(3)
    add(part, row(part, b"a", "at", PAST))
    part.truncate(-1)
    assert waiting(part)[0] == 1
    move(part)
    assert values(part) == [b"a"]


@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_deleted_topic_has_no_scheduled_records(runner: Runner, on_cluster: bool) -> None:
    part = Part(runner).create()
    add(part, row(part, b"a", "in", 1000, b"1"))
    if on_cluster:
        runner.run(KEYS.partition("t", 0, ID).delete())
    else:
        call = KEYS.topic_delete(
            *KEYS.topic_parts("t", 1, ()),
            topic="t",
            expected=b"{}",
            registry_version=b"",
            remote_id="",
            partitions=1,
        )
        assert runner.run(call).error == 0
    assert runner.command("EXISTS", *part.keys.all) == 0


def test_a_waiting_fetch_is_notified_of_ordinary_and_due_records_only(lua: LuaRunner) -> None:
    part = Part(lua).create()
    received = lua.redis.pubsub()
    received.subscribe(part.keys.channel, KEYS.schedule_channel())

    def channels() -> list[str]:
        found = []
        while (message := received.get_message()) is not None:
            if message["type"] == "message":
                found.append(message["channel"].decode().split(":")[1])
        return found

    channels()
    add(part, row(part, b"a", "in", 1000))
    assert channels() == ["schedule"]
    add(part, row(part, b"b", "in", 1000))
    assert channels() == []
    add(part, row(part, b"c", "in", 500))
    assert channels() == ["schedule"]
    move(part)
    assert channels() == []
    lua.advance(1000)
    move(part)
    assert channels() == ["t"]


@pytest.mark.parametrize(
    "rows",
    [
        [Row("at", 5, b"id", 2, 1, 1, b"")],
        [Row("soon", 0, b"", 1, 1, 1, b"")],  # type: ignore[arg-type]
        [Row("at", -5, b"", 1, 1, 1, b"")],
    ],
)
def test_malformed_rows_are_an_error_and_change_nothing(lua: LuaRunner, rows: list[Row]) -> None:
    part = Part(lua).create()
    with pytest.raises(Exception, match=r"schedule\.add"):
        add(part, *rows)
    assert lua.command("EXISTS", part.keys.scheduled) == 0


def test_nothing_is_lost_while_foreign_entries_are_too_many_to_number(lua: LuaRunner) -> None:
    part = Part(lua).create()
    add(part, row(part, b"due", "at", PAST))
    foreign = 2001
    for n in range(foreign):
        lua.command("XADD", part.keys.stream, f"{lua.now_ms() + n}-0", "value", "foreign")
    lua.advance(2 * foreign)
    assert move(part) == ScheduleAppendDueReply(0, 0, -1, 0)
    assert waiting(part)[0] == 1
    for n in range(foreign):
        lua.command("XADD", part.keys.stream, f"{lua.now_ms() + n}-0", "value", "foreign")
    lua.advance(2 * foreign)
    batch = {"ordinary": 1, "size": 10, "fields": part.fields(1), "producer_id": 7}
    batch |= {"producer_epoch": 0, "base_sequence": 0}
    replies = [add(part, row(part, b"second", "at", PAST), **batch) for _ in range(3)]
    assert [reply.error for reply in replies] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
    assert [reply.stored for reply in replies] == [0, 1, 0]
    assert move(part).records == 2
    assert [word for word in values(part) if word != b"foreign"] == [b"v0", b"due", b"second"]
