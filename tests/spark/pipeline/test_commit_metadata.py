"""Check the metadata of commits, and the order of commits."""

import msgspec
import pytest

from korvet.spark.pipeline.commit_metadata import (
    EMPTY,
    Span,
    decode,
    encode,
    merge_spans,
    next_commit,
)


def span(start: int, end: int, *, partition: int = 0, lost: bool = False) -> Span:
    return Span("orders", partition, "id", start, end, lost)


def test_a_commit_survives_its_json() -> None:
    commit = next_commit(EMPTY, [span(3, 9), span(0, 4, partition=1)], id="x")
    assert decode(encode(commit)) == commit


def test_each_commit_has_the_whole_state() -> None:
    first = next_commit(EMPTY, [span(3, 9)], id="a")
    second = next_commit(first, [span(9, 12), span(0, 4, partition=1)], id="b")
    assert second.number == 2
    assert second.spans == (span(9, 12), span(0, 4, partition=1))
    assert second.archived == (span(3, 12), span(0, 4, partition=1))
    assert second.archived_range("orders", 0) == span(3, 12)
    assert second.archived_range("orders", 7) is None


def test_lost_spans_stay_in_the_commit() -> None:
    first = next_commit(EMPTY, [span(0, 5)])
    second = next_commit(first, [span(5, 8, lost=True), span(8, 9)])
    third = next_commit(second, [span(9, 10)])
    assert third.lost == (span(5, 8, lost=True),)
    assert third.archived == (span(0, 10),)


def test_spans_join_in_any_order() -> None:
    assert merge_spans([span(5, 9), span(0, 5)]) == (span(0, 9),)


@pytest.mark.parametrize("text", ["", "{}", '{"number": "1"}', "OPTIMIZE"])
def test_other_json_is_not_a_commit(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text)
