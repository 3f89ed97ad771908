"""Whether members could be heard: what group.tick is told after Redis was silent for a while."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from korvet.config.values import Settings
from korvet.groups.coordinator import ABSENCE_S, GroupCoordinator
from korvet.keys import Keys
from korvet.scripts.call import Call
from korvet.scripts.group import ClaimDueReply, TickReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable


class Store:
    """Answers, unless it is away; keeps what ticks were told."""

    def __init__(self) -> None:
        self.away = False
        self.told: list[int] = []

    async def run_many(self, calls: Iterable[Call[Any]]) -> list[Any]:
        return [await self.run(call) for call in calls]

    async def run(self, call: Call[Any]) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        if call.script.name == "group.claim_due":
            return ClaimDueReply(error=0, groups=[], held_until=0)
        self.told.append(int(call.args[1]))
        return TickReply(error=0, wait_ms=-1, rebalances=0, expired=[], gone=0)


class Clock:
    """The moment it is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr("korvet.groups.coordinator.monotonic", clock)
    yield clock


def made(store: Store, present_ms: int = -1) -> GroupCoordinator:
    settings = Settings({})
    return GroupCoordinator(
        cast(AsyncStore, store), Keys(), lambda: settings, present_ms=lambda: present_ms
    )


async def told(groups: GroupCoordinator, store: Store) -> int:
    await groups.tick("g")
    return store.told[-1]


async def test_who_has_had_answers_all_the_while_says_so(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    for _ in range(5):
        await groups.tick_due()
        clock.now += ABSENCE_S
        assert await told(groups, store) == -1


async def test_who_had_no_answer_for_long_says_since_when_there_are_some_again(
    clock: Clock,
) -> None:
    store = Store()
    groups = made(store)
    await groups.tick_due()
    store.away = True
    for _ in range(4):
        clock.now += ABSENCE_S / 2
        with pytest.raises(StoreUnavailable):
            await groups.tick_due()
    store.away = False
    assert await told(groups, store) == 0, "a heartbeat may come before the next look"
    await groups.tick_due()
    clock.now += 1.5
    assert await told(groups, store) == 1500


async def test_a_broker_that_stood_still_itself_heard_nobody(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    await groups.tick_due()
    clock.now += 60
    await groups.tick_due()
    clock.now += 1
    assert await told(groups, store) == 1000


async def test_the_later_of_two_reasons_counts(clock: Clock) -> None:
    store = Store()
    groups = made(store, present_ms=700)
    await groups.tick_due()
    assert await told(groups, store) == 700
    clock.now += 60
    await groups.tick_due()
    clock.now += 1
    assert await told(groups, store) == 700
    clock.now -= 0.5
    assert await told(groups, store) == 500


async def test_who_does_not_look_all_the_time_knows_nothing(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    assert await told(groups, store) == -1
    clock.now += 60
    assert await told(groups, store) == -1
