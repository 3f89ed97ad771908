"""Check log.append in bytes mode: an entry takes a number of offsets; the last is its id."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua.partition import OTHER_ID, Part
from tests.support.store_runners import Runner


def fields(spans: list[int]) -> list[Any]:
    """Return the fields of entries with these numbers of offsets."""
    out: list[Any] = []
    for span in spans:
        out += (span, 6, b"set", b"x" * span, b"count", span, b"tail", span - 1)
    return out


def part_of(runner: Runner) -> Part:
    return Part(runner, "batch", "bytes").create()


def append(part: Part, spans: list[int], records: int = 1, **changes: Any) -> Any:
    words = {"size": sum(spans), "fields": fields(spans), **changes}
    return part.append(records, **words)


def test_an_entry_has_the_id_of_its_last_offset(runner: Runner) -> None:
    part = part_of(runner)
    assert append(part, [13], stamp=1).base == 0
    assert append(part, [10, 300], records=7, stamp=1).base == 13
    assert part.offsets() == [12, 22, 322]
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.next) == (0, 0, 323)
    state = part.state()
    assert (state["records"], state["entries"], state["bytes"]) == ("8", "3", "323")
    assert state["largest_append"] == "300"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic_id": OTHER_ID}, ErrorCode.UNKNOWN_TOPIC_ID),
        (
            {"producer_id": 9, "producer_epoch": 0, "base_sequence": 7},
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ),
    ],
)
def test_what_is_refused_changes_nothing(
    runner: Runner, changes: dict[str, Any], error: ErrorCode
) -> None:
    part = part_of(runner)
    append(part, [20], records=3, producer_id=9, producer_epoch=0, base_sequence=0)
    before = (part.ids(), part.state())
    assert append(part, [30], **changes).error == error
    assert (part.ids(), part.state()) == before


def test_sequences_count_records_and_not_offsets(runner: Runner) -> None:
    part = part_of(runner)
    claim = {"producer_id": 9, "producer_epoch": 0}
    assert append(part, [100], records=3, base_sequence=0, **claim).base == 0
    assert append(part, [50], records=2, base_sequence=3, **claim).base == 100
    repeated = append(part, [50], records=2, base_sequence=3, **claim)
    assert (repeated.error, repeated.base, repeated.stored) == (0, 100, 0)
    assert part.offsets() == [99, 149]


def test_native_entries_take_no_offsets_unless_they_are_in_the_way(runner: Runner) -> None:
    part = part_of(runner)
    append(part, [40])
    part.native()
    assert append(part, [10, 20]).base == 40
    assert part.offsets() == [39, 40, 49, 69]
    for _ in range(9):
        part.native()
    assert append(part, [9]).base == 79
    assert part.bounds().next == 88


def test_a_start_inside_an_entry_keeps_it_whole(runner: Runner) -> None:
    part = part_of(runner)
    append(part, [10, 10, 10])
    assert (part.truncate(15).start, part.offsets()) == (15, [19, 29])
    bounds = part.bounds()
    assert (bounds.start, bounds.first, bounds.next) == (15, 15, 30)


@settings(max_examples=20, deadline=None)
@given(
    sets=st.lists(st.lists(st.integers(9, 70_000), min_size=1, max_size=4), min_size=1, max_size=12)
)
def test_the_log_is_one_file_without_gaps(sets: list[list[int]]) -> None:
    part = part_of(LuaRunner())
    bases = [append(part, spans).base for spans in sets]
    ends = list(accumulate(sum(spans) for spans in sets))
    assert bases == [0, *ends[:-1]]
    every = [span for spans in sets for span in spans]
    assert part.offsets() == [end - 1 for end in accumulate(every)]
    assert part.bounds().next == ends[-1]
