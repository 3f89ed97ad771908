"""Check the absence of brokers: arguments of group.tick after Redis did not reply for seconds."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from korvet.config.values import Settings
from korvet.groups.coordinator import ABSENCE_S, GroupCoordinator
from korvet.scripts.call import Call
from korvet.scripts.calls.group import TickReply
from korvet.scripts.calls.namespace import GroupClaimDueReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable
from korvet.topics.node import Node


class Store:
    """A store that replies unless it is away, and records the present_ms of ticks."""

    def __init__(self) -> None:
        self.away = False
        self.present_ms: list[int] = []

    async def run_many(self, calls: Iterable[Call[Any]]) -> list[Any]:
        return [await self.run(call) for call in calls]

    async def run(self, call: Call[Any]) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        if call.script.name == "group.claim_due":
            return GroupClaimDueReply(error=0, groups=[], held_until=0)
        self.present_ms.append(int(call.args[1]))
        return TickReply(error=0, wait_ms=-1, rebalances=0, expired=[], gone=0)


class Clock:
    """A clock that the test sets."""

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
    settings, nothing = Settings({}), cast(Any, None)
    node = Node(cast(AsyncStore, store), Keys(), nothing, lambda: settings, nothing)
    return GroupCoordinator(node, present_ms=lambda: present_ms)


async def ticked(groups: GroupCoordinator, store: Store) -> int:
    await groups.tick("g")
    return store.present_ms[-1]


async def test_a_broker_with_steady_replies_reports_no_absence(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    for _ in range(5):
        await groups.tick_due()
        clock.now += ABSENCE_S
        assert await ticked(groups, store) == -1


async def test_a_broker_reports_the_ms_since_redis_replied_again(
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
    assert await ticked(groups, store) == 0, "a heartbeat may come before the next tick"
    await groups.tick_due()
    clock.now += 1.5
    assert await ticked(groups, store) == 1500


async def test_a_broker_that_was_suspended_reports_an_absence(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    await groups.tick_due()
    clock.now += 60
    await groups.tick_due()
    clock.now += 1
    assert await ticked(groups, store) == 1000


async def test_the_later_of_two_absences_is_reported(clock: Clock) -> None:
    store = Store()
    groups = made(store, present_ms=700)
    await groups.tick_due()
    assert await ticked(groups, store) == 700
    clock.now += 60
    await groups.tick_due()
    clock.now += 1
    assert await ticked(groups, store) == 700
    clock.now -= 0.5
    assert await ticked(groups, store) == 500


async def test_a_process_that_ticks_no_due_groups_reports_no_absence(clock: Clock) -> None:
    store = Store()
    groups = made(store)
    assert await ticked(groups, store) == -1
    clock.now += 60
    assert await ticked(groups, store) == -1
