"""Check log.skip_records: counting records after an offset, by the index if possible."""

from itertools import pairwise

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import SkipRecordsReply
from korvet.scripts.keys import Keys
from tests.lua.partition import ID, Part
from tests.support.store_runners import Runner

KEYS = Keys()
LAYOUTS = [(form, mode) for form in ("record", "batch") for mode in ("time", "dense")]


def create(runner: Runner, form: str, mode: str) -> None:
    Part(runner, form, mode).create()


def append(runner: Runner, form: str, count: int, size: int) -> list[int]:
    """Append records; return their offsets. `size` is the counted bytes of the batch."""
    fields: list[bytes | int] = []
    if form == "batch":
        fields = [b"batch", b"x", b"count", count]
    else:
        for _ in range(count):
            fields += [2, b"value", b"v"]
    reply = runner.run(
        KEYS.partition("t", 0, ID).append(count=count, size=size, max_timestamp=5, fields=fields)
    )
    return list(range(reply.base, reply.base + count))


def advance(offset: int, records: int, end: int, topic_id: str = ID) -> Call[SkipRecordsReply]:
    return KEYS.partition("t", 0, topic_id).skip_records(offset=offset, records=records, end=end)


def test_a_log_that_is_not_there_or_another_s_is_refused(runner: Runner) -> None:
    missing = runner.run(advance(0, 1, 1))
    assert missing.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(runner, "record", "dense")
    assert runner.run(advance(0, 1, 1, "b" * 32)).error == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_it_goes_past_exactly_so_many_records(runner: Runner, form: str, mode: str) -> None:
    create(runner, form, mode)
    offsets: list[int] = []
    for n in range(12):
        offsets += append(runner, form, 10, 30_000 if n % 3 else 90_000)
    end = offsets[-1] + 1
    for start in (0, 3, 10, 57, 119):
        for most in (1, 2, 9, 10, 11, 40, 61, 200):
            reply = runner.run(advance(offsets[start], most, end))
            counted = min(most, 120 - start)
            assert (reply.error, reply.records) == (0, counted)
            inside = [o for o in offsets[start:] if o < reply.offset]
            assert len(inside) == counted
            if counted == 120 - start and most > counted:
                assert reply.offset == end


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_it_never_goes_past_the_end(runner: Runner, form: str, mode: str) -> None:
    create(runner, form, mode)
    offsets: list[int] = []
    for _ in range(6):
        offsets += append(runner, form, 10, 70_000)
    for start, stop in ((0, 5), (5, 35), (12, 13), (20, 59)):
        reply = runner.run(advance(offsets[start], 1000, offsets[stop]))
        assert reply.records == stop - start
        assert offsets[stop - 1] < reply.offset <= offsets[stop]


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_steps_of_a_few_records_reach_the_end(runner: Runner, form: str, mode: str) -> None:
    create(runner, form, mode)
    offsets: list[int] = []
    for n in range(8):
        offsets += append(runner, form, n + 1, 40_000)
    at, places = offsets[0], [offsets[0]]
    while at <= offsets[-1]:
        at = runner.run(advance(at, 5, offsets[-1] + 1)).offset
        places.append(at)
    for low, high in pairwise(places[:-1]):
        assert len([o for o in offsets if low <= o < high]) == 5


def test_native_entries_are_counted_where_the_index_does_not_reach(runner: Runner) -> None:
    create(runner, "record", "dense")
    append(runner, "record", 3, 100)
    for _ in range(4):
        runner.command("XADD", "korvet:t:0", "*", "value", "v")
    assert runner.run(advance(0, 5, 7)).offset == 5
    assert runner.run(advance(0, 50, 7)).records == 7
