"""Check that a request's repeated work runs with bounded concurrency."""

import asyncio

import pytest

from korvet.base.bounded import (
    ITEMS_PER_YIELD,
    MAX_CONCURRENT,
    MAX_REPEATS,
    RepeatLimit,
    gather_bounded,
    gather_named,
    map_yielding,
)


@pytest.mark.parametrize(
    "count", [0, 1, MAX_CONCURRENT, MAX_CONCURRENT + 1, 7 * MAX_CONCURRENT + 3]
)
async def test_no_more_than_so_many_are_at_work_and_the_order_is_kept(count: int) -> None:
    working, most = 0, 0

    async def double(number: int) -> int:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0)
        working -= 1
        return 2 * number

    assert await gather_bounded(double, range(count)) == [2 * number for number in range(count)]
    assert most == min(count, MAX_CONCURRENT)


@pytest.mark.parametrize("count", [0, 1, ITEMS_PER_YIELD, ITEMS_PER_YIELD + 1, 3 * ITEMS_PER_YIELD])
async def test_others_have_their_turn_between_pieces(count: int) -> None:
    seen: list[int] = []
    found = list[int]()

    async def other() -> None:
        while len(found) < count:
            seen.append(len(found))
            await asyncio.sleep(0)

    def double(number: int) -> int:
        found.append(2 * number)
        return found[-1]

    looking = asyncio.create_task(other())
    assert await map_yielding(double, range(count)) == found
    await looking
    assert found == [2 * number for number in range(count)]
    assert seen == list(range(ITEMS_PER_YIELD, count, ITEMS_PER_YIELD))


def test_each_thing_is_counted_for_itself() -> None:
    times = RepeatLimit()
    reported = [times.too_many("a") for _ in range(MAX_REPEATS + 2)]
    assert reported == [False] * MAX_REPEATS + [True] * 2
    assert not times.too_many("b")


async def test_repetitions_above_the_limit_are_refused_in_place() -> None:
    async def work(thing: str) -> str:
        return f"{thing} done"

    things = ["a"] * (MAX_REPEATS + 1) + ["b"]
    found = await gather_named(work, lambda thing: f"{thing} refused", things)
    assert found == ["a done"] * MAX_REPEATS + ["a refused", "b done"]
