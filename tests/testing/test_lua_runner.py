"""Check script files without a header, as users write them."""

from pathlib import Path

import pytest

from korvet.testing import ContractViolation, LuaRunner, ScriptError

TAKE = """
local codes = require("lib.codes")
local left = tonumber(redis.call("GET", KEYS[1]) or "0")
if left < tonumber(ARGV[1]) then
  return { codes.REFUSED, left }
end
return { 0, redis.call("DECRBY", KEYS[1], ARGV[1]) }
"""


@pytest.fixture
def take(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "codes.lua").write_text("return { REFUSED = 1 }")
    (tmp_path / "take.lua").write_text(TAKE)
    return tmp_path / "take.lua"


def test_a_script_file_runs_with_its_libraries(take: Path) -> None:
    runner = LuaRunner()
    assert runner.eval(take, keys=["stock"], args=[3]) == [1, 0]
    runner.command("SET", "stock", 5)
    assert runner.eval(take, keys=["stock"], args=[3]) == [0, 2]
    assert runner.command("GET", "stock") == b"2"


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("return redis.call('SET', KEYS[1], 'x')", b"OK"),
        ("return redis.call('TIME')", [b"1750000000", b"0"]),
        ("return nil", None),
        ("redis.call('DEL', KEYS[1])", None),
    ],
)
def test_replies_are_as_redis_sends_them(tmp_path: Path, text: str, reply: object) -> None:
    (tmp_path / "a.lua").write_text(text)
    assert LuaRunner().eval(tmp_path / "a.lua", keys=["k"]) == reply


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("return redis.call('GET', 'other')", "a.lua touches 'other', which is not in KEYS"),
        ("total = 1", "a.lua writes the global total"),
        ("return totals", "a.lua reads the global totals"),
        ("return { 1, 2.5 }", "a.lua returns 2.5"),
    ],
)
def test_what_a_server_would_not_report_is_a_violation(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "a.lua").write_text(text)
    with pytest.raises(ContractViolation) as caught:
        LuaRunner().eval(tmp_path / "a.lua", keys=["k"])
    assert str(caught.value).startswith(sentence)


def test_an_error_of_redis_ends_the_script(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('INCR', KEYS[1])")
    runner = LuaRunner()
    runner.command("SET", "k", "text")
    with pytest.raises(ScriptError, match=r"a\.lua: .*not an integer"):
        runner.eval(tmp_path / "a.lua", keys=["k"])
