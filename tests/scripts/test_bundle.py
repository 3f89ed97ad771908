"""Check bundles: valid requires, the text, and the origin of its lines."""

import shutil
from pathlib import Path

import pytest
from lupa import lua51

from korvet.scripts import bundle
from korvet.scripts.bundle import BundleError, blank_comments, load
from korvet.scripts.call import Call, Reply, Script
from korvet.store.errors import ScriptFailed
from tests.support.redis_servers import TestServer
from tests.support.store_runners import StoreRunner

ROOT = Path(__file__).parent.parent / "lua" / "fixtures" / "include"


def run(text: str) -> list[int]:
    """Run the text as Redis would, and return its result."""
    runtime = lua51.LuaRuntime(encoding="utf-8")
    return list(runtime.execute(f"KEYS, ARGV = {{}}, {{}}\n{text}").values())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one.cycle", "one.cycle -> lib.a -> lib.b -> lib.a: a cycle"),
        ("one.missing", "one.missing -> lib.deep -> lib.none: there is no file lib/none.lua"),
        ("one.absent", "one.absent: there is no file one/absent.lua"),
        ("one.computed", "one/computed.lua:7: a require is a line"),
        ("one.inline", "one/inline.lua:6: a require is a line"),
        ("one.foreign", 'one/foreign.lua:6: "os" is no library; names begin with lib.'),
        ("one.clever", "lib/clever.lua: `ONE = 2 - 1,` is no constant"),
    ],
)
def test_an_include_that_cannot_be_followed_is_named(name: str, sentence: str) -> None:
    with pytest.raises(BundleError) as caught:
        load(name, ROOT)
    assert sentence in str(caught.value)


def test_a_library_required_twice_is_in_the_text_once() -> None:
    made = load("one.diamond", ROOT)
    assert made.text.count('loaders["lib.leaf"] =') == 1
    assert 'loaders["lib.left"] =' in made.text
    assert run(made.text) == [11 + len("two -- dashes")]


def test_the_first_line_names_script_and_version() -> None:
    assert load("one.diamond", ROOT).text.startswith("-- korvet one.diamond v1\n")


def test_only_constants_that_are_named_are_in_the_text() -> None:
    made = load("one.constants", ROOT)
    assert 'modules["lib.numbers"] = { ONE = 1, TWO = 2 }\n' in made.text
    assert run(made.text) == [3]


def test_functions_that_nothing_names_are_not_in_the_text() -> None:
    made = load("one.spare", ROOT)
    assert "unused" not in made.text
    assert made.text.count("function M.used(n)") == made.text.count("function doubled(n)") == 1
    assert run(made.text) == [42]
    line = 1 + made.text.split("\n").index("return { spare.used(21) }")
    assert made.locate(line) == ("one/spare.lua", 8)


def test_every_line_of_code_is_found_in_its_file() -> None:
    made = load("one.diamond", ROOT)
    found = 0
    for number, line in enumerate(made.text.split("\n"), 1):
        try:
            path, at = made.locate(number)
        except LookupError:
            continue
        source = (ROOT / path).read_text().split("\n")[at - 1]
        assert source.startswith(line)
        found += bool(line)
    assert found == 4 + 3 + 2 + 2


def test_a_line_number_in_a_redis_error_maps_to_its_file(redis_server: TestServer) -> None:
    class Nothing(Reply):
        error: int

    script = Script("one.failing", Nothing, ROOT)
    with redis_server.client() as client, pytest.raises(ScriptFailed) as caught:
        StoreRunner(client).run(Call(script, ()))
    line = int(caught.value.message.split("user_script:")[1].split(":")[0])
    assert script.bundle.locate(line) == ("one/failing.lua", 9)


def copy_with(tmp_path: Path, path: str, old: str, new: str) -> Path:
    """Copy the fixtures' directory, with one change in one file."""
    root = tmp_path / "lua"
    shutil.copytree(ROOT, root)
    source = (root / path).read_text()
    assert old in source
    (root / path).write_text(source.replace(old, new))
    return root


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("one/diamond.lua", "Something is true", "Something else is true"),
        ("one/diamond.lua", "-- and one behind code", "-- another"),
        ("lib/leaf.lua", "a library of the tests", "the leaf"),
        ("lib/numbers.lua", "  THREE = 3,\n", "  THREE = 3,\n  FOUR = 4,\n"),
    ],
)
def test_words_change_no_sha1(tmp_path: Path, path: str, old: str, new: str) -> None:
    root = copy_with(tmp_path, path, old, new)
    for name in ("one.diamond", "one.constants"):
        assert load(name, root).sha1 == load(name, ROOT).sha1


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("one/diamond.lua", "version 1", "version 2"),
        ("one/diamond.lua", "two -- dashes", "two -- other dashes"),
        ("lib/leaf.lua", "M.value = 1", "M.value = 2"),
    ],
)
def test_code_and_version_change_the_sha1(tmp_path: Path, path: str, old: str, new: str) -> None:
    root = copy_with(tmp_path, path, old, new)
    assert load("one.diamond", root).sha1 != load("one.diamond", ROOT).sha1


def test_dashes_in_strings_are_no_comments() -> None:
    assert blank_comments('a = "x -- y" -- z') == 'a = "x -- y"'
    assert blank_comments("a = '\\' -- y'--z") == "a = '\\' -- y'"
    assert blank_comments('a = "\\"--" .. b  -- c\n--- d') == 'a = "\\"--" .. b\n'


def test_names_are_paths_and_libraries_are_none() -> None:
    found = bundle.names(ROOT)
    assert "one.diamond" in found
    assert not [name for name in found if name.startswith("lib.")]


def test_every_script_we_ship_compiles() -> None:
    runtime = lua51.LuaRuntime(encoding="utf-8")
    compiled = runtime.eval("function(text, name) return assert(loadstring(text, name)) end")
    assert bundle.names()
    for name in bundle.names():
        assert compiled(load(name).text, name)
