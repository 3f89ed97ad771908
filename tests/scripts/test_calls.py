"""Check that the committed calls are those that the headers give."""

from pathlib import Path

import korvet.scripts.calls
from korvet.scripts import generate
from korvet.scripts.keys import Keys

MODULES = Path(korvet.scripts.calls.__path__[0])


def test_the_committed_modules_are_the_generated_ones() -> None:
    assert generate.stale(MODULES) == []
    assert {path.stem for path in MODULES.glob("*.py")} == {"__init__", *generate.modules()}


def test_a_missing_or_changed_module_is_named(tmp_path: Path) -> None:
    generate.write(tmp_path)
    (tmp_path / "group.py").unlink()
    with (tmp_path / "partition.py").open("a") as module:
        module.write("\n")
    assert [line.split()[0] for line in generate.stale(tmp_path)] == [
        "korvet/scripts/calls/partition.py",
        "korvet/scripts/calls/group.py",
    ]


def test_a_call_takes_keys_of_its_receiver_and_encodes_ids() -> None:
    partition = Keys().partition("t", 3, "1" * 32)
    call = partition.share_release(group="a:b", member="m", delivery_limit=5)
    assert call.script.name == "share.release"
    parts = ("log", "share", "share_runs", "share_lost")
    assert call.keys == tuple(f"{{korvet:t:3}}:{part}" for part in parts)
    assert call.args == ("a%3Ab", "m", "1" * 32, 5, 0, 0)


def test_repeated_arguments_follow_the_others_row_by_row() -> None:
    call = Keys().group("g").leave([("one", ""), ("two", "i")])
    assert call.args == ("one", "", "two", "i")
    assert Keys().group("g").delete_offsets(["f", "h"], state="Empty", generation=1).args == (
        "Empty",
        1,
        "f",
        "h",
    )
