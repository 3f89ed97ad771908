"""Check that a run builds what its tests need once."""

from pathlib import Path

from tests.support.programs import Build

LOG = ("sh", "-c", "cat file >> log")


def test_a_folder_is_built_again_only_if_its_files_or_commands_differ(
    build: Build, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a")
    folder = build(tmp_path, LOG)
    assert build(tmp_path, LOG) == folder and (folder / "log").read_text() == "a"
    assert (build(tmp_path, LOG, LOG) / "log").read_text() == "aa"
    (tmp_path / "file").write_text("b")
    assert (build(tmp_path, LOG) / "log").read_text() == "b"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
