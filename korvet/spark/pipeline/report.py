"""Print statistics as text, or write them as one HTML file without external resources."""

import sys
from collections.abc import Sequence
from html import escape

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from korvet.base.human import moment, size
from korvet.spark.pipeline.stats import Quantiles, TopicStats

BLOCKS = " ▁▂▃▄▅▆▇█"
HEADS = ("least", "median", "90 %", "99 %", "99.9 %", "most")


def print_report(topics: Sequence[TopicStats]) -> None:
    """Print the statistics on stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 100)
    for each in topics:
        console.print(Panel(_topic(each), title=Text(each.topic), title_align="left"))


def _topic(stats: TopicStats) -> RenderableType:
    parts: list[RenderableType] = [Text(_summary(stats))]
    if stats.records:
        parts += [Text(_bars(stats)), _distributions(stats), _partitions(stats)]
        if stats.top:
            parts.append(_keys(stats))
    spaced = [line for part in parts for line in (Text(), part)]
    return Group(*spaced[1:])


def _summary(stats: TopicStats) -> str:
    seconds = max(1, stats.last_ms - stats.first_ms) / 1000
    return (
        f"{stats.records:,} records, {size(stats.bytes)}, {moment(stats.first_ms)} to "
        f"{moment(stats.last_ms)} ({stats.records / seconds:,.1f} records/s)\n"
        f"about {stats.keys:,} keys; {stats.without_key:,} records without a key, "
        f"{stats.tombstones:,} without a value"
    )


def _bars(stats: TopicStats) -> str:
    at = {point.at_ms: point.records for point in stats.over_time}
    if not at:
        return ""
    count = (max(at) - min(at)) // stats.step_ms + 1
    highest = max(at.values())
    line = "".join(
        BLOCKS[-(-at.get(min(at) + n * stats.step_ms, 0) * (len(BLOCKS) - 1) // highest)]
        for n in range(min(count, 200))
    )
    return f"{line}  at most {highest:,} records in {stats.step_ms / 1000:g} s"


def _distributions(stats: TopicStats) -> Table:
    table = Table("", *HEADS, box=None, pad_edge=False)
    table.add_row("bytes", *_numbers(stats.sizes))
    if stats.latency_ms is not None:
        table.add_row("latency, ms", *_numbers(stats.latency_ms))
    return table


def _numbers(quantiles: Quantiles) -> list[str]:
    return [f"{value:,.0f}" for value in quantiles.values]


def _partitions(stats: TopicStats) -> Table:
    table = Table("partition", "records", "share", "bytes", box=None, pad_edge=False)
    for part in stats.parts:
        share = f"{100 * part.records / stats.records:.1f} %"
        table.add_row(str(part.partition), f"{part.records:,}", share, size(part.bytes))
    return table


def _keys(stats: TopicStats) -> Table:
    table = Table("most frequent keys", "records", "share", box=None, pad_edge=False)
    for key in stats.top:
        table.add_row(
            Text(key.key), f"{key.records:,}", f"{100 * key.records / stats.records:.1f} %"
        )
    return table


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --bar: #2f6f9f; --bg: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #98a2ad; --bar: #6cb0de; --bg: #14181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--bg);
  margin: 2rem auto; max-width: 760px; padding: 0 1rem; }
h2 { margin: 2.5rem 0 .3rem; } h3 { margin: 1.4rem 0 .3rem; font-size: 1rem; }
p { margin: .2rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem .9rem .15rem 0; font-weight: normal; }
th { color: var(--soft); } td:first-child, th:first-child { text-align: left; }
.bars { width: 100%; } .bars td { white-space: nowrap; padding-top: 0; padding-bottom: 0; }
.bars td:last-child { width: 100%; } .bars div { background: var(--bar); height: .7rem; }
"""


def render_html(topics: Sequence[TopicStats]) -> str:
    """Return the HTML file."""
    names = escape(", ".join(each.topic for each in topics))
    body = "".join(_html_topic(each) for each in topics)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{names}</title><style>{_STYLE}</style></head><body><h1>{names}</h1>{body}"
        "</body></html>\n"
    )


def _html_topic(stats: TopicStats) -> str:
    head = (
        f"<h2>{escape(stats.topic)}</h2><p>{stats.records:,} records, {size(stats.bytes)}, "
        f"about {stats.keys:,} keys; {stats.without_key:,} records without a key, "
        f"{stats.tombstones:,} without a value</p>"
    )
    if not stats.records:
        return head
    parts = [(f"partition {part.partition}", part.records) for part in stats.parts]
    keys = [(key.key, key.records) for key in stats.top]
    tables = _over_time(stats) + _quantiles(stats) + _counts("Partitions", parts)
    return head + tables + (_counts("Most frequent keys", keys) if keys else "")


def _over_time(stats: TopicStats) -> str:
    per_s = stats.step_ms / 1000
    records, volume = [], []
    for point in stats.over_time:
        at = moment(point.at_ms)
        records.append((at, point.records / per_s, f"{point.records / per_s:,.4g}"))
        volume.append((at, point.bytes / per_s, size(int(point.bytes / per_s))))
    return _html_bars("Records per second", records) + _html_bars("Bytes per second", volume)


def _quantiles(stats: TopicStats) -> str:
    rows = [("Bytes of key and value", stats.sizes)]
    if stats.latency_ms is not None:
        rows.append(("Latency (append time - timestamp), ms", stats.latency_ms))
    return "<h3>Distributions</h3>" + _html_table(
        ("", *HEADS), [(name, *_numbers(found)) for name, found in rows]
    )


def _counts(title: str, counts: Sequence[tuple[str, int]]) -> str:
    return _html_bars(title, [(name, count, f"{count:,}") for name, count in counts])


def _html_bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    highest = max(value for _, value, _ in rows) or 1
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{text}</td>"
        f'<td><div style="width: {100 * value / highest:.1f}%"></div></td></tr>'
        for name, value, text in rows
    )
    return f'<h3>{title}</h3><table class="bars">{body}</table>'


def _html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(t)}</td>" for t in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
