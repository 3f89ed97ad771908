"""Limit how many records one trigger of a stream takes: at most, and at least."""

from collections.abc import Sequence
from time import monotonic

from korvet.spark.metadata import MetadataClient
from korvet.spark.partitions import OffsetRange, PartitionLog


class TriggerDelay:
    """Delays a batch until `least` records are unread, for at most `delay_ms`.

    The delay starts at the end of the previous batch. The first batch is never delayed, as in
    Spark's Kafka source.
    """

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least
        self._delay_ms = delay_ms
        self._due: float | None = None

    def should_wait(self, metadata: MetadataClient, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether to delay a batch of these ranges; if not, restart the delay."""
        if self._least is None:
            return False
        now = monotonic()
        if self._due is not None and now < self._due and sum(metadata.count(ranges)) < self._least:
            return True
        self._due = now + self._delay_ms / 1000
        return False


def unread_ranges(
    logs: Sequence[PartitionLog], starts: Sequence[int], ends: Sequence[int]
) -> list[OffsetRange]:
    """Return the ranges between starts and ends, without empty ones."""
    each = zip(logs, starts, ends, strict=True)
    return [OffsetRange(part, start, end) for part, start, end in each if start < end]


def limit_ends(
    metadata: MetadataClient,
    logs: Sequence[PartitionLog],
    starts: Sequence[int],
    ends: Sequence[int],
    max_records: int,
) -> list[int]:
    """Lower the ends to at most `max_records` records, shared among the partitions."""
    waiting = unread_ranges(logs, starts, ends)
    counts = metadata.count(waiting)
    if sum(counts) <= max_records:
        return list(ends)
    shares = allocate_records(counts, max_records, sum(starts))
    taken = [(each, share) for each, share in zip(waiting, shares, strict=True) if share]
    reached = metadata.advance([each for each, _ in taken], [share for _, share in taken])
    found = {each.log: end for (each, _), (end, _) in zip(taken, reached, strict=True)}
    return [found.get(part, start) for part, start in zip(logs, starts, strict=True)]


def allocate_records(counts: Sequence[int], max_records: int, turn: int = 0) -> list[int]:
    """Allocate `max_records` records to partitions in proportion to their unread records.

    Each partition gets at least one record, so that small ones do not wait for large ones. If
    there are fewer records than partitions, `turn` selects which get one.
    """
    shares = [min(count, 1) for count in counts]
    there = [i for i, count in enumerate(counts) if count]
    if max_records <= len(there):
        chosen = {there[(turn + i) % len(there)] for i in range(max_records)}
        return [int(i in chosen) for i in range(len(counts))]
    max_records -= len(there)
    total = sum(counts) - len(there)
    for i in there:
        shares[i] += (counts[i] - 1) * max_records // total
    left = max_records + len(there) - sum(shares)
    order = sorted(there, key=lambda i: (counts[i] - 1) * max_records % total, reverse=True)
    for i in order[:left]:
        shares[i] += 1
    return shares
