"""Check lua/quota: token buckets that all brokers share."""

from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.testing import LuaRunner
from tests.lua.partition import KEYS
from tests.support.store_runners import Runner


def charge(runner: Runner, amount: float, *, strict: bool = False, rate: float = 100.0) -> int:
    call = KEYS.quota_charge(
        quota=KEYS.quota("b"),
        rate=round(rate * 1000),
        burst=round(rate * 500),
        amount=round(amount * 1000),
        strict=int(strict),
    )
    return runner.run(call).wait_ms


def test_a_client_in_debt_waits_until_the_debt_is_paid(lua: LuaRunner) -> None:
    assert charge(lua, 50) == 0, "the burst is half a second of the rate"
    assert charge(lua, 30) == 300
    assert charge(lua, 0) == 300
    lua.advance(100)
    assert charge(lua, 0) == 200
    lua.advance(1_000)
    assert charge(lua, 50) == 0


def test_a_strict_charge_takes_nothing_in_debt(lua: LuaRunner) -> None:
    assert charge(lua, 200, strict=True) == 0, "the last charge may exceed the bucket"
    assert charge(lua, 10, strict=True) == 1500
    assert charge(lua, 0) == 1500


def test_a_clock_that_steps_back_pays_no_debt(lua: LuaRunner) -> None:
    charge(lua, 150)
    lua.advance(-5_000)
    assert charge(lua, 0) == 1000


def test_charges_add_up_wherever_the_script_runs(runner: Runner) -> None:
    waits = [charge(runner, 1_000, rate=0.5) for _ in range(3)]
    for number, wait in enumerate(waits, 1):
        expected = (1_000 * number - 0.25) / 0.5 * 1000
        assert expected - 5_000 < wait <= expected


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3_000)), max_size=30))
def test_no_more_than_the_burst_and_the_rate_is_admitted(
    steps: list[tuple[int, int]],
) -> None:
    runner, now, admitted = LuaRunner(), 0, 0
    for amount, pause_ms in steps:
        runner.advance(pause_ms)
        now += pause_ms
        if charge(runner, 0) == 0:
            assert admitted <= 50 + now / 10 + 1
            admitted += amount
            charge(runner, amount)
