"""Check that LuaRunner runs scripts as Redis does, and reports errors that Redis does not."""

from pathlib import Path

import pytest

from korvet.scripts.call import Arg, Call, ContractBroken, Reply, Script
from korvet.testing import ContractViolation, LuaRunner, ScriptError
from korvet.testing.lua_runner import START_MS, UnknownCommand

ROOT = Path(__file__).parents[1] / "lua" / "fixtures" / "rules"


class Plain(Reply):
    """A reply with only an error."""

    error: int


class Valued(Reply):
    """A reply with an error and a number."""

    error: int
    value: int


@pytest.fixture
def rules() -> LuaRunner:
    return LuaRunner()


def rule(
    name: str, *args: Arg, keys: tuple[str, ...] = ("mine",), reply: type[Reply] = Plain
) -> Call[Reply]:
    return Call(Script(f"rule.{name}", reply, ROOT), keys, args)


def test_a_script_that_follows_the_rules_runs(rules: LuaRunner) -> None:
    assert rules.run(rule("kept", 5)) == Plain(0)
    assert rules.run(rule("kept", 0)) == Plain(42)
    assert rules.command("HGETALL", "mine") == [b"n", b"5"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (rule("undeclared"), "touches 'other', which is not in KEYS"),
        (rule("one_of_many"), "touches 'other', which is not in KEYS"),
        (rule("global_read", keys=()), "reads the global oops"),
        (rule("global_written", keys=()), "writes the global oops"),
        (rule("dear"), "made 5 calls, COST says at most 4"),
        (rule("dear_per_row", "a", "b"), "made 4 calls, COST says at most 3"),
        (rule("late_refusal"), "refused with INVALID_REQUEST after it had called HSET"),
        (rule("unlisted", keys=()), "returned INVALID_REQUEST, which is neither in REFUSES"),
        (rule("not_only_reading"), "is declared as reads, and calls HSET"),
        (rule("hole", reply=Valued), "returns False"),
        (rule("fraction", keys=(), reply=Valued), "returns 2.9"),
        (rule("huge", keys=(), reply=Valued), "returns 1152921504606846976"),
        (rule("kept", 5, keys=()), "takes 1 KEYS, and was given 0"),
        (rule("kept"), "takes 1 ARGV, and was given 0"),
        (rule("kept", 5, 6), "takes 1 ARGV, and was given 2"),
        (rule("kept", "five"), "got b'five' for the int n"),
    ],
    ids=lambda value: value.script.name if isinstance(value, Call) else "",
)
def test_a_broken_rule_is_named(rules: LuaRunner, call: Call[Reply], sentence: str) -> None:
    with pytest.raises(ContractViolation) as caught:
        rules.run(call)
    assert str(caught.value).startswith(f"{call.script.name} {sentence}")


def test_a_violation_inside_pcall_is_reported(rules: LuaRunner) -> None:
    with pytest.raises(ContractViolation):
        rules.run(rule("undeclared"))
    assert rules.command("EXISTS", "other") == 0


def test_a_reply_that_does_not_fit_its_struct_is_refused(rules: LuaRunner) -> None:
    with pytest.raises(ContractBroken, match=r"rule\.short v1"):
        rules.run(rule("short", keys=(), reply=Valued))


def test_a_command_that_is_not_listed_is_refused(rules: LuaRunner) -> None:
    with pytest.raises((UnknownCommand, ScriptError), match="KEYS is not in"):
        rules.run(rule("unknown_command", keys=()))


def test_a_redis_error_ends_the_script_unless_it_is_caught(rules: LuaRunner) -> None:
    with pytest.raises(ScriptError, match="WRONGTYPE"):
        rules.run(rule("failing"))
    rules.command("UNLINK", "mine")
    assert rules.run(rule("catching")) == Plain(0)


def test_a_library_keeps_no_state_between_runs(rules: LuaRunner) -> None:
    for _ in range(3):
        assert rules.run(rule("forgetful", keys=(), reply=Valued)) == Valued(0, 1)


def test_the_clock_moves_only_when_the_test_advances_it(rules: LuaRunner) -> None:
    now = rule("clock", keys=(), reply=Valued)
    assert rules.run(now) == Valued(0, START_MS)
    rules.advance(12_345)
    assert rules.run_many([now, now]) == [Valued(0, START_MS + 12_345)] * 2
    assert rules.now_ms() == START_MS + 12_345
