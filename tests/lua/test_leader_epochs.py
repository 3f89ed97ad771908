"""Check broker.raise_epoch and log.begin_epoch: when an epoch is raised, and where it begins."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.log.leader_epochs import end_of, is_lost, parse_rows
from korvet.scripts.calls.namespace import BrokerRaiseEpochReply
from korvet.scripts.calls.partition import BeginEpochReply
from korvet.testing import LuaRunner
from korvet.wire import control_records
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.store_runners import Runner

DAY_MS = 86_400_000


def seen(runner: Runner, *runs: str, begun: int = -1, **how: Any) -> BrokerRaiseEpochReply:
    how = {"is_clean": 0, "witness": "", "witnesses": b""} | how
    return runner.run(KEYS.broker_raise_epoch(runs, begun=begun, **how))


def begin(part: Part, epoch: int, known: int = -1, topic_id: str = ID) -> BeginEpochReply:
    fields: list[bytes] = control_records.entry_of(0, 0, 0, False, is_batch=part.form == "batch")
    call = KEYS.partition(part.topic, 0, topic_id).begin_epoch(
        epoch=epoch, known=known, size=sum(map(len, fields)), fields=fields
    )
    reply: BeginEpochReply = part.runner.run(call)
    return reply


def test_the_epoch_is_raised_by_servers_that_are_new(runner: Runner) -> None:
    assert seen(runner, "a").epoch == 0, "the first server has lost nothing"
    assert seen(runner, "a", "b").epoch == 1
    assert seen(runner, "b").epoch == seen(runner, "a").epoch == 1
    assert seen(runner, "c", is_clean=1).epoch == 1
    assert seen(runner, "c").epoch == 1, "known since then"


def test_an_epoch_is_due_until_every_log_has_begun_it(runner: Runner) -> None:
    assert seen(runner, "a").due == 0
    assert seen(runner, "b").due == seen(runner, "b").due == 1
    assert seen(runner, "b", begun=1).due == seen(runner, "b").due == 2, "begun by no broker"
    assert seen(runner, "b", begun=1, witness="1/0").due == seen(runner, "b").due == 0
    assert (seen(runner, "c").epoch, seen(runner, "c").due) == (2, 1)


def test_a_redis_that_forgot_the_epoch_gets_a_higher_one(runner: Runner) -> None:
    seen(runner, "a"), seen(runner, "b"), seen(runner, "c")
    runner.command("DEL", KEYS.cluster())
    assert seen(runner, "c", begun=2).epoch == 3
    assert seen(runner, "c", begun=2).epoch == 3


def test_an_epoch_by_time_is_new_to_clients_of_every_earlier_history(lua: LuaRunner) -> None:
    first = seen(lua, "a", by_time=1).epoch
    assert first == lua.now_ms() // 1000 - 1_577_836_800
    assert seen(lua, "a", by_time=1).epoch == first
    assert seen(lua, "b", by_time=1).epoch == first + 1
    lua.advance(DAY_MS)
    lua.command("DEL", KEYS.cluster())
    assert seen(lua, "c", by_time=1).epoch == first + DAY_MS // 1000
    lua.advance(-2 * DAY_MS)
    assert seen(lua, "d", by_time=1).epoch == first + DAY_MS // 1000 + 1
    lua.advance(10**13)
    assert seen(lua, "e", by_time=1).epoch == 2_000_000_000


def test_the_row_of_servers_is_bounded(runner: Runner) -> None:
    for number in range(0, 400, 50):
        seen(runner, *(f"run{each}" for each in range(number, number + 50)))
    row = runner.command("HGET", KEYS.cluster(), "servers")
    assert len(row.split()) == 200 and row.split()[-1] == b"run399"


def test_a_heartbeat_without_news_writes_nothing(lua: LuaRunner) -> None:
    seen(lua, "a", witness="1/0")
    lua.command("HSET", KEYS.cluster(), "epoch_begun", "00")
    assert seen(lua, "a", begun=0, witness="1/0").due == 0
    assert lua.command("HGET", KEYS.cluster(), "epoch_begun") == b"00"


def test_what_is_not_there_or_another_topic_is_refused(runner: Runner) -> None:
    part = Part(runner)
    assert begin(part, 1).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    part.create()
    assert begin(part, 1, topic_id=OTHER_ID).error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_new_epoch_waits_for_every_process_that_may_know_of_lost_records(runner: Runner) -> None:
    for name in ("1/0", "2/0"):
        assert seen(runner, "a", witness=name).wait_ms == 0, "the first server has lost nothing"
    assert seen(runner, "b", witness="1/0", begun=0).wait_ms > 0
    assert seen(runner, "b", witness="1/0", begun=1).wait_ms > 0, "2/0 has not reported"
    assert seen(runner, "b").wait_ms > 0, "a process that has appended nothing waits too"
    assert seen(runner, "b", witness="2/0", begun=0).wait_ms > 0
    reply = seen(runner, "b", witness="2/0", begun=1)
    assert (reply.epoch, reply.wait_ms, reply.witnesses) == (1, 0, b"1/0 1 2/0 1")


def test_a_process_that_redis_forgot_is_awaited_if_another_one_knows_it(runner: Runner) -> None:
    seen(runner, "a", witness="1/0")
    known = {"witness": "1/0", "witnesses": b"1/0 0 2/0 0"}
    assert seen(runner, "b", begun=0, **known).witnesses == b"1/0 0 2/0 -1"
    assert seen(runner, "b", begun=1, **known).wait_ms > 0


def test_a_process_that_starts_again_or_ends_is_not_awaited(runner: Runner) -> None:
    for name in ("1/0", "2/0", "3/0"):
        seen(runner, "a", witness=name)
    assert seen(runner, "a", begun=0, witness="3/0", leaves=1).witnesses == b"1/0 0 2/0 0"
    assert seen(runner, "b", witness="1/0").wait_ms > 0
    assert seen(runner, "b", begun=1, witness="1/0").wait_ms > 0
    assert seen(runner, "b", witness="2/0").wait_ms == 0, "it starts, and so knows nothing"


def test_a_process_that_does_not_report_is_awaited_for_a_bounded_time(lua: LuaRunner) -> None:
    for name in ("1/0", "2/0"):
        seen(lua, "a", witness=name)
    wait_ms = seen(lua, "b", begun=0, witness="1/0").wait_ms
    lua.advance(-DAY_MS)
    assert 0 < seen(lua, "b", begun=1, witness="1/0").wait_ms <= wait_ms
    lua.advance(wait_ms)
    assert seen(lua, "b", begun=1, witness="1/0").wait_ms == 0
    reply = seen(lua, "c", begun=1, witness="1/0")
    assert (reply.epoch, reply.witnesses) == (2, b"1/0 1"), "it is not awaited a second time"
    assert seen(lua, "c", begun=2, witness="1/0").wait_ms == 0
    assert seen(lua, "c", begun=0, witness="2/0").witnesses == b"1/0 2 2/0 0", "it is back"


def test_two_histories_with_the_same_epoch_get_a_higher_one(runner: Runner) -> None:
    """A broker knows epoch 1 of server b, and Redis, from an older file, epoch 1 of server c."""
    seen(runner, "a"), seen(runner, "c")
    assert seen(runner, "b", "c", begun=1, witness="1/0").epoch == 2


SHAPES = [("record", "dense"), ("batch", "dense"), ("record", "time"), ("batch", "time")]
shapes = pytest.mark.parametrize(("form", "mode"), SHAPES)


@shapes
def test_lost_offsets_are_not_given_again(runner: Runner, form: str, mode: str) -> None:
    part = Part(runner, form, mode).create()
    part.append(3)
    ended = part.bounds().next
    reply = begin(part, 1, ended + 5)
    assert (reply.lost, reply.next) == (ended, part.bounds().next)
    rows = parse_rows(part.bounds().epochs)
    assert end_of(0, rows, reply.next) == ended
    assert end_of(1, rows, reply.next) == reply.next
    assert [is_lost(ended + more, rows) for more in (0, 1, 5)] == [False, True, True]
    assert part.append(2).base >= reply.next > ended + 5
    if form == "record":
        part.native()
    part.append(1)
    offsets = part.offsets()
    assert offsets == sorted(set(offsets))
    assert [each for each in offsets if is_lost(each, rows)] == [reply.next - 1], "the marker"
    assert part.bounds().next == offsets[-1] + 1


@shapes
def test_an_epoch_without_a_loss_leaves_dense_offsets_as_they_are(
    runner: Runner, form: str, mode: str
) -> None:
    part = Part(runner, form, mode).create()
    part.append(3)
    ended = part.bounds().next
    assert begin(part, 1, ended).lost == begin(part, 1).lost == -1
    assert end_of(0, parse_rows(part.bounds().epochs), -1) == ended
    if mode == "dense":
        assert part.append(1).base == ended


def test_a_second_broker_adds_only_what_it_knows_more(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    part.append(3)
    assert begin(part, 1, 5).lost == 3
    assert part.append(1).base == 6
    assert begin(part, 1, 4).lost == begin(part, 1, 5).lost == begin(part, 1).lost == -1
    reply = begin(part, 1, 9)
    assert (reply.lost, reply.next) == (5, 10)
    assert end_of(0, parse_rows(part.bounds().epochs), -1) == 3


def test_an_epoch_is_never_lowered(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    begin(part, 4)
    assert begin(part, 3, 50).lost == -1
    assert (part.bounds().epoch, part.bounds().next) == (4, 0)


def test_a_log_that_is_created_later_begins_with_the_epoch(runner: Runner) -> None:
    call = KEYS.partition("t", 0, ID).create(format="batch", mode="dense", bits=10, epoch=3)
    assert runner.run(call).error == ErrorCode.NONE
    part = Part(runner, "batch", "dense")
    part.append(2)
    rows = parse_rows(part.bounds().epochs)
    assert (part.bounds().epoch, end_of(2, rows, 2), end_of(3, rows, 2)) == (3, 0, 2)


def test_a_producer_whose_batches_were_lost_gets_an_error_for_a_day(lua: LuaRunner) -> None:
    part = Part(lua, "batch", "dense").create()
    known = {"producer_epoch": 0, "producer_id": 7}
    assert part.append(1, base_sequence=0, **known).error == ErrorCode.NONE
    begin(part, 1, 9)
    assert part.append(1, base_sequence=1, **known).error == ErrorCode.NONE
    lost = {"producer_epoch": 0, "producer_id": 8}
    assert part.append(1, base_sequence=5, **lost).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    lua.advance(DAY_MS)
    assert part.append(1, base_sequence=5, **lost).error == ErrorCode.UNKNOWN_PRODUCER_ID
    assert part.append(1, base_sequence=0, **lost).error == ErrorCode.NONE


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "native", "begin"]), st.integers(0, 9)), max_size=12
    ),
)
def test_epochs_begin_in_order_and_no_offset_is_given_twice(
    shape: tuple[str, str], steps: list[tuple[str, int]]
) -> None:
    lua = LuaRunner()
    part, epoch = Part(lua, *shape).create(), 0
    for kind, number in steps:
        if kind == "append":
            part.append(number + 1)
        elif kind == "native" and shape[0] == "record":
            part.native()
        elif kind == "begin":
            epoch += 1
            begin(part, epoch, part.bounds().next + number - 3)
        lua.advance(1)
    bounds = part.bounds()
    rows, offsets = parse_rows(bounds.epochs), part.offsets()
    assert offsets == sorted(set(offsets))
    markers = [row.start - 1 for row in rows if row.start > row.ended]
    assert [each for each in offsets if is_lost(each, rows)] == [
        each for each in markers if is_lost(each, rows)
    ]
    assert [row.epoch for row in rows] == list(range(1, epoch + 1))
    edges = [edge for row in rows for edge in (row.ended, row.start)]
    assert edges == sorted(edges) and all(edge <= bounds.next for edge in edges)
