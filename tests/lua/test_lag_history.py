"""Check lua/group/record_lag: a sample per minute, thinned after an hour, kept for a day."""

from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.testing import LuaRunner
from tests.lua.partition import KEYS
from tests.support.store_runners import Runner

MINUTE_MS = 60_000
HISTORY = KEYS.lag_history(0)


def record(runner: Runner, sample: bytes = b"x") -> int:
    reply = runner.run(KEYS.group_record_lag(lag_history=KEYS.lag_history(0), sample=sample))
    assert reply.error == 0
    return reply.recorded


def test_the_first_broker_of_a_minute_records_it(runner: Runner) -> None:
    found = [record(runner, b"first"), record(runner, b"second")]
    assert found[0] == 1  # a minute may end between the two
    assert runner.command("HVALS", HISTORY)[0] == b"first"


def test_the_key_expires_a_day_after_the_last_sample(runner: Runner) -> None:
    record(runner)
    assert 86_000 < int(runner.command("TTL", HISTORY)) <= 86_400


def test_a_day_has_each_minute_of_the_last_hour_and_a_sample_each_quarter() -> None:
    lua = LuaRunner()
    for _ in range(2_000):
        assert record(lua) == 1
        lua.advance(MINUTE_MS)
    minutes = sorted(map(int, lua.command("HKEYS", HISTORY)))
    newest = minutes[-1]
    hour = [each for each in minutes if each > newest - 60]
    assert len(hour) == 60
    older = [each for each in minutes if each <= newest - 60]
    assert all(each > newest - 1440 for each in minutes)
    assert len({each // 15 for each in older}) >= len(older) - 1 and len(older) in range(91, 95)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=150))
def test_pauses_leave_a_sample_of_each_quarter_that_had_one(pauses: list[int]) -> None:
    lua, recorded = LuaRunner(), list[int]()
    for pause in pauses:
        lua.advance(pause * MINUTE_MS)
        record(lua)
        recorded = sorted({*recorded, *map(int, lua.command("HKEYS", HISTORY))})
    now = recorded[-1]
    kept = set(map(int, lua.command("HKEYS", HISTORY)))
    assert len(kept) <= 60 + 96 + 1
    assert kept >= {each for each in recorded if each > now - 60}
    quarters = {each // 15 for each in recorded if each > now - 1440 + 15}
    assert quarters <= {each // 15 for each in kept}
