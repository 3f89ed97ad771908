"""Check the lowest commit of the groups of retention.consumed."""

import pytest

from korvet.groups.consumed import Consumed, lowest

ID, OTHER = "a" * 32, "b" * 32


def commit(offset: int, topic_id: str = ID) -> bytes:
    return f"{offset} -1 5 -1 {topic_id} ".encode()


CASES = [
    ("no groups", {}, False, Consumed(-1, "")),
    ("one group", {"a": [commit(5)]}, False, Consumed(5, "a")),
    ("the lower commit", {"a": [commit(5)], "b": [commit(3)]}, False, Consumed(3, "b")),
    ("a named group without a commit", {"a": [commit(5)], "b": [None]}, False, Consumed(-1, "b")),
    ("a group of another topic", {"a": [commit(5)], "b": [None]}, True, Consumed(5, "a")),
    ("a commit on a deleted topic", {"a": [commit(5, OTHER)]}, False, Consumed(-1, "a")),
    ("a commit written by hand", {"a": [b"7"]}, False, Consumed(7, "a")),
    ("a malformed commit", {"a": [b"x"]}, True, Consumed(-1, "")),
]


@pytest.mark.parametrize(("commits", "every", "expected"), [case[1:] for case in CASES])
def test_the_lowest_commit_counts(
    commits: dict[str, list[bytes | None]], every: bool, expected: Consumed
) -> None:
    assert lowest(commits, ID, 1, every=every) == [expected]


def test_a_group_with_a_commit_on_one_partition_holds_the_others() -> None:
    found = lowest({"a": [commit(5), None]}, ID, 2, every=True)
    assert found == [Consumed(5, "a"), Consumed(-1, "a")]
