"""Print statistics as text."""

import sys
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from korvet.base.human import moment, size
from korvet.spark.pipeline.stats import Quantiles, TopicStats

BLOCKS = " ▁▂▃▄▅▆▇█"
HEADS = ("least", "median", "90 %", "99 %", "99.9 %", "most")


def print_report(found: Sequence[TopicStats]) -> None:
    """Print the statistics on stdout."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 100)
    for each in found:
        console.print(Panel(_topic(each), title=Text(each.topic), title_align="left"))


def _topic(each: TopicStats) -> RenderableType:
    parts: list[RenderableType] = [Text(_summary(each))]
    if each.records:
        parts += [Text(_bars(each)), _distributions(each), _partitions(each)]
        if each.top:
            parts.append(_keys(each))
    spaced = [line for part in parts for line in (Text(), part)]
    return Group(*spaced[1:])


def _summary(each: TopicStats) -> str:
    seconds = max(1, each.last_ms - each.first_ms) / 1000
    return (
        f"{each.records:,} records, {size(each.bytes)}, {moment(each.first_ms)} to "
        f"{moment(each.last_ms)} ({each.records / seconds:,.1f} records/s)\n"
        f"about {each.keys:,} keys; {each.without_key:,} records without a key, "
        f"{each.tombstones:,} without a value"
    )


def _bars(each: TopicStats) -> str:
    at = {point.at_ms: point.records for point in each.over_time}
    if not at:
        return ""
    count = (max(at) - min(at)) // each.step_ms + 1
    most = max(at.values())
    line = "".join(
        BLOCKS[-(-at.get(min(at) + n * each.step_ms, 0) * (len(BLOCKS) - 1) // most)]
        for n in range(min(count, 200))
    )
    return f"{line}  at most {most:,} records in {each.step_ms / 1000:g} s"


def _distributions(each: TopicStats) -> Table:
    table = Table("", *HEADS, box=None, pad_edge=False)
    table.add_row("bytes", *_numbers(each.sizes))
    if each.latency_ms is not None:
        table.add_row("latency, ms", *_numbers(each.latency_ms))
    return table


def _numbers(found: Quantiles) -> list[str]:
    return [f"{value:,.0f}" for value in found.values]


def _partitions(each: TopicStats) -> Table:
    table = Table("partition", "records", "share", "bytes", box=None, pad_edge=False)
    for part in each.parts:
        share = f"{100 * part.records / each.records:.1f} %"
        table.add_row(str(part.partition), f"{part.records:,}", share, size(part.bytes))
    return table


def _keys(each: TopicStats) -> Table:
    table = Table("most frequent keys", "records", "share", box=None, pad_edge=False)
    for key in each.top:
        table.add_row(
            Text(key.key), f"{key.records:,}", f"{100 * key.records / each.records:.1f} %"
        )
    return table
