"""Name every case of the harness, and run the selected ones."""

from collections.abc import AsyncIterator, Iterable

from benchmarks.compacting import Compact
from benchmarks.consumer_groups import Settle
from benchmarks.copying import Copying
from benchmarks.groups import Commits, Heartbeats, Join
from benchmarks.growth import FlatLog, FlatTopic, Memory
from benchmarks.idempotence import Idempotent
from benchmarks.idle import Idle
from benchmarks.report import Line
from benchmarks.scheduled import Scheduled
from benchmarks.shared import Shared
from benchmarks.tiered import TieredFetch, reads
from benchmarks.transactions import Ends, Transactional
from korvet.testing.bench.latency import Latency
from korvet.testing.bench.load import Target
from korvet.testing.bench.throughput import LATENCY, RATES, Fetch, Produce

SEGMENTS: dict[str, TieredFetch] = {
    "s1k": TieredFetch(100, 1000, megabytes=1000, once=True),
    "s1kagain": TieredFetch(100, 1000, megabytes=1000, once=True, again=True),
    "s100": TieredFetch(1000, 100, megabytes=1000, once=True),
    "s100lz4": TieredFetch(1000, 100, megabytes=1000, once=True, codec="lz4"),
}
"""Reads from segments; a broker without remote store reads its log."""
DEFAULT = (*RATES, LATENCY)
GROUPS = ("join50", "settle100", "beats", "commits")
TRANSACTIONS: dict[str, Idempotent | Transactional | Ends] = {
    "pidem": Idempotent(),
    "ptxn": Transactional(),
    "endtxn": Ends(),
}
COPYING: dict[str, Copying] = {
    "pcopy": Copying(Produce(100, 1000)),
    "pcopy4": Copying(Produce(100, 1000, width=4)),
}
TIERED = {*SEGMENTS, *COPYING}
"""Cases for a broker with a remote store."""
WHOLE: dict[str, Idempotent | Transactional | Ends | Idle | Scheduled | Shared | Copying] = {
    **TRANSACTIONS,
    **COPYING,
    "idle": Idle(),
    "scheduled": Scheduled(),
    "share1": Shared(1),
    "share8": Shared(8),
}
"""Cases that report all their figures themselves."""
ALL = (*DEFAULT, *SEGMENTS, *GROUPS, *WHOLE, "flat", "memory", "compact")


async def run(
    names: Iterable[str], target: Target, label: str, store: str | None
) -> AsyncIterator[Line]:
    """Run the cases and yield a line for each, or several for `flat`, once it is measured."""
    for name in names:
        about: Line = {"case": name, "label": label}
        if name in RATES or name in SEGMENTS:
            yield {**about, **await _rate(name, target)}
        elif name == LATENCY:
            tally, quantiles = await Latency().run(target)
            yield {**about, **quantiles, "client_cpu_share": tally.row()["client_cpu_share"]}
        elif name in GROUPS:
            yield {**about, **await _groups(name, target)}
        elif name in WHOLE:
            yield {**about, **await WHOLE[name].run(target)}
        elif name == "flat":
            for row in [*await FlatLog().run(target), *await FlatTopic().run(target)]:
                yield {**about, **row}
        elif name == "memory" and store is not None:
            yield {**about, **await Memory(store).run(target)}
        elif name == "compact" and store is not None:
            yield {**about, **await Compact(store).run(target)}


async def _rate(name: str, target: Target) -> Line:
    case = {**RATES, **SEGMENTS}[name]
    about = reads(case, target) if isinstance(case, Fetch) else {}
    return {**about, **(await case.run(target)).row()}


async def _groups(name: str, target: Target) -> dict[str, float | int]:
    if name == "join50":
        return {**await Join().run(target)}
    if name == "settle100":
        return {**await Settle().run(target)}
    if name == "beats":
        return {**await Heartbeats().run(target)}
    row = (await Commits().run(target)).row()
    return {k: row[k] for k in ("requests", "requests_per_s", "cpu_us_per_request") if k in row}
