"""Check statistics as text and as HTML."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from korvet.spark.pipeline import report
from korvet.spark.pipeline.stats import Key, Part, Point, Quantiles, TopicStats

FULL = TopicStats(
    topic="orders",
    records=1500,
    bytes=3_000_000,
    first_ms=1_700_000_000_000,
    last_ms=1_700_000_003_000,
    step_ms=1000,
    parts=(Part(0, 1000, 2_000_000), Part(1, 500, 1_000_000)),
    over_time=(Point(1_700_000_000_000, 500, 10), Point(1_700_000_002_000, 1000, 20)),
    without_key=3,
    tombstones=1,
    keys=40,
    top=(Key("<script>alert(1)</script>", 900),),
    sizes=Quantiles((1, 2, 3, 4, 5, 6)),
    latency_ms=Quantiles((0, 1, 2, 3, 4, 5)),
)
EMPTY = TopicStats("none", 0, 0, 0, 0, 1, (), (), 0, 0, 0, (), Quantiles(()), None)


def test_the_text_report_has_counts_shares_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_report([FULL, EMPTY])
    said = capsys.readouterr().out
    for text in ("1,500 records", "2.9 MiB", "66.7 %", "▄ █", "latency", "0 records"):
        assert text in said


def test_the_html_report_is_self_contained_and_escapes_keys() -> None:
    text = report.render_html([FULL, EMPTY])
    HTMLParser().feed(text)
    assert "<script" not in text
    assert not re.search(r"(src|href)=|https?://|@import", text)
    assert text.count('class="bars"') == 4
    assert "1,500 records" in text


def test_a_topic_without_append_times_has_no_latency() -> None:
    text = report.render_html([msgspec.structs.replace(FULL, latency_ms=None)])
    assert "Latency" not in text


def test_times_outside_of_the_calendar_are_shown_in_ms(capsys: pytest.CaptureFixture[str]) -> None:
    # Microseconds or nanoseconds, mistaken for milliseconds.
    for late in (1_700_000_000_000_000, 9_223_372_036_854_775):
        point = Point(late, 1, 1)
        far = msgspec.structs.replace(FULL, last_ms=late, over_time=(*FULL.over_time, point))
        report.print_report([far])
        assert f"{late} ms" in " ".join(capsys.readouterr().out.split())
        assert f"{late} ms" in report.render_html([far])
