"""Check that guesses of passwords are slowed down, and right passwords of others are not."""

import asyncio

import pytest

from korvet.security import attempts as module
from korvet.security.attempts import FORGET_S, FREE, MAX_WAITING, Attempts, TooManyAttempts


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collect the times that attempts wait, and wait for none."""
    found: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(module.asyncio, "sleep", noted)
    return found


async def attempt(attempts: Attempts, address: str, user: str, *, right: bool = False) -> None:
    async with attempts.turn(address, user):
        pass
    if right:
        attempts.succeeded(address, user)
    else:
        await attempts.failed(address, user)


async def test_the_delay_of_a_pair_grows_to_its_bound(slept: list[float]) -> None:
    attempts = Attempts()
    waits = []
    for _ in range(FREE + 12):
        slept.clear()
        await attempt(attempts, "a", "alice")
        waits.append(slept[0])
    assert waits[:FREE] == [0.0] * FREE
    assert waits == sorted(waits) and waits[-1] == module.PAIR_S
    assert 0 < waits[FREE] < waits[FREE + 1]


async def test_other_addresses_lock_no_user_out(slept: list[float]) -> None:
    attempts = Attempts()
    for number in range(200):
        await attempt(attempts, f"host{number}", "alice")
    assert slept[-1] == module.USER_S
    slept.clear()
    await attempt(attempts, "home", "alice", right=True)
    assert slept == [0.0, 0.0]


async def test_a_success_and_time_forget_failures(slept: list[float]) -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    for _ in range(9):
        await attempt(attempts, "a", "alice")
    assert attempts.delay_s(("a", "alice"), 9.0) > 0
    attempts.succeeded("a", "alice")
    assert attempts.delay_s(("a", "alice"), 9.0) == 0
    assert attempts.delay_s(("a", ""), 9.0) > 0
    now[0] = FORGET_S
    assert attempts.delay_s(("a", ""), 9.0) == 0


async def test_an_address_has_one_check_at_a_time_and_another_one_does_not_wait() -> None:
    attempts, working, most = Attempts(), dict.fromkeys("ab", 0), dict.fromkeys("ab", 0)
    together = 0

    async def check(address: str, user: str) -> None:
        nonlocal together
        async with attempts.turn(address, user):
            working[address] += 1
            most[address] = max(most[address], working[address])
            together = max(together, sum(working.values()))
            for _ in range(3):
                await asyncio.sleep(0)
            working[address] -= 1

    await asyncio.gather(*(check(address, f"u{at}") for at in range(9) for address in "ab"))
    assert most == {"a": 1, "b": 1} and together == 2
    assert not attempts._locks


async def test_more_attempts_of_a_pair_than_may_wait_fail_unchecked() -> None:
    attempts, checked = Attempts(), 0

    async def check() -> None:
        nonlocal checked
        async with attempts.turn("a", "alice"):
            checked += 1
            await asyncio.sleep(0)

    found = await asyncio.gather(*(check() for _ in range(20)), return_exceptions=True)
    assert checked == MAX_WAITING + 1
    assert sum(isinstance(one, TooManyAttempts) for one in found) == 20 - checked
