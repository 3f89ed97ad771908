"""Which offsets go into the next commit: from what the table has to what the log has."""

import logging
from collections import Counter
from collections.abc import Sequence

import msgspec

from korvet.pipeline.errors import OtherLog, TailLost, TrimmedEarly
from korvet.pipeline.ranges import Commit, Span
from korvet.spark.catalog import Catalog, Live, Log, Range
from korvet.spark.limits import limited
from korvet.spark.marks import marks
from korvet.spark.options import Selection

logger = logging.getLogger("korvet.pipeline")


class Step(msgspec.Struct, frozen=True):
    """The next commit's spans, and the ranges of the log to read for them."""

    spans: tuple[Span, ...]
    ranges: tuple[Range, ...]
    records: int
    partitions: dict[str, int]
    """How many each topic has."""

    @property
    def marked(self) -> list[tuple[Log, Span | None]]:
        """The logs that are read, and what the commit says of each."""
        spans = self.spans[len(self.spans) - len(self.ranges) :]
        return [(each.log, span) for each, span in zip(self.ranges, spans, strict=True)]


class Aim(msgspec.Struct, frozen=True):
    """How far a run goes: the ends of all partitions when it began."""

    logs: tuple[Log, ...]
    ends: tuple[int, ...]


def aim(catalog: Catalog, topics: Sequence[str]) -> Aim:
    """The ends as they are now."""
    logs = catalog.logs(Selection(topics=tuple(topics)))
    return Aim(tuple(logs), tuple(bound.next for bound in catalog.bounds(logs, committed=True)))


def next_step(
    catalog: Catalog, state: Commit, target: Aim, most: int, *, skip_lost: bool = False
) -> Step | None:
    """What to archive next, at most about `most` records; None when the aim is reached.

    TrimmedEarly names what left the log too soon, TailLost where it has others in place of records
    that the table has; with `skip_lost` such offsets are given up, and the commit says so.
    """
    bounds = catalog.bounds(target.logs, committed=True)
    gone = replaced(catalog, [(part, _known(state, part)) for part in target.logs])
    if gone and not skip_lost:
        raise tail_lost(gone)
    starts: list[int] = []
    for part, bound, end in zip(target.logs, bounds, target.ends, strict=True):
        start = _start(state, part, bound)
        if start < bound.start:
            gone.append(Span(part.topic, part.partition, part.topic_id, start, bound.start, True))
            start = bound.start
        starts.append(min(start, max(end, bound.start)))
    if gone and not skip_lost:
        raise _trimmed(gone)
    for span in gone:
        logger.warning("%s was lost before it was archived", span)
    ends = [max(start, end) for start, end in zip(starts, target.ends, strict=True)]
    ends = limited(catalog, target.logs, starts, ends, most)
    ranges = tuple(
        Range(part, start, end)
        for part, start, end in zip(target.logs, starts, ends, strict=True)
        if start < end
    )
    if not ranges and not gone:
        return None
    last = marks(catalog, [(each.log, each.end - 1) for each in ranges])
    spans = [
        Span(r.log.topic, r.log.partition, r.log.topic_id, r.start, r.end, mark=mark)
        for r, mark in zip(ranges, last, strict=True)
    ]
    begun = _begun(state, target.logs, starts, ends)
    partitions = Counter(part.topic for part in target.logs)
    return Step((*gone, *begun, *spans), ranges, sum(catalog.count(ranges)), dict(partitions))


def _known(state: Commit, part: Log) -> Span | None:
    """What the table holds of the partition, if it is this topic's."""
    held = state.held(part.topic, part.partition)
    return held if held is not None and held.topic_id == part.topic_id else None


def replaced(catalog: Catalog, held: Sequence[tuple[Log, Span | None]]) -> list[Span]:
    """The last offset of each span where the log has another record now, as a lost span."""
    marked = [(part, span) for part, span in held if span is not None and span.mark]
    found = marks(catalog, [(part, span.end - 1) for part, span in marked])
    return [
        msgspec.structs.replace(span, start=span.end - 1, lost=True, mark="")
        for (_, span), mark in zip(marked, found, strict=True)
        if mark not in (span.mark, "")
    ]


def _begun(
    state: Commit, logs: Sequence[Log], starts: Sequence[int], ends: Sequence[int]
) -> list[Span]:
    """Empty spans where partitions begin of which the commit would else say nothing."""
    return [
        Span(part.topic, part.partition, part.topic_id, start, start)
        for part, start, end in zip(logs, starts, ends, strict=True)
        if start == end and state.held(part.topic, part.partition) is None
    ]


def _start(state: Commit, part: Log, bound: Live) -> int:
    """Where to go on in a partition."""
    held = state.held(part.topic, part.partition)
    if held is None:
        _same_topic(state, part)
        # A partition that came since the last commit has been ours from its first offset on.
        return 0 if part.topic in state.partitions else bound.start
    if held.topic_id != part.topic_id:
        raise _other(part, held.topic_id)
    if held.end > bound.coming:
        raise OtherLog(
            f"{part}: the table holds offsets up to {held.end - 1}, and the log ends at "
            f"{bound.end}: this is another Redis, or it has lost data. If it is the right one, "
            "archive it into another table."
        )
    return held.end


def _same_topic(state: Commit, part: Log) -> None:
    for span in state.archived:
        if span.topic == part.topic and span.topic_id != part.topic_id:
            raise _other(part, span.topic_id)


def _other(part: Log, told: str) -> OtherLog:
    return OtherLog(
        f"The table holds another topic {part.topic!r} (id {told}); the log's has id "
        f"{part.topic_id}: it was deleted and created again, or this is another Redis. "
        "Archive it into another table."
    )


def _trimmed(gone: Sequence[Span]) -> TrimmedEarly:
    what = "; ".join(
        f"topic {span.topic!r} partition {span.partition}: offsets {span.start} to {span.end - 1}"
        for span in gone
    )
    return TrimmedEarly(
        f"Gone from the log before they were archived: {what}. Retention or a trim was faster. "
        "--skip-lost goes on behind them, and the table says so."
    )


def tail_lost(found: Sequence[Span]) -> TailLost:
    """What to raise where the log has other records than the table at the end of what it holds."""
    what = "; ".join(
        f"topic {span.topic!r} partition {span.partition}: offset {span.start}" for span in found
    )
    return TailLost(
        f"The log has another record than the table: {what}. Redis lost the end of the log, as in "
        "a failover, and what came then took the offsets of what the table has. Archive into "
        "another table, which gets all that the log still has; or --skip-lost goes on behind these "
        "offsets, and the table says so."
    )


def reading(ranges: Sequence[Range]) -> dict[str, str]:
    """The ranges as options of format `korvet`."""
    parts: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in ranges:
        topic, number = each.log.topic, each.log.partition
        parts.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = each.start
        ends.setdefault(topic, {})[str(number)] = each.end
    return {
        "assign": msgspec.json.encode(parts).decode(),
        "startingOffsets": msgspec.json.encode(starts).decode(),
        "endingOffsets": msgspec.json.encode(ends).decode(),
        "includeHeaders": "true",
        # What an open transaction may still take back is not archived yet; what was aborted, never.
        "isolation": "read_committed",
    }


def had_natives(part: Log, end: int, appended: int) -> bool:
    """Whether others ever added entries to a log of dense offsets, of which each entry that was
    `appended` (counted before its `end` was asked for) took one; of no other log is it known."""
    return part.mode == "dense" and not part.is_batch and end > appended
