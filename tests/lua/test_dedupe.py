"""Check lib.dedupe: a record whose id the partition knows is not stored again."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts import append_call
from korvet.scripts.append_call import Row, batch_of
from korvet.scripts.calls.partition import AppendReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, Part
from tests.support.store_runners import Runner

HEADER = b"header.korvet-dedupe-id"
WINDOW = 60_000


def deduped(runner: Runner, *, mode: str = "dense", most: int = 1000) -> Part:
    """Create a partition that knows ids for a minute."""
    return Part(runner, mode=mode, dedupe=f"{WINDOW}:{most}").create()


def fields(*ids: bytes | None) -> list[Any]:
    """Return the fields of records with these ids; None is none."""
    rows: list[Any] = []
    for n, id in enumerate(ids):
        own = (b"value", b"v%d" % n) + (() if id is None else (HEADER, id))
        rows += (len(own), *own)
    return rows


def send(part: Part, *ids: bytes | None, **changes: Any) -> AppendReply:
    """Append records with these ids."""
    return part.append(len(ids), fields=fields(*ids), **changes)


def got(reply: AppendReply) -> tuple[int, int, int]:
    """Return error, base and stored."""
    return reply.error, reply.base, reply.stored


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_second_record_of_an_id_gets_the_offset_of_the_first(runner: Runner, mode: str) -> None:
    part = deduped(runner, mode=mode)
    first, other = send(part, b"a"), send(part, b"b")
    before = part.ids(), part.state()
    assert got(send(part, b"a")) == (0, first.base, 0)
    assert got(send(part, b"b")) == (0, other.base, 0)
    assert (part.ids(), part.state()) == before
    assert part.bounds().records == 2


@pytest.mark.parametrize(
    ("ids", "base", "stored", "offsets"),
    [
        ((b"a", b"b"), 0, 0, [0, 1]),  # as stored
        ((b"b", b"a"), -1, 0, [0, 1]),
        ((b"b", b"c"), 1, 1, [0, 1, 2]),
        ((b"a", b"c"), -1, 1, [0, 1, 2]),
        ((None, b"a"), -1, 1, [0, 1, 2]),
        ((b"c", b"c"), -1, 1, [0, 1, 2]),
        ((b"c", None, b"d"), 2, 1, [0, 1, 2, 3, 4]),
        ((b"", b""), 2, 1, [0, 1, 2, 3]),  # an empty id is none
    ],
)
def test_known_records_are_left_out_of_a_batch(
    runner: Runner, ids: tuple[bytes | None, ...], base: int, stored: int, offsets: list[int]
) -> None:
    part = deduped(runner)
    send(part, b"a", b"b")
    reply = send(part, *ids)
    assert got(reply) == (0, base, stored)
    assert part.offsets() == offsets
    bounds = part.bounds()
    assert (bounds.next, bounds.records, bounds.bytes) == (
        len(offsets),
        len(offsets),
        10 * len(offsets),
    )
    again = send(part, *ids)
    new = sum(not id for id in ids)
    assert (again.error, again.stored) == (0, int(new > 0))
    assert part.bounds().records == len(offsets) + new


def test_the_last_header_of_the_name_is_the_id(runner: Runner) -> None:
    part = deduped(runner)
    for first in (b"x", b"y"):
        row = [6, HEADER, first, b"value", b"v", HEADER, b"id"]
        assert part.append(fields=row).base == 0


def test_records_without_ids_are_all_stored(runner: Runner) -> None:
    part = deduped(runner)
    forms: list[list[Any]] = [
        fields(None, None),
        [-1, b"value", b"a", b"b"],
        [b"columns", 1, b"value", 1, b"", b"ab"],
    ]
    for n, form in enumerate(forms):
        assert part.append(2, fields=form).base == 2 * n
    assert runner.command("EXISTS", part.keys.dedupe) == 0


def test_an_id_counts_for_the_window(lua: LuaRunner) -> None:
    part = deduped(lua)
    send(part, b"a")
    lua.advance(WINDOW - 1)
    assert got(send(part, b"a", b"b")) == (0, 0, 1)
    lua.advance(1)
    assert got(send(part, b"a")) == (0, 2, 1)
    assert got(send(part, b"b")) == (0, 1, 0)
    lua.advance(WINDOW - 1)
    assert got(send(part, b"a")) == (0, 2, 0)
    assert got(send(part, b"b")) == (0, 3, 1)


def test_the_newest_ids_are_known_and_at_most_twice_as_many_kept(lua: LuaRunner) -> None:
    part = deduped(lua, most=10)
    for n in range(100):
        send(part, b"%d" % n)
        kept = [lua.command("HLEN", key) for key in (part.keys.dedupe, part.keys.dedupe_old)]
        assert max(kept) <= 10  # type: ignore[type-var]
        for id in range(max(0, n - 9), n + 1):
            assert got(send(part, b"%d" % id)) == (0, id, 0)


@pytest.mark.parametrize("step", [-3 * WINDOW, 3 * WINDOW])
def test_after_a_step_of_the_clock_ids_are_removed_within_two_windows(
    lua: LuaRunner, step: int
) -> None:
    part = deduped(lua)
    send(part, b"a")
    lua.advance(step)
    assert send(part, b"a", b"b").error == 0
    for n in range(3):
        lua.advance(WINDOW)
        send(part, b"%d" % n)
    assert send(part, b"a").stored == 1


def test_an_idempotent_batch_takes_the_sequences_of_the_records_left_out(runner: Runner) -> None:
    part = deduped(runner)
    producer = {"producer_id": 7, "producer_epoch": 0}
    send(part, b"a")
    sent = [
        (0, (b"b", b"a"), -1, 1),  # in part
        (2, (b"a",), 0, 0),  # not at all
        (3, (b"b", b"c"), 1, 1),
        (5, (b"d",), 3, 1),
    ]
    for sequence, ids, base, stored in sent:
        assert got(send(part, *ids, base_sequence=sequence, **producer)) == (0, base, stored)
    for sequence, ids, base, _ in sent:
        assert got(send(part, *ids, base_sequence=sequence, **producer)) == (0, base, 0)
    gap = send(part, b"e", base_sequence=7, **producer)
    assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(part, b"e", base_sequence=6, **producer).base == 4


@pytest.mark.parametrize(
    ("ids", "changes"),
    [
        (
            (None, b"a"),
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transaction": 1},
        ),
        ((None, b"x" * 129), {}),
    ],
)
def test_a_batch_with_an_id_that_cannot_count_is_refused(
    runner: Runner, ids: tuple[bytes | None, ...], changes: dict[str, int]
) -> None:
    part = deduped(runner)
    before = part.state()
    assert got(send(part, *ids, **changes)) == (ErrorCode.INVALID_RECORD, -1, 0)
    assert part.state() == before and not part.ids()
    assert runner.command("EXISTS", part.keys.producers, part.keys.open_txns, part.keys.dedupe) == 0
    assert got(send(part, None, **changes)) == (0, 0, 1)
    assert got(send(part, b"x" * 128)) == (ErrorCode.NONE, 1, 1)


@pytest.mark.parametrize(
    "form",
    [[-1, HEADER, b"a", b"b"], [b"columns", 1, HEADER, 1, b"", b"ab"]],
)
def test_ids_in_the_shorter_forms_are_refused(lua: LuaRunner, form: list[Any]) -> None:
    with pytest.raises(Exception, match="no batch: records with a korvet-dedupe-id"):
        deduped(lua).append(2, fields=form)


def test_one_call_of_many_batches_leaves_out_as_single_calls_do(runner: Runner) -> None:
    part = deduped(runner, most=3)
    calls = [
        part.call(len(ids), fields=fields(*ids))
        for ids in ((b"a", b"b"), (b"b",), (b"c", b"d", b"a"))
    ]
    batches = [batch_of(call) for call in calls]
    reply = runner.run(append_call.append_many(KEYS, [("t", 0, ID, 0, batches)]))
    assert [got(answer) for answer in reply.answers] == [(0, 0, 1), (0, 1, 0), (0, -1, 1)]
    assert part.offsets() == [0, 1, 2, 3]


def test_a_scheduled_record_counts_when_it_is_appended(runner: Runner) -> None:
    part = deduped(runner)

    def add(id: bytes, *ordinary: bytes) -> AppendReply:
        words = (b"4", b"value", b"late", HEADER, id)
        packed = b"".join(b"%d:%s" % (len(word), word) for word in words)
        return runner.run(
            part.keys.schedule_add(
                count=1 + len(ordinary),
                size=10 * len(ordinary),
                max_count=100,
                max_bytes=10_000,
                channel="c",
                ordinary=len(ordinary),
                rows=1,
                rest=[*Row("at", 0, b"", 1, 10, 5, packed), *fields(*ordinary)],
            )
        )

    assert add(b"a").error == add(b"a", b"a", b"b").error == add(b"x" * 200).error == 0
    assert part.offsets() == [0, 1]
    assert add(b"c", b"x" * 200).error == ErrorCode.INVALID_RECORD
    moved = runner.run(part.keys.schedule_append_due(max_rows=100, max_bytes=10_000))
    assert (moved.error, moved.wait_ms) == (0, -1)
    assert part.offsets() == [0, 1, 2]


def test_ids_count_from_the_change_of_the_config_on(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    send(part, b"a")
    assert send(part, b"a").base == 1
    assert runner.run(part.keys.set_dedupe(window=WINDOW, max_ids=5)).error == 0
    assert part.state()["dedupe"] == f"{WINDOW}:5:0"
    assert [send(part, b"a").base for _ in range(2)] == [2, 2]
    since = part.state()["dedupe"].split(":")[2]
    assert runner.run(part.keys.set_dedupe(window=WINDOW + 1, max_ids=6)).removed == 0
    assert part.state()["dedupe"] == f"{WINDOW + 1}:6:{since}"
    assert send(part, b"a").base == 2
    assert runner.run(part.keys.set_dedupe(window=0)).removed == 1
    assert "dedupe" not in part.state()
    assert send(part, b"a").base == 3


def test_set_dedupe_without_a_window_removes_the_ids_whose_window_is_over(lua: LuaRunner) -> None:
    part = deduped(lua)
    keys = part.keys
    send(part, b"a")
    lua.advance(WINDOW)
    send(part, b"b")
    expected = [(0, [b"a"]), (WINDOW - 1, [b"a"]), (1, []), (WINDOW, [])]
    for wait, old in expected:
        lua.advance(wait)
        lua.run(keys.set_dedupe())
        assert lua.command("HKEYS", keys.dedupe_old) == old
    assert lua.command("EXISTS", keys.dedupe) == 0
    assert part.state()["dedupe"].startswith(f"{WINDOW}:1000:")


def test_set_dedupe_refuses_another_topics_log(runner: Runner) -> None:
    assert runner.run(KEYS.partition("t", 0, ID).set_dedupe(window=1)).error == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    deduped(runner)
    other = KEYS.partition("t", 0, "f" * 32)
    assert runner.run(other.set_dedupe(window=0)).error == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleting_the_log_deletes_the_ids(runner: Runner) -> None:
    part = deduped(runner, most=1)
    send(part, b"a")
    send(part, b"b")
    keys = part.keys.dedupe, part.keys.dedupe_old
    assert runner.command("EXISTS", *keys) == 2
    assert runner.run(part.keys.delete()).deleted == 1
    assert runner.command("EXISTS", *keys) == 0


def test_ids_outlive_their_records(runner: Runner) -> None:
    part = deduped(runner)
    send(part, b"a", b"b")
    assert part.truncate(2).start == 2
    assert got(send(part, b"b")) == (0, 1, 0)
