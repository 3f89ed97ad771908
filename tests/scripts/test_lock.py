"""Check the lock: one name and version always has one text."""

import shutil
from pathlib import Path

import pytest

from korvet.scripts import bundle, lock

ROOT = Path(__file__).parent.parent / "store" / "lua"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A locked directory of scripts in place of Korvet's."""
    made = tmp_path / "lua"
    shutil.copytree(ROOT, made)
    monkeypatch.setattr(bundle, "default_root", lambda: made)
    assert lock.main([]) == 0
    return made


def edit(root: Path, old: str, new: str) -> None:
    path = root / "list" / "push.lua"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_fresh_lock_is_up_to_date(root: Path) -> None:
    assert lock.main(["--check"]) == 0
    lines = (root / "scripts.lock").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["list.add", "1"],
        ["list.push", "1"],
        ["text.echo", "1"],
        ["text.fail", "1"],
    ]


def test_a_text_that_changed_under_its_version_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (root / "scripts.lock").read_text()
    edit(root, "RPUSH", "LPUSH")
    for arguments in ([], ["--check"]):
        assert lock.main(arguments) == 1
        assert "list.push changed under version 1: raise it" in capsys.readouterr().err
    assert (root / "scripts.lock").read_text() == before
    assert lock.main(["--rewrite"]) == 0
    assert lock.main(["--check"]) == 0


def test_a_raised_version_is_locked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, "RPUSH", "LPUSH")
    edit(root, "version 1", "version 2")
    assert lock.main(["--check"]) == 1
    assert "list.push version 2 is not locked yet" in capsys.readouterr().err
    assert lock.main([]) == 0
    assert lock.read(root)["list.push"][0] == 2
    assert lock.main(["--check"]) == 0


def test_a_version_never_goes_back(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(root, "version 1", "version 2")
    assert lock.main([]) == 0
    edit(root, "version 2", "version 1")
    assert lock.main([]) == 1
    assert "locked is the later 2" in capsys.readouterr().err


def test_a_script_that_is_gone_leaves_the_lock(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "list" / "push.lua").unlink()
    assert lock.main(["--check"]) == 1
    assert "list.push is locked and has no file" in capsys.readouterr().err
    assert lock.main([]) == 0
    assert "list.push" not in lock.read(root)


def test_a_better_sentence_changes_nothing(root: Path) -> None:
    edit(root, "Append a value", "Add a value")
    assert lock.main(["--check"]) == 0
