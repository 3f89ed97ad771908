"""Render statistics as one HTML file without external resources."""

from collections.abc import Sequence
from html import escape

from korvet.base.human import moment, size
from korvet.spark.pipeline.stats import Quantiles, TopicStats
from korvet.spark.pipeline.text_report import HEADS

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


def render_html(found: Sequence[TopicStats]) -> str:
    """Return the HTML file."""
    names = escape(", ".join(each.topic for each in found))
    body = "".join(_topic(each) for each in found)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{names}</title><style>{_STYLE}</style></head><body><h1>{names}</h1>{body}"
        "</body></html>\n"
    )


def _topic(each: TopicStats) -> str:
    head = (
        f"<h2>{escape(each.topic)}</h2><p>{each.records:,} records, {size(each.bytes)}, "
        f"about {each.keys:,} keys; {each.without_key:,} records without a key, "
        f"{each.tombstones:,} without a value</p>"
    )
    if not each.records:
        return head
    parts = [(f"partition {part.partition}", part.records) for part in each.parts]
    keys = [(key.key, key.records) for key in each.top]
    tables = _over_time(each) + _quantiles(each) + _counts("Partitions", parts)
    return head + tables + (_counts("Most frequent keys", keys) if keys else "")


def _over_time(each: TopicStats) -> str:
    per_s = each.step_ms / 1000
    records, volume = [], []
    for point in each.over_time:
        at = moment(point.at_ms)
        records.append((at, point.records / per_s, f"{point.records / per_s:,.4g}"))
        volume.append((at, point.bytes / per_s, size(int(point.bytes / per_s))))
    return _bars("Records per second", records) + _bars("Bytes per second", volume)


def _quantiles(each: TopicStats) -> str:
    rows = [("Bytes of key and value", each.sizes)]
    if each.latency_ms is not None:
        rows.append(("Latency (append time - timestamp), ms", each.latency_ms))
    return "<h3>Distributions</h3>" + _table(("", *HEADS), [_row(*row) for row in rows])


def _row(name: str, found: Quantiles) -> tuple[str, ...]:
    return (name, *(f"{value:,.0f}" for value in found.values))


def _counts(title: str, counts: Sequence[tuple[str, int]]) -> str:
    return _bars(title, [(name, count, f"{count:,}") for name, count in counts])


def _bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    most = max(value for _, value, _ in rows) or 1
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{text}</td>"
        f'<td><div style="width: {100 * value / most:.1f}%"></div></td></tr>'
        for name, value, text in rows
    )
    return f'<h3>{title}</h3><table class="bars">{body}</table>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(t)}</td>" for t in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
