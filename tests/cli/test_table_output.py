"""Check tables on a terminal, in a pipe, and on a terminal that is too narrow."""

import re

import pytest

from korvet.cli import table_output

COLUMNS = ("partition", "records", "newest_ms", "stream")
ROWS = [(0, 7002, 1795637351464, "korvet:tea:0"), (1, None, -1, "a\tb")]


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the printed lines, without bold and colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


def test_off_a_terminal_each_row_is_a_line_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    table_output.table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "partition\trecords\tnewest_ms\tstream",
        "0\t7002\t1795637351464\tkorvet:tea:0",
        "1\t-\t-1\ta\\tb",
    ]


def test_on_a_terminal_columns_are_aligned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 60)
    table_output.table(COLUMNS, ROWS)
    head, first, _ = lines(capsys)
    assert head.split() == list(COLUMNS) and first.index("korvet") == head.index("stream")


def test_on_a_narrow_terminal_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 30)
    table_output.table(COLUMNS, ROWS)
    found = lines(capsys)
    assert found[:5] == [
        "partition  0",
        "records    7002",
        "newest_ms  1795637351464",
        "stream     korvet:tea:0",
        "",
    ]
    assert len(found) == 10


def test_long_texts_are_wrapped_in_their_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch, 60)
    table_output.table(("name", "meaning"), [("x", "word " * 30)])
    found = lines(capsys)
    assert len(found) > 3 and all(len(line.rstrip()) <= 60 for line in found)
