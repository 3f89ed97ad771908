"""Check which topics are refused while Redis is above local.memory.bytes."""

import pytest

from korvet.remote_log.memory import above_share, share_of


@pytest.mark.parametrize(
    ("sizes", "room", "share"),
    [
        ([], 10, float("inf")),
        ([5, 5], 10, float("inf")),
        ([6, 5], 10, 5),
        ([1, 30], 10, 9),
        ([1, 4, 30], 12, 7),
        ([10, 20, 30], 15, 5),
    ],
)
def test_the_share_is_the_largest_at_which_all_fit(
    sizes: list[int], room: float, share: float
) -> None:
    assert share_of(sizes, room) == share
    if share < float("inf"):
        assert sum(min(size, share) for size in sizes) == room


def test_one_topics_records_refuse_no_other_topic() -> None:
    sizes = {"full": 1190, "other": 5, "new": 0}
    assert above_share(sizes, 1200, 1000, 1.1) == {"full"}
    assert above_share(sizes, 1099, 1000, 1.1) == set()


def test_topics_are_equal_if_all_of_them_fill_redis() -> None:
    sizes = {"a": 400, "b": 400, "c": 400}
    assert above_share(sizes, 1250, 1000, 1.1) == {"a", "b", "c"}


def test_keys_of_other_programs_leave_topics_a_tenth() -> None:
    sizes = {"a": 60, "b": 39}
    assert above_share(sizes, 5000, 1000, 1.1) == set()
    assert above_share(sizes | {"b": 60}, 5000, 1000, 1.1) == {"a", "b"}
    assert above_share({"a": 95, "b": 20}, 5000, 1000, 1.1) == {"a"}
