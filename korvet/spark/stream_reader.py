"""Stream reading: plan where each batch starts and ends; tasks read it.

Rules
- A batch is its start and end offset (`stream_offset`) and nothing else: read again, it has the
  same records in the same tasks, whatever the options are by then.
- Compare and record fingerprints only for partitions with new records, and for an end offset that
  another process planned: a repeated batch, or the last one before a restart.
- Read a partition that appears while the stream runs from its beginning.
- A batch that is delayed ends where it starts: Spark then sees no new data.
- PySpark 4.2 and newer pass the start offset and a limit. 4.1 passes nothing: the start is then the
  end of the last planned batch, which Spark passes after a restart. Before the first batch it is
  the initial offset, which the first call resolves. 4.1 does not say that a trigger wants all
  records, so AvailableNow with a limit takes one batch per run.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from korvet.spark.batch_reader import RangeSplit, ranges_of, read_range
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import BATCH_START, ReadOptions
from korvet.spark.partitions import PartitionLog
from korvet.spark.plan.offset_resolution import resolve_offsets
from korvet.spark.plan.read_limits import TriggerDelay, limit_ends, unread_ranges
from korvet.spark.plan.splits import (
    apply_splitting,
    group_stream_splits,
    plan_splitting,
    split_stream,
)
from korvet.spark.plan.stream_offset import (
    CheckpointCheck,
    StreamOffset,
    fingerprints_in,
    make_batch_end,
    make_offset,
    names_partition,
    offset_in,
    topics_of,
)

try:
    _LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:  # PySpark 4.1 has no limits for Python sources
    _LIMITS = None
_AvailableNow: Any = object if _LIMITS is None else _LIMITS.SupportsTriggerAvailableNow


class StreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """Plans batches on the driver; `read` runs in tasks."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._check = CheckpointCheck(options)
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
        options = self._options
        with self._metadata() as metadata:

            def start(logs: Sequence[PartitionLog]) -> StreamOffset:
                bounds = metadata.bounds(logs, committed=options.committed_only)
                offsets = resolve_offsets(metadata, options.start, logs, bounds, options)
                return make_batch_end(logs, offsets, plan_splitting(metadata, options, ()), {})

            return metadata.retry_on_change(options.selection, start)

    def getDefaultReadLimit(self) -> Any:
        max_records, least = self._options.max_per_trigger, self._options.min_per_trigger
        if max_records is not None:
            return _LIMITS.ReadMaxRows(max_records)
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
        self._check.require_partitions(known, logs)
        bounds = metadata.bounds(logs, committed=self._options.committed_only)
        ends = [bound.next for bound in bounds]
        starts = self._check.starts(known, logs, bounds)
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
        max_records = self._options.max_per_trigger
        if max_records is not None and not everything:
            ends = limit_ends(metadata, logs, starts, ends, max_records)
        tails = self._check.end_fingerprints(metadata, known, logs, starts, ends)
        # Spark stores neither the start of the first batch, nor that of a new partition, nor where
        # a partition with lost records continues.
        first = known == self._initial
        fresh = [
            (part, at)
            for part, at in zip(logs, starts, strict=True)
            if first or not names_partition(known, part) or at != offset_in(known, part)
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
        self._check.require_partitions(end, selected)
        # Sorted, because writers identify tasks by their numbers.
        logs = sorted(
            part
            for part in selected
            if offset_in(end, part) is not None and not self._check.is_other_topic(end, part)
        )
        bounds = metadata.bounds(logs)
        if end != self._planned:
            self._check.compare_fingerprints(metadata, fingerprints_in(end, logs))
        starts = self._check.starts(start, logs, bounds)
        self._check.starts(end, logs, bounds)
        ends = [offset_in(end, part) for part in logs]
        wanted = [
            bound.range_of(part, low, high)
            for part, bound, low, high in zip(logs, bounds, starts, ends, strict=True)
            if high is not None and low < high
        ]
        planned = apply_splitting(end, self._options)
        return [
            *map(RangeSplit, group_stream_splits(planned, split_stream(metadata, planned, wanted)))
        ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for wanted in ranges_of(partition):
            yield from read_range(self._options, self._names, wanted)

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


class FailingReader(DataSourceStreamReader):
    """Raises one error on every call.

    Spark hides the message of an error raised while a reader is created.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _fail
