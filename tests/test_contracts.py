"""Check every script against its header, its call, its lock and its page."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.crc import key_slot

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle, lock
from korvet.scripts.bundle import blank_comments
from korvet.scripts.call import Call, Signal
from korvet.scripts.contract import Row
from tests.support.script_calls import sample_calls

ROOT = bundle.default_root()
NAMES = bundle.names()
CALLS = sample_calls()
CODES = (*ErrorCode, *Signal)

# Scripts whose keys are in several slots. Redis Cluster refuses them: there, the work is done slot
# by slot.
ACROSS_SLOTS = {"topic.create", "topic.delete", "topic.add_partitions"}


def source(name: str) -> str:
    return (ROOT / (name.replace(".", "/") + ".lua")).read_text()


def libraries(name: str) -> list[str]:
    """Return the code of the libraries in a script's bundle."""
    paths = {path for _, _, path in bundle.load(name).parts if path.startswith("lib/")}
    return [blank_comments((ROOT / path).read_text()) for path in sorted(paths)]


def test_the_codes_of_lua_are_the_codes_of_python() -> None:
    text = (ROOT / "lib" / "codes.lua").read_text()
    found = re.findall(r"^  ([A-Z_]+) = (-?\d+),$", text, re.MULTILINE)
    assert {name: int(number) for name, number in found} == {c.name: c.value for c in CODES}
    assert len(found) == len(CODES)


def test_no_text_changed_under_its_version_and_the_lock_is_up_to_date() -> None:
    assert lock.conflicts(ROOT) + lock.stale(ROOT) == []


def test_every_script_has_one_call() -> None:
    assert sorted(call.script.name for call in CALLS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_codes_that_are_used_are_listed_and_listed_ones_are_used(name: str) -> None:
    contract = bundle.load(name).contract
    listed = set(contract.refuses) | set(contract.signals)
    code = blank_comments(source(name))
    used = set(re.findall(r"\bcodes\.([A-Z_]+)", code)) - {"NONE"}
    assert used <= listed, f"neither in REFUSES nor in SIGNALS: {used - listed}"
    anywhere = set(re.findall(r"\bcodes\.([A-Z_]+)", "\n".join([code, *libraries(name)])))
    assert listed <= anywhere, f"listed and never returned: {listed - anywhere}"
    assert listed <= {code.name for code in CODES}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_refused_below_the_line_where_writing_begins(name: str) -> None:
    contract = bundle.load(name).contract
    if not (contract.writes and contract.refuses):
        return
    text = source(name)
    lines = list(re.finditer(r"^( *)-- Write\.", text, re.MULTILINE))
    assert lines, "no line `-- Write.`"
    only_refused = set(contract.refuses) - set(contract.signals)
    for line in lines:
        below = text[line.end() :]
        if line[1]:  # a branch, which returns at its end
            below = re.split(r"^end$", below, maxsplit=1, flags=re.MULTILINE)[0]
            assert re.search(r"^  return ", below, re.MULTILINE)
        assert not only_refused & set(re.findall(r"\bcodes\.([A-Z_]+)", blank_comments(below)))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.lua")), ids=lambda p: p.stem)
def test_lua_keeps_to_the_subset_that_runs_everywhere(path: Path) -> None:
    code = blank_comments(path.read_text())
    for word in ("cjson", "cmsgpack", "struct.", "bit.", "redis.sha1hex", "os.", "[["):
        assert not re.search(rf"(?<![\w.]){re.escape(word)}", code), word
    if path.name != "clock.lua":
        assert '"TIME"' not in code, "only lib/clock.lua reads the time"
    assert "tostring(" not in code, "only lib/num.lua turns numbers into text"
    assert max(map(len, path.read_text().splitlines())) <= 100
    if "lib" not in path.parts:
        assert re.match(r"---", path.read_text())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script.name)
def test_a_call_has_as_many_keys_and_arguments_as_the_header(call: Call[Any]) -> None:
    contract = call.script.contract
    assert fits(contract.keys, len(call.keys)), call.keys
    assert fits(contract.args, len(call.args)), call.args
    assert all(isinstance(key, str) for key in call.keys)
    for row, arg in zip(contract.args, call.args, strict=False):
        if row.type == "int":
            assert isinstance(arg, int), row.name
        elif not row.repeated:
            assert isinstance(arg, bytes | bytearray | memoryview | str), row.name


def fits(rows: tuple[Row, ...], given: int) -> bool:
    """Return whether that number of values fits these rows."""
    repeated = sum(row.repeated for row in rows)
    extra = given - (len(rows) - repeated)
    return extra >= 0 and extra % repeated == 0 if repeated else extra == 0


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.script.name)
def test_the_first_element_of_a_reply_is_its_error(call: Call[Any]) -> None:
    fields = [field.name for field in msgspec.structs.fields(call.script.reply)]
    assert fields == [row.name for row in call.script.contract.returns]
    assert "error" not in fields[1:]


def test_only_scripts_across_slots_take_keys_of_several_slots() -> None:
    across = {
        call.script.name for call in CALLS if len({key_slot(key.encode()) for key in call.keys}) > 1
    }
    assert across == ACROSS_SLOTS
