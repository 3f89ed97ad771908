"""Check log.delete_records, log.create and log.delete: records below an offset, whole logs."""

import pytest

from korvet.base.errors import ErrorCode
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.store_runners import Runner


def test_what_is_refused_changes_nothing(runner: Runner) -> None:
    part = Part(runner, mode="dense")
    assert part.truncate(0).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    part.create()
    part.append(5)
    before = (part.ids(), part.state())
    for offset, topic_id, error in (
        (2, OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        (6, ID, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, ID, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        assert part.truncate(offset, topic_id).error == error
    assert (part.ids(), part.state()) == before


def test_an_offset_at_or_below_the_start_changes_nothing(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    part.append(5)
    assert part.truncate(3).start == 3
    for offset in (0, 3):
        reply = part.truncate(offset)
        assert (reply.error, reply.start, reply.removed) == (ErrorCode.NONE, 3, 0)
    assert part.offsets() == [3, 4]


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_minus_one_is_the_end_native_entries_included(runner: Runner, mode: str) -> None:
    part = Part(runner, mode=mode).create()
    part.append(3)
    part.native()
    end = part.bounds().next
    reply = part.truncate(-1)
    assert (reply.start, reply.removed) == (end, 4)
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.next) == (end, end, end)
    assert (bounds.bytes, bounds.records) == (0, 0)
    assert runner.command("EXISTS", part.keys.index) == 0
    assert part.append().base >= end


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("before", [-1, 13])
def test_one_call_removes_so_many_steps_at_most(runner: Runner, mode: str, before: int) -> None:
    """Records that are appended between the calls are not part of the request."""
    part = Part(runner, mode=mode).create()
    bases = [part.append(2, size=70_000).base for _ in range(9)]
    offsets = [base + n for base in bases for n in (0, 1)]
    wanted = before if before < 0 else offsets[before]
    reply = part.truncate(wanted, steps=3)
    assert (reply.removed, reply.start) == (6, offsets[6])
    assert reply.again == (wanted if wanted >= 0 else offsets[-1] + 1)
    later = part.append().base
    removed = 6
    while reply.again >= 0:
        reply = part.truncate(reply.again, steps=3)
        removed += reply.removed
    kept = offsets[before:] if before >= 0 else []
    assert (part.offsets(), removed) == ([*kept, later], 18 - len(kept))
    assert part.bounds().start == (wanted if wanted >= 0 else offsets[-1] + 1)


def test_a_batch_that_reaches_past_the_start_stays_whole(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    part.append(5)
    part.append(5)
    assert part.truncate(3).removed == 0
    bounds = part.bounds()
    assert (bounds.start, bounds.first) == (3, 3)
    assert part.truncate(5).removed == 1


def test_the_bytes_and_records_before_the_start_no_longer_count(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    for _ in range(10):
        part.append(size=40_000)
    part.truncate(6)
    bounds = part.bounds()
    assert (bounds.bytes, bounds.records) == (160_000, 4), "the index has a row at 6"


def test_a_log_is_opened_once_and_only_for_its_own_topic(runner: Runner) -> None:
    def opened(topic_id: str) -> tuple[int, int]:
        reply = runner.run(
            KEYS.partition("t", 0, topic_id).create(format="record", mode="dense", bits=10)
        )
        return reply.error, reply.opened

    part = Part(runner, mode="dense")
    assert opened(ID) == (ErrorCode.NONE, 1)
    part.append(2)
    assert opened(ID) == (ErrorCode.NONE, 0)
    assert opened(OTHER_ID) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0)
    assert part.offsets() == [0, 1]


def test_a_log_is_dropped_only_by_its_own_topic_and_leaves_nothing(runner: Runner) -> None:
    def dropped(topic_id: str) -> int:
        return runner.run(KEYS.partition("t", 0, topic_id).delete()).deleted

    part = Part(runner).create()
    part.append(2, producer_id=1, producer_epoch=0, base_sequence=0)
    runner.command("XGROUP", "CREATE", part.keys.stream, "readers", "0")
    assert dropped(OTHER_ID) == 0
    assert len(part.offsets()) == 2
    assert (dropped(ID), dropped(ID)) == (1, 0)
    assert runner.command("KEYS", "*") == [b"korvet:topics"]
