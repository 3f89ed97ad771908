"""Stream reading: plan where each batch starts and ends; tasks read it.

Rules
- A batch is its start and end offset (`stream_offset`) and nothing else: read again, it has the
  same records in the same tasks, whatever the options are by then.
- Compare and record fingerprints only for partitions with new records, and for an end offset that
  another process planned: a repeated batch, or the last one before a restart.
- Read a partition that appears while the stream runs from its beginning.
- A batch that is delayed ends where it starts: Spark then sees no new data.
- PySpark 4.2 and newer pass the start offset and a limit. 4.1 passes nothing: the start is then the
  end of the last planned batch, which Spark passes after a restart, or the initial offset, which
  the first call resolves. 4.1 does not say that a trigger wants all records, so AvailableNow with
  a limit takes one batch per run.
"""

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from korvet.spark.batch_reader import make_split, read_range, splits_in
from korvet.spark.errors import DataLoss, TopicRecreated
from korvet.spark.metadata import (
    MetadataClient,
    OffsetRange,
    PartitionBounds,
    PartitionLog,
    data_lost_error,
)
from korvet.spark.options import BATCH_START, ReadOptions
from korvet.spark.plan.offset_resolution import resolve_offsets
from korvet.spark.plan.read_limits import TriggerDelay, limit_ends, unread_ranges
from korvet.spark.plan.split_checkpoint import apply_splitting, plan_splitting
from korvet.spark.plan.splits import group_stream_splits, split_stream
from korvet.spark.plan.stream_offset import (
    TOPIC_ID,
    StreamOffset,
    fingerprints_in,
    make_batch_end,
    make_offset,
    names_partition,
    offset_in,
    topics_of,
)
from korvet.spark.plan.tail_fingerprint import Position, fingerprints

try:
    _LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:  # PySpark 4.1 has no limits for Python sources
    _LIMITS = None
_AvailableNow: Any = object if _LIMITS is None else _LIMITS.SupportsTriggerAvailableNow

logger = logging.getLogger("korvet.spark")

_REMEDY = "Start with a new checkpoint, or set failOnDataLoss to false."


class StreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """Plans batches on the driver; `read` runs in tasks."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._known: StreamOffset | None = None
        self._initial: StreamOffset | None = None
        self._planned: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._trigger_delay = TriggerDelay(options.min_per_trigger, options.trigger_delay_ms)

    def initialOffset(self) -> StreamOffset:
        if self._initial is None:
            if self._known is None:
                # Spark first passes what its checkpoint has: this one is empty.
                self._known = self._initial = self._resolve_start()
            else:
                # Spark has passed the end of the first batch, to repeat it.
                self._initial = self._known.get(BATCH_START) or self._resolve_start()
        return self._initial

    def _resolve_start(self) -> StreamOffset:
        with self._metadata() as metadata:
            return metadata.retry_on_change(
                self._options.selection,
                lambda logs: make_batch_end(
                    logs,
                    resolve_offsets(metadata, self._options.start, logs, self._options),
                    plan_splitting(metadata, self._options, ()),
                    {},
                ),
            )

    def getDefaultReadLimit(self) -> Any:
        most, least = self._options.max_per_trigger, self._options.min_per_trigger
        if most is not None:
            return _LIMITS.ReadMaxRows(most)
        return _LIMITS.ReadAllAvailable() if least is None else _LIMITS.ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> StreamOffset:
        return self._ends()

    def latestOffset(self, start: StreamOffset | None = None, limit: Any = None) -> StreamOffset:
        known = start if start is not None else self._known
        if known is None:
            known = self.initialOffset()
        everything = limit is not None and isinstance(limit, _LIMITS.ReadAllAvailable)
        with self._metadata() as metadata:
            found = metadata.retry_on_change(
                self._options.selection,
                lambda logs: self._plan_end(metadata, logs, known, everything=everything),
            )
        if topics_of(found) == topics_of(known):
            return known
        self._planned = found
        return found

    def _plan_end(
        self,
        metadata: MetadataClient,
        logs: Sequence[PartitionLog],
        known: StreamOffset,
        *,
        everything: bool,
    ) -> StreamOffset:
        """Return the end of the batch that starts at `known`: `known` itself if it is delayed."""
        self._check_partitions_exist(known, logs)
        bounds = metadata.bounds(logs, committed=self._options.committed_only)
        ends = [bound.next for bound in bounds]
        starts = self._starts(known, logs, bounds)
        if self._target is not None:
            # AvailableNow: leave partitions that are newer than the trigger to the next run.
            targets = [offset_in(self._target, part) for part in logs]
            ends = [
                min(target, end)
                if target is not None and names_partition(self._target, part)
                else start
                for part, start, end, target in zip(logs, starts, ends, targets, strict=True)
            ]
        ends = [max(start, end) for start, end in zip(starts, ends, strict=True)]
        may_wait = not everything and self._target is None
        if may_wait and self._trigger_delay.should_wait(
            metadata, unread_ranges(logs, starts, ends)
        ):
            return known
        most = self._options.max_per_trigger
        if most is not None and not everything:
            ends = limit_ends(metadata, logs, starts, ends, most)
        tails = self._end_fingerprints(metadata, known, logs, starts, ends)
        # Spark stores neither the start of the first batch nor that of a new partition.
        first = known == self._initial
        fresh = [
            (part, at)
            for part, at in zip(logs, starts, strict=True)
            if first or not names_partition(known, part)
        ]
        splitting = plan_splitting(metadata, self._options, unread_ranges(logs, starts, ends))
        found = make_batch_end(logs, ends, splitting, tails)
        return found | {BATCH_START: make_offset(*zip(*fresh, strict=True))} if fresh else found

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        begin = dict(start)
        for topic, places in end.get(BATCH_START, {}).items() if start != end else ():
            begin[topic] = {**begin.get(topic, {}), **places}
        with self._metadata() as metadata:
            found = metadata.retry_on_change(
                self._options.selection, lambda logs: self._plan_splits(metadata, logs, begin, end)
            )
        self._known = end
        return found

    def _plan_splits(
        self,
        metadata: MetadataClient,
        selected: Sequence[PartitionLog],
        start: StreamOffset,
        end: StreamOffset,
    ) -> list[InputPartition]:
        """Return the splits of a batch."""
        self._check_partitions_exist(end, selected)
        # Sorted, because writers identify tasks by their numbers.
        logs = sorted(
            part
            for part in selected
            if offset_in(end, part) is not None and not self._is_other_topic(end, part)
        )
        bounds = metadata.bounds(logs)
        if end != self._planned:
            self._check_fingerprints(metadata, fingerprints_in(end, logs))
        starts = self._starts(start, logs, bounds)
        ends = [offset_in(end, part) for part in logs]
        wanted = [
            OffsetRange(part, low, high)
            for part, low, high in zip(logs, starts, ends, strict=True)
            if high is not None and low < high
        ]
        planned = apply_splitting(end, self._options)
        return [
            *map(make_split, group_stream_splits(planned, split_stream(metadata, planned, wanted)))
        ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for piece in splits_in(partition):
            yield from read_range(self._options, self._names, piece.wanted)

    def commit(self, end: StreamOffset) -> None:
        """Do nothing: the position is in Spark's checkpoint, not in Redis."""

    def stop(self) -> None:
        """Do nothing: no connection stays open between calls."""

    def _metadata(self) -> MetadataClient:
        metadata = MetadataClient(self._options.connection)
        return metadata if self._known is None else metadata.with_reconnect()

    def _ends(self) -> StreamOffset:
        with self._metadata() as metadata:

            def ends(logs: Sequence[PartitionLog]) -> StreamOffset:
                bounds = metadata.bounds(logs, committed=self._options.committed_only)
                return make_offset(logs, [bound.next for bound in bounds])

            return metadata.retry_on_change(self._options.selection, ends)

    def _starts(
        self, known: StreamOffset, logs: Sequence[PartitionLog], bounds: Sequence[PartitionBounds]
    ) -> list[int]:
        """Return the start of each partition; raise DataLoss if records below it are missing.

        A start up to `coming` misses nothing, even if a failover lost records that were read.
        """
        return [self._start(known, part, bound) for part, bound in zip(logs, bounds, strict=True)]

    def _start(self, known: StreamOffset, part: PartitionLog, bound: PartitionBounds) -> int:
        at = offset_in(known, part)
        if at is None:
            return bound.start
        if self._is_other_topic(known, part):
            return bound.first
        if at > bound.coming:
            self._raise_or_warn(
                DataLoss(
                    f"The checkpoint is at offset {at} of {part}, and the log ends at "
                    f"{bound.end}: this is another Redis, or Redis has lost data. Use the Redis "
                    "of the checkpoint, or set failOnDataLoss to false to continue at "
                    "the end of the log."
                )
            )
            return bound.next
        if at < bound.start:
            self._raise_or_warn(data_lost_error(part, at, bound.next, bound.start))
            return bound.start
        return at

    def _end_fingerprints(
        self,
        metadata: MetadataClient,
        known: StreamOffset,
        logs: Sequence[PartitionLog],
        starts: Sequence[int],
        ends: Sequence[int],
    ) -> dict[PartitionLog, str]:
        """Return the fingerprints at the end of a batch; raise DataLoss if those of `known` differ.

        Partitions without new records keep their recorded fingerprint and are not read.
        """
        ranges = unread_ranges(logs, starts, ends)
        recorded = fingerprints_in(known, logs)
        begins = [(each.log, each.start) for each in ranges]
        compared = {each: recorded[each] for each in begins if each in recorded}
        fresh = self._check_fingerprints(
            metadata, compared, [(each.log, each.end) for each in ranges]
        )
        kept = {part: recorded.get((part, end), "") for part, end in zip(logs, ends, strict=True)}
        return kept | fresh

    def _check_fingerprints(
        self,
        metadata: MetadataClient,
        recorded: dict[Position, str],
        fresh: Sequence[Position] = (),
    ) -> dict[PartitionLog, str]:
        """Return fingerprints at `fresh`; raise DataLoss if the log differs from `recorded`."""
        positions = [*recorded, *fresh]
        found = fingerprints(metadata, [(part, at - 1) for part, at in positions])
        count = len(recorded)
        for (part, at), before, now in zip(recorded, recorded.values(), found[:count], strict=True):
            if now not in (before, ""):
                self._raise_or_warn(replaced_error(part, at))
        return {part: now for (part, _), now in zip(fresh, found[count:], strict=True)}

    def _is_other_topic(self, known: StreamOffset, part: PartitionLog) -> bool:
        """Return whether the offset names another topic id; raise TopicRecreated if strict."""
        if names_partition(known, part):
            return False
        known_id = known[part.topic][TOPIC_ID]
        self._raise_or_warn(
            TopicRecreated(
                f"The checkpoint names another topic {part.topic!r} (id {known_id}): it was "
                f"deleted and created again (id {part.topic_id}), or this is another Redis. "
                + _REMEDY
            )
        )
        return True

    def _check_partitions_exist(self, known: StreamOffset, logs: Sequence[PartitionLog]) -> None:
        there = {(part.topic, str(part.partition)) for part in logs}
        gone = [
            f"{topic}-{number}"
            for topic, places in topics_of(known).items()
            for number in places
            if number != TOPIC_ID and (topic, number) not in there
        ]
        if gone:
            self._raise_or_warn(
                DataLoss(
                    f"The checkpoint names {', '.join(gone)}, which does not exist any more or is "
                    f"not selected by {self._options.selection}. {_REMEDY}"
                )
            )

    def _raise_or_warn(self, error: Exception) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s", error)


class FailingReader(DataSourceStreamReader):
    """Raises one error on every call.

    Spark hides the message of an error raised while a reader is created.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> StreamOffset:
        raise self._error

    def latestOffset(self, start: StreamOffset | None = None, limit: Any = None) -> StreamOffset:
        raise self._error

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        raise self._error


def replaced_error(part: PartitionLog, at: int) -> DataLoss:
    """Build the error for a log whose records below offset `at` differ from the checkpoint."""
    return DataLoss(
        f"Topic {part.topic!r} partition {part.partition}: the checkpoint has offsets up to "
        f"{at - 1}, but offset {at - 1} is another record now: Redis lost the end of the log, as "
        "in a failover, and later appends reused its offsets. Set failOnDataLoss to false to "
        f"continue from {at}, or start with a new checkpoint to read the whole log."
    )
