"""What a request asks for many times is looked at some at a time."""

import asyncio

import pytest

from korvet.bounded import AT_ONCE, MOST_TIMES, PIECE, RepeatLimit, gather_bounded, map_yielding


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 7 * AT_ONCE + 3])
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
    assert most == min(count, AT_ONCE)


@pytest.mark.parametrize("count", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
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
    assert seen == list(range(PIECE, count, PIECE))


def test_each_thing_is_counted_for_itself() -> None:
    times = RepeatLimit()
    told = [times.too_many("a") for _ in range(MOST_TIMES + 2)]
    assert told == [False] * MOST_TIMES + [True] * 2
    assert not times.too_many("b")
