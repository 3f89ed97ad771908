"""Check `korvet schedule` against a real server."""

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Lines

DELAY = ("-H", "korvet-delay-ms=60000")


@pytest.fixture
def korvet(lines: Lines) -> Lines:
    """Run a command line on a server with one topic; return exit code, lines and stderr."""
    lines("topics", "create", "t", "-p", "2", "--config", "delivery.schedule.enable=true")
    return lines


def test_records_are_listed_and_cancelled(
    korvet: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_text("hello\n")
    for words in (["-H", "korvet-schedule-id=r 1"], []):
        with path.open("rb") as file:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
            code, _, said = korvet("produce", "t", "-p", "1", *DELAY, *words)
        assert code == 0, said
    code, lines, _ = korvet("schedule", "list", "t")
    assert code == 0
    assert lines[0] == "partition\tnumber\tdue\tid\trecords\tbytes"
    assert [line.split("\t")[i] for line in lines[1:] for i in (0, 1, 3)] == [
        "1",
        "0",
        "r 1",
        "1",
        "1",
        "-",
    ]
    _, lines, _ = korvet("schedule", "list", "t", "--json", "--max", "1")
    (row,) = json.loads("\n".join(lines))
    assert row["id"] == "r 1" and row["due"].endswith("+00:00")
    assert len(korvet("schedule", "list", "t", "-p", "0")[1]) == 1, "the header alone"
    assert korvet("schedule", "cancel", "t", "--id", "r 1")[:2] == (0, ["cancelled 1"])
    assert korvet("schedule", "cancel", "t", "-p", "1", "--number", "1")[:2] == (0, ["cancelled 1"])
    code, _, said = korvet("schedule", "cancel", "t", "--id", "r 1")
    assert code == 2 and "no scheduled record with the id 'r 1'" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["cancel", "t"], "Give --id ID"),
        (["cancel", "t", "--number", "1"], "--number needs one --partition"),
        (["cancel", "t", "--id", "x", "-p", "2"], "partitions 0 to 1"),
        (["list", "missing"], "missing"),
    ],
)
def test_a_wrong_command_says_what_to_give(korvet: Lines, words: list[str], reason: str) -> None:
    code, _, said = korvet("schedule", *words)
    assert code == 2 and reason in said, said
