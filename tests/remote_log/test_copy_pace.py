"""Check that copies wait while clients are busy and Redis has room."""

import asyncio

import pytest

from korvet.config.values import Settings
from korvet.remote_log import copy_demand
from korvet.remote_log.copy_demand import BUSY_BYTES, MAX_LAG_BYTES, PACE_BYTES, CopyPace


class Memory:
    """A memory budget with a level that tests set."""

    bytes = 1 << 30
    level = 0.1


class Clock:
    """A clock whose sleep returns at once; clients append or read at a rate in that time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rate = 0.0
        self.moved = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.moved += self.rate * seconds


class Case:
    """A pace with a clock, a memory budget and a lag."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        self.clock, self.memory, self.lag = Clock(), Memory(), 0
        monkeypatch.setattr(copy_demand, "monotonic", self.clock.monotonic)
        monkeypatch.setattr(copy_demand.asyncio, "sleep", self.clock.sleep)
        given = Settings({name.replace("_", "."): value for name, value in settings.items()})
        self.pace = CopyPace(
            lambda: given,
            self.memory,  # type: ignore[arg-type]
            lambda: int(self.clock.moved),
            lambda: self.lag,
        )

    def waited_s(self, size: int, *, is_paced: bool = True) -> float:
        """Copy this many bytes while clients are busy; return the seconds until the next copy."""

        async def copy() -> float:
            await self.clock.sleep(1.0)
            assert self.pace.is_slow in (True, False)  # measures
            self.pace.copied(size)
            before = self.clock.now
            await self.pace.wait(is_paced=is_paced)
            return self.clock.now - before

        return asyncio.run(copy())


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_a_copy_waits_for_busy_clients(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(1.0, abs=0.11)


def test_a_copy_does_not_wait_for_slow_clients(case: Case) -> None:
    case.clock.rate = BUSY_BYTES / 2
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_a_wait_ends_when_clients_stop(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES

    async def stop() -> float:
        await case.clock.sleep(1.0)
        assert case.pace.is_slow
        case.pace.copied(int(60 * PACE_BYTES))
        case.clock.rate = 0.0
        before = case.clock.now
        await case.pace.wait(is_paced=True)
        return case.clock.now - before

    assert asyncio.run(stop()) < 0.5


def test_an_urgent_copy_does_not_wait(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    assert case.waited_s(int(PACE_BYTES), is_paced=False) == pytest.approx(0.0, abs=1e-6)


def test_a_copy_does_not_wait_once_redis_has_little_room(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    case.memory.level = 0.6
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_a_copy_without_a_budget_does_not_wait_once_much_is_not_copied(case: Case) -> None:
    case.clock.rate = 2 * BUSY_BYTES
    case.memory.bytes = -1
    assert case.waited_s(int(PACE_BYTES)) > 0.5
    case.lag = MAX_LAG_BYTES
    assert case.waited_s(int(PACE_BYTES)) == pytest.approx(0.0, abs=1e-6)


def test_the_configured_rate_limits_urgent_copies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = {"remote_log_manager_copy_max_bytes_per_second": "1000"}
    assert Case(monkeypatch, **setting).waited_s(3000, is_paced=False) == pytest.approx(3.0)
