"""What a commit says, and how one follows another."""

import msgspec
import pytest

from korvet.pipeline.ranges import NOTHING, Span, decode, encode, followed, joined


def span(start: int, end: int, *, partition: int = 0, lost: bool = False) -> Span:
    return Span("orders", partition, "id", start, end, lost)


def test_a_commit_survives_its_json() -> None:
    commit = followed(NOTHING, [span(3, 9), span(0, 4, partition=1)], id="x")
    assert decode(encode(commit)) == commit


def test_each_commit_repeats_the_whole_state() -> None:
    first = followed(NOTHING, [span(3, 9)], id="a")
    second = followed(first, [span(9, 12), span(0, 4, partition=1)], id="b")
    assert second.number == 2
    assert second.spans == (span(9, 12), span(0, 4, partition=1))
    assert second.archived == (span(3, 12), span(0, 4, partition=1))
    assert second.held("orders", 0) == span(3, 12)
    assert second.held("orders", 7) is None


def test_what_was_lost_stays_told() -> None:
    first = followed(NOTHING, [span(0, 5)])
    second = followed(first, [span(5, 8, lost=True), span(8, 9)])
    third = followed(second, [span(9, 10)])
    assert third.lost == (span(5, 8, lost=True),)
    assert third.archived == (span(0, 10),)


def test_spans_join_in_any_order() -> None:
    assert joined([span(5, 9), span(0, 5)]) == (span(0, 9),)


@pytest.mark.parametrize("text", ["", "{}", '{"number": "1"}', "OPTIMIZE"])
def test_what_others_wrote_is_no_commit(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text)
