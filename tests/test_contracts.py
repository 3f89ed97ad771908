"""Check every script against its header, its mirror, its lock and its page."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from redis.crc import key_slot

from korvet.errors import ErrorCode
from korvet.scripts import bundle, lock
from korvet.scripts.bundle import blank_comments
from korvet.scripts.call import Script
from korvet.scripts.contract import Row
from korvet.scripts.signals import Signal
from tests.support.script_calls import Mirror, kind_of, mirrors, scripts

ROOT = bundle.default_root()
NAMES = bundle.names()
CODES = (*ErrorCode, *Signal)

# Scripts whose keys are in several slots. Redis Cluster refuses them: there, the work is done slot
# by slot.
KINDS = dict.fromkeys(("text", "id"), "bytes") | dict.fromkeys(
    ("ints", "values", "log.append"), "list"
)

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


def test_every_script_has_one_name_in_python() -> None:
    known = [script.name for _, script in scripts()]
    assert sorted(known) == NAMES


def test_a_mirror_is_in_the_module_of_its_scripts_family() -> None:
    for where, script in scripts():
        assert where.split(".")[2] == script.name.split(".")[0], where


def test_every_script_has_a_mirror() -> None:
    assert {mirror.script.name for mirror in mirrors()} == set(NAMES)


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


@pytest.mark.parametrize(("where", "script"), scripts(), ids=lambda v: v if type(v) is str else "")
def test_the_reply_has_the_fields_that_the_header_returns(where: str, script: Script[Any]) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(script.reply)}
    rows = script.contract.returns
    assert list(fields) == [row.name for row in rows], where
    hints = get_type_hints(script.reply)
    for row in rows:
        assert kind_of(hints[row.name]) == KINDS.get(row.type, row.type), f"{where}: {row.name}"
    if "error" in fields:
        assert next(iter(fields)) == "error"


@pytest.mark.parametrize("mirror", mirrors(), ids=lambda mirror: mirror.name)
def test_the_keyword_parameters_are_the_arguments_in_their_order(mirror: Mirror) -> None:
    rows = mirror.script.contract.args
    parameters = mirror.parameters()
    given = list(parameters)
    # A repeated row may be worked out of other parameters; the rest may not.
    expected = [row.name for row in rows if not row.repeated or row.name in parameters]
    extra = [name for name in given if name not in expected]
    assert [name for name in given if name in expected] == expected
    assert not extra or any(row.repeated for row in rows), f"not in ARGV: {extra}"
    for row in rows:
        if row.name in parameters:
            kind = "list" if row.repeated else KINDS.get(row.type, row.type)
            assert kind_of(parameters[row.name]) == kind, row.name


@pytest.mark.parametrize("mirror", mirrors(), ids=lambda mirror: mirror.name)
def test_a_call_has_as_many_keys_and_arguments_as_the_header(mirror: Mirror) -> None:
    call = mirror.sample()
    contract = mirror.script.contract
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


@pytest.mark.parametrize("mirror", mirrors(), ids=lambda mirror: mirror.name)
def test_the_keys_have_the_names_of_the_header(mirror: Mirror) -> None:
    names = mirror.key_names()
    if names is None:
        assert any(row.repeated for row in mirror.script.contract.keys), "keys are a plain tuple"
        return
    fixed = [name for name, several in names if not several]
    rows = [row.name for row in mirror.script.contract.keys if not row.repeated]
    assert len(fixed) <= len(rows)
    for name, row in zip(fixed, rows, strict=False):
        assert name == row or name.endswith(f"_{row}"), f"{name} is given for {row}"


@pytest.mark.parametrize("mirror", mirrors(), ids=lambda mirror: mirror.name)
def test_the_keys_of_a_call_share_a_slot(mirror: Mirror) -> None:
    slots = {key_slot(key.encode()) for key in mirror.sample().keys}
    assert len(slots) <= 1 or mirror.script.name in ACROSS_SLOTS


def test_scripts_across_slots_are_across_slots() -> None:
    across = {
        mirror.script.name
        for mirror in mirrors()
        if any(a != b for a, b in pairwise(key_slot(k.encode()) for k in mirror.sample().keys))
    }
    assert across == ACROSS_SLOTS
