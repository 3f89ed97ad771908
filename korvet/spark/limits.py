"""How much one trigger of a stream takes: at most so many records, and at least so many, or
whatever has come when the wait for them was long enough.
"""

from collections.abc import Sequence
from time import monotonic

from korvet.spark.catalog import Catalog, Log, Range


class Patience:
    """Puts a batch off until `least` records wait, but no longer than `delay_ms` after the batch
    before it. The first batch is never put off, as in Spark's Kafka source."""

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._due: float | None = None

    def puts_off(self, catalog: Catalog, ranges: Sequence[Range]) -> bool:
        """Whether these records may wait. Where they may not, the delay begins anew."""
        if self._least is None:
            return False
        now = monotonic()
        if self._due is not None and now < self._due and sum(catalog.count(ranges)) < self._least:
            return True
        self._due = now + self._delay_ms / 1000
        return False


def ahead(logs: Sequence[Log], starts: Sequence[int], ends: Sequence[int]) -> list[Range]:
    """What waits in each partition where anything does."""
    each = zip(logs, starts, ends, strict=True)
    return [Range(part, start, end) for part, start, end in each if start < end]


def limited(
    catalog: Catalog,
    logs: Sequence[Log],
    starts: Sequence[int],
    ends: Sequence[int],
    most: int,
) -> list[int]:
    """Ends that hold at most `most` records, shared out by what waits in each partition."""
    waiting = ahead(logs, starts, ends)
    counts = catalog.count(waiting)
    if sum(counts) <= most:
        return list(ends)
    shares = shared(counts, most, sum(starts))
    taken = [(each, share) for each, share in zip(waiting, shares, strict=True) if share]
    reached = catalog.advance([each for each, _ in taken], [share for _, share in taken])
    found = {each.log: end for (each, _), (end, _) in zip(taken, reached, strict=True)}
    return [found.get(part, start) for part, start in zip(logs, starts, strict=True)]


def shared(counts: Sequence[int], most: int, turn: int = 0) -> list[int]:
    """`most`, shared out in proportion, but at least one to each: a partition with little may not
    wait for those with much. If there is less than that, each has its turn."""
    shares = [min(count, 1) for count in counts]
    there = [i for i, count in enumerate(counts) if count]
    if most <= len(there):
        chosen = {there[(turn + i) % len(there)] for i in range(most)}
        return [int(i in chosen) for i in range(len(counts))]
    most -= len(there)
    total = sum(counts) - len(there)
    for i in there:
        shares[i] += (counts[i] - 1) * most // total
    rest = most + len(there) - sum(shares)
    order = sorted(there, key=lambda i: (counts[i] - 1) * most % total, reverse=True)
    for i in order[:rest]:
        shares[i] += 1
    return shares
