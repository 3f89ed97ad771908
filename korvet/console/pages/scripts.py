"""Read the Lua scripts: version, calls, latency, errors of this broker."""

import asyncio
from collections.abc import Mapping
from functools import cache

import msgspec

from korvet.broker.ops.metric_pages import Snapshots
from korvet.console.visit import Visit
from korvet.scripts import bundle, lock
from korvet.scripts.contract import Contract, parse_contract


class ScriptRow(msgspec.Struct, frozen=True):
    """A script. Calls and latency are of this broker since its start."""

    name: str
    version: int
    writes: bool
    sentence: str
    sha1: str
    calls: int
    mean_ms: float
    p50_ms: float
    """Upper bound of the histogram's bucket, -1 without calls."""
    p99_ms: float
    errors: int


class Scripts(msgspec.Struct, frozen=True):
    """The scripts, the most called first."""

    scripts: list[ScriptRow]
    search: str


class _Numbers(msgspec.Struct):
    """The numbers of one script, over all processes of this broker."""

    buckets: list[int] = []
    bounds: tuple[float, ...] = ()
    seconds: float = 0.0
    errors: int = 0

    @property
    def calls(self) -> int:
        return sum(self.buckets)

    def quantile_ms(self, share: float) -> float:
        """Return the bound below which a share of the calls is; -1 without calls."""
        if not self.calls:
            return -1
        left = share * self.calls
        for bound, number in zip((*self.bounds, self.bounds[-1]), self.buckets, strict=True):
            left -= number
            if left <= 0:
                return bound * 1000
        return self.bounds[-1] * 1000


async def load(visit: Visit) -> Scripts:
    """Return the scripts whose name has the text of the query."""
    search = visit.query("q")
    numbers = _numbers(await visit.console.pages.snapshots())
    rows = []
    for name, contract in (await asyncio.to_thread(_contracts)).items():
        if search.lower() not in name:
            continue
        found = numbers.get(name, _Numbers())
        rows.append(
            ScriptRow(
                name,
                contract.version,
                contract.writes,
                contract.sentence,
                lock.shipped()[name],
                found.calls,
                round(found.seconds / found.calls * 1000, 3) if found.calls else -1,
                found.quantile_ms(0.5),
                found.quantile_ms(0.99),
                found.errors,
            )
        )
    return Scripts(sorted(rows, key=lambda row: (-row.calls, row.name)), search)


@cache
def _contracts() -> Mapping[str, Contract]:
    return {name: parse_contract(bundle.source(name), name) for name in lock.shipped()}


def _numbers(snapshots: Snapshots) -> dict[str, _Numbers]:
    found: dict[str, _Numbers] = {}
    for _, families in snapshots:
        for family in families:
            for sample in family.samples:
                if family.name == "korvet_script_seconds":
                    row = found.setdefault(sample.labels[0], _Numbers())
                    old = row.buckets or [0] * len(sample.buckets)
                    row.buckets = [a + b for a, b in zip(old, sample.buckets, strict=True)]
                    row.bounds = family.bounds
                    row.seconds += sample.value
                elif family.name == "korvet_script_errors":
                    found.setdefault(sample.labels[0], _Numbers()).errors += int(sample.value)
    return found
