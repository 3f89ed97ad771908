"""Statistics as one HTML file: its plots are drawn in it, nothing is fetched from anywhere."""

from collections.abc import Callable, Sequence
from html import escape

from korvet.pipeline.report import HEADS, moment, size
from korvet.pipeline.stats import Quantiles, TopicStats

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 64, 22

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --bar: #2f6f9f; --bg: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #98a2ad; --bar: #6cb0de; --bg: #14181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--bg);
  margin: 2rem auto; max-width: 760px; padding: 0 1rem; }
h2 { margin: 2.5rem 0 .3rem; } h3 { margin: 1.4rem 0 .3rem; font-size: 1rem; }
p { margin: .2rem 0; } .soft, svg text { color: var(--soft); fill: var(--soft); font-size: 12px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem .9rem .15rem 0; font-weight: normal; }
th { color: var(--soft); } td:first-child, th:first-child { text-align: left; }
svg { width: 100%; height: auto; } rect { fill: var(--bar); } line { stroke: var(--soft); }
"""


def page(found: Sequence[TopicStats]) -> str:
    """The whole file."""
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
        f"<h2>{escape(each.topic)}</h2><p>{each.records:,} records, {size(each.bytes)}, about "
        f"{each.keys:,} keys; {each.without_key:,} records without a key, "
        f"{each.tombstones:,} without a value</p>"
    )
    if not each.records:
        return head
    plots = _over_time(each) + _quantiles(each) + _bars_of_parts(each)
    top = [(key.key, key.records) for key in each.top]
    return head + plots + (_horizontal("Most frequent keys", top) if top else "")


def _over_time(each: TopicStats) -> str:
    low, high = each.over_time[0].at_ms, each.over_time[-1].at_ms + each.step_ms
    per_s = each.step_ms / 1000
    records = [(point.at_ms, point.records / per_s) for point in each.over_time]
    volume = [(point.at_ms, point.bytes / per_s) for point in each.over_time]
    return _plot("Records a second", records, low, high, each.step_ms, lambda v: f"{v:,.4g}") + (
        _plot("Bytes a second", volume, low, high, each.step_ms, lambda v: size(int(v)))
    )


def _plot(
    title: str,
    points: Sequence[tuple[int, float]],
    low: int,
    high: int,
    step: int,
    said: Callable[[float], str],
) -> str:
    most = max(value for _, value in points) or 1
    across = (WIDTH - LEFT) / max(1, high - low)
    room, floor = HEIGHT - BOTTOM - 10, HEIGHT - BOTTOM
    bars = "".join(
        f'<rect x="{LEFT + (at - low) * across:.1f}" y="{floor - value / most * room:.1f}" '
        f'width="{max(1.0, step * across - 1):.1f}" height="{value / most * room:.1f}">'
        f"<title>{moment(at)}: {said(value)}</title></rect>"
        for at, value in points
    )
    return (
        f'<h3>{title}</h3><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f'<line x1="{LEFT}" y1="{floor}" x2="{WIDTH}" y2="{floor}"/>'
        f'<text x="0" y="14">{said(most)}</text>{bars}'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{moment(low)}</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">{moment(high)}</text></svg>'
    )


def _quantiles(each: TopicStats) -> str:
    rows = [("Bytes of key and value", each.sizes)]
    if each.latency_ms is not None:
        rows.append(("Latency (append time - timestamp), ms", each.latency_ms))
    return "<h3>Distributions</h3>" + _table(("", *HEADS), [_row(*row) for row in rows])


def _row(name: str, found: Quantiles) -> tuple[str, ...]:
    return (name, *(f"{value:,.0f}" for value in found.values))


def _bars_of_parts(each: TopicStats) -> str:
    rows = [(f"partition {part.partition}", part.records) for part in each.parts]
    return _horizontal("Partitions", rows)


def _horizontal(title: str, rows: Sequence[tuple[str, int]]) -> str:
    most, line = max(count for _, count in rows), 20
    bars = "".join(
        f'<text x="0" y="{n * line + 14}">{escape(name[:28])}</text>'
        f'<rect x="200" y="{n * line + 3}" width="{count / most * (WIDTH - 300):.1f}" height="13"/>'
        f'<text x="{206 + count / most * (WIDTH - 300):.1f}" y="{n * line + 14}">{count:,}</text>'
        for n, (name, count) in enumerate(rows)
    )
    box = f"0 0 {WIDTH} {len(rows) * line + 4}"
    return f'<h3>{title}</h3><svg viewBox="{box}" role="img">{bars}</svg>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(t)}</td>" for t in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
