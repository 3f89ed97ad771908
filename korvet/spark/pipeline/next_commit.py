"""Plan the next commit: from the end of the table to the end of the log."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from korvet.log.leader_epochs import loss_at, parse_rows
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection, Selection
from korvet.spark.partitions import OffsetRange, PartitionBounds, PartitionLog
from korvet.spark.pipeline.commit_metadata import CommitMetadata, Span
from korvet.spark.pipeline.errors import TailLost, TopicMismatch, TrimmedEarly
from korvet.spark.plan.read_limits import limit_ends
from korvet.spark.plan.tail_fingerprint import fingerprints

logger = logging.getLogger("korvet.spark.pipeline")


class NextCommit(msgspec.Struct, frozen=True):
    """The spans of the next commit, and the ranges of the log to read for them."""

    spans: tuple[Span, ...]
    ranges: tuple[OffsetRange, ...]
    records: int
    partitions: dict[str, int]
    """Partition count by topic."""

    @property
    def fingerprinted(self) -> list[tuple[PartitionLog, Span | None]]:
        """Return the logs to read and the commit's span of each."""
        spans = self.spans[len(self.spans) - len(self.ranges) :]
        return [(each.log, span) for each, span in zip(self.ranges, spans, strict=True)]


class ArchiveTarget(msgspec.Struct, frozen=True):
    """The end of a run: the end offsets of all partitions at its start."""

    logs: tuple[PartitionLog, ...]
    ends: tuple[int, ...]


def archive_target(metadata: MetadataClient, topics: Sequence[str]) -> ArchiveTarget:
    """Return the current end offsets."""
    logs = metadata.logs(Selection(topics=tuple(topics)))
    return ArchiveTarget(
        tuple(logs), tuple(bound.next for bound in metadata.bounds(logs, committed=True))
    )


def plan_next_commit(
    metadata: MetadataClient,
    state: CommitMetadata,
    target: ArchiveTarget,
    max_records: int,
    *,
    skip_lost: bool = False,
) -> NextCommit | None:
    """Return what to archive next, at most about `max_records` records, or None at the target.

    Raises TrimmedEarly if offsets were trimmed before they were archived, and TailLost if the log
    lost records that the table has. With `skip_lost` the commit records such offsets as lost.
    """
    bounds = metadata.bounds(target.logs, committed=True)
    gone = find_replaced_tails(
        metadata, [(part, archived_span(state, part)) for part in target.logs]
    )
    if gone and not skip_lost:
        raise tail_lost_error(gone)
    starts: list[int] = []
    for part, bound, end in zip(target.logs, bounds, target.ends, strict=True):
        start = _start_offset(state, part, bound)
        if start < bound.start:
            gone.append(Span(part.topic, part.partition, part.topic_id, start, bound.start, True))
            start = bound.start
        starts.append(min(start, max(end, bound.start)))
    if gone and not skip_lost:
        raise _trimmed_error(gone)
    for span in gone:
        logger.warning("%s was lost before it was archived", span)
    ends = [max(start, end) for start, end in zip(starts, target.ends, strict=True)]
    ends = limit_ends(metadata, target.logs, starts, ends, max_records)
    ranges = tuple(
        OffsetRange(part, start, end)
        for part, start, end in zip(target.logs, starts, ends, strict=True)
        if start < end
    )
    if not ranges and not gone:
        return None
    last = fingerprints(metadata, [(each.log, each.end - 1) for each in ranges])
    spans = [
        Span(r.log.topic, r.log.partition, r.log.topic_id, r.start, r.end, fingerprint=last_entry)
        for r, last_entry in zip(ranges, last, strict=True)
    ]
    begun = _empty_spans(state, target.logs, starts, ends)
    partitions = Counter(part.topic for part in target.logs)
    return NextCommit(
        (*gone, *begun, *spans), ranges, sum(metadata.count(ranges)), dict(partitions)
    )


def archived_span(state: CommitMetadata, part: PartitionLog) -> Span | None:
    """Return the span that the table holds of the partition, unless of another topic id."""
    archived = state.archived_range(part.topic, part.partition)
    return archived if archived is not None and archived.topic_id == part.topic_id else None


def find_replaced_tails(
    metadata: MetadataClient, archived: Sequence[tuple[PartitionLog, Span | None]]
) -> list[Span]:
    """Return the last offset of each span where the log has another record, as a lost span."""
    compared = [(part, span) for part, span in archived if span is not None and span.fingerprint]
    found = fingerprints(metadata, [(part, span.end - 1) for part, span in compared])
    return [
        msgspec.structs.replace(span, start=span.end - 1, lost=True, fingerprint="")
        for (_, span), fingerprint in zip(compared, found, strict=True)
        if fingerprint not in (span.fingerprint, "")
    ]


def _empty_spans(
    state: CommitMetadata, logs: Sequence[PartitionLog], starts: Sequence[int], ends: Sequence[int]
) -> list[Span]:
    """Return empty spans for partitions that neither the table nor this commit has."""
    return [
        Span(part.topic, part.partition, part.topic_id, start, start)
        for part, start, end in zip(logs, starts, ends, strict=True)
        if start == end and state.archived_range(part.topic, part.partition) is None
    ]


def _start_offset(state: CommitMetadata, part: PartitionLog, bound: PartitionBounds) -> int:
    """Return the offset from which to archive a partition."""
    archived = state.archived_range(part.topic, part.partition)
    if archived is None:
        for span in state.archived:
            if span.topic == part.topic and span.topic_id != part.topic_id:
                raise _other_topic_error(part, span.topic_id)
        # A partition added since the last commit is archived from its first offset on.
        return 0 if part.topic in state.partitions else bound.start
    if archived.topic_id != part.topic_id:
        raise _other_topic_error(part, archived.topic_id)
    if archived.end > bound.coming:
        raise TopicMismatch(
            f"{part}: the table holds offsets up to {archived.end - 1}, but the log ends at "
            f"{bound.end}: this is another Redis, or Redis has lost data. If it is the right one, "
            "archive it into another table."
        )
    loss = loss_at(archived.end, parse_rows(bound.epochs))
    if loss is None:
        return archived.end
    kept = "%s: Redis has lost offsets %d to %d, which the table keeps"
    logger.warning(kept, part, loss.ended, archived.end - 1)
    return loss.start


def _other_topic_error(part: PartitionLog, archived_id: str) -> TopicMismatch:
    return TopicMismatch(
        f"The table holds another topic {part.topic!r} (id {archived_id}); the log's has id "
        f"{part.topic_id}: it was deleted and created again, or this is another Redis. "
        "Archive it into another table."
    )


def _trimmed_error(gone: Sequence[Span]) -> TrimmedEarly:
    what = "; ".join(
        f"topic {span.topic!r} partition {span.partition}: offsets {span.start} to {span.end - 1}"
        for span in gone
    )
    return TrimmedEarly(
        f"Gone from the log before they were archived: {what}. Retention or a trim removed them. "
        "Use --skip-lost to continue after them; the table records the gap."
    )


def tail_lost_error(spans: Sequence[Span]) -> TailLost:
    """Build the error for a log whose last archived record is another one."""
    what = "; ".join(
        f"topic {span.topic!r} partition {span.partition}: offset {span.start}" for span in spans
    )
    return TailLost(
        f"The log has another record than the table: {what}. Redis lost the end of the log, as in "
        "a failover, and later appends reused the offsets. Archive into another table, which gets "
        "all that the log still has; or use --skip-lost to continue after these offsets; the "
        "table records them."
    )


def read_frame(
    spark: Any, connection: Connection, ranges: Sequence[OffsetRange], **more: str
) -> Any:
    """Return the records of the ranges as a DataFrame; `more` are further options."""
    options = {**read_options(ranges), **more, "joinPartitions": "true"}
    options |= {"redisUrl": connection.redis, "namespace": connection.namespace}
    return spark.read.format("korvet").options(**options).load()


def read_options(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Return the ranges as options of format `korvet`."""
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
        # Open transactions are archived once committed, aborted ones never.
        "isolation": "read_committed",
    }


def has_foreign_entries(part: PartitionLog, end: int, appended: int) -> bool:
    """Return whether entries were added to the log by XADD instead of an append.

    Only detected in dense logs of layout `record`, where each of the `appended` entries has one
    offset. Read `appended` before `end`.
    """
    return part.mode == "dense" and not part.is_batch and end > appended
