"""Check log lines: one event is one line, whatever a client sends."""

import json
import logging

import pytest

from korvet.base import logfmt


def test_a_line_is_key_value_text(capsys: pytest.CaptureFixture[str]) -> None:
    logfmt.setup("info", "text")
    logfmt.get("broker.connection").warning(
        "bad frame", client="10.0.0.7:5101", api="Produce", version=99, reason=None, closed=True
    )
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.split(" ", 1)[1] == (
        'level=warning log=broker.connection event="bad frame" '
        "client=10.0.0.7:5101 api=Produce version=99 reason=- closed=true\n"
    )


def test_a_line_is_json_if_configured(capsys: pytest.CaptureFixture[str]) -> None:
    logfmt.setup("info", "json")
    logfmt.get("store").error("script refused", script="log.append", script_version=3)
    line = json.loads(capsys.readouterr().err)
    assert line["time"].endswith("Z")
    assert line | {"time": ""} == {
        "time": "",
        "level": "error",
        "log": "store",
        "event": "script refused",
        "script": "log.append",
        "script_version": 3,
    }


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "hostile", ['a\nlevel=error event="x"', "\x1b[2J\x7f", "\udcff", b"\xff\n", "x" * 10_000, ""]
)
def test_a_value_from_outside_cannot_break_the_line(
    capsys: pytest.CaptureFixture[str], style: str, hostile: str | bytes
) -> None:
    logfmt.setup("info", style)
    logfmt.get("broker").info("hello", client_id=hostile)
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.endswith("\n")
    assert line[:-1].isprintable()
    assert len(line) < 3_500


def test_an_unexpected_error_keeps_its_traceback_on_one_json_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logfmt.setup("info", "json")
    try:
        raise KeyError("orders")
    except KeyError as error:
        logfmt.get("broker").exception("handler failed", error, api="Fetch")
    line = json.loads(capsys.readouterr().err)
    assert line["error"] == "KeyError: 'orders'"
    assert "test_logfmt.py" in line["trace"]


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    logfmt.setup("warning", "text")
    logfmt.get("broker").info("quiet")
    logfmt.get("broker").debug("quieter")
    assert capsys.readouterr().err == ""


def test_a_repeated_error_is_logged_at_an_interval(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(logfmt, "monotonic", lambda: clock)
    log = logfmt.get("dispatch")
    with caplog.at_level(logging.ERROR, "korvet"):
        for clock in (0.0, 0.1, 0.2, logfmt.REPEAT_INTERVAL_S, logfmt.REPEAT_INTERVAL_S + 1):
            log.error_again("failed", api="Fetch", error="WRONGTYPE")
            if clock == 0.1:
                log.error_again("failed", api="Produce", error="WRONGTYPE")
    reported = [vars(row)["fields"] for row in caplog.records]
    assert reported == [
        {"api": "Fetch", "error": "WRONGTYPE"},
        {"api": "Produce", "error": "WRONGTYPE"},
        {"api": "Fetch", "error": "WRONGTYPE", "left_out": 2},
    ]


def test_not_ever_more_lines_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    log = logfmt.get("dispatch")
    with caplog.at_level(logging.ERROR, "korvet"):
        for number in range(2 * logfmt.MAX_REPEATED_LINES + 5):
            log.error_again("failed", error=number)
    assert len(caplog.records) == 2 * logfmt.MAX_REPEATED_LINES + 5
    assert len(log._written) <= logfmt.MAX_REPEATED_LINES
