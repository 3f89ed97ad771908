"""Compare the offsets of a stream's checkpoint with the log: records may be missing or replaced.

If failOnDataLoss is false, a difference is logged as a warning, and the stream reads what is left.
"""

import logging
from collections.abc import Sequence

from korvet.spark.errors import DataLoss, TopicRecreated
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import ReadOptions
from korvet.spark.partitions import PartitionBounds, PartitionLog, data_lost_error, truncated_error
from korvet.spark.plan.read_limits import unread_ranges
from korvet.spark.plan.stream_offset import (
    TOPIC_ID,
    StreamOffset,
    fingerprints_in,
    names_partition,
    offset_in,
    topics_of,
)
from korvet.spark.plan.tail_fingerprint import Position, fingerprints

logger = logging.getLogger("korvet.spark")

_REMEDY = "Start with a new checkpoint, or set failOnDataLoss to false."


class CheckpointCheck:
    """Checks the offsets of one stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def starts(
        self, known: StreamOffset, logs: Sequence[PartitionLog], bounds: Sequence[PartitionBounds]
    ) -> list[int]:
        """Return the start of each partition; raise DataLoss if records below it are missing."""
        return [self._start(known, part, bound) for part, bound in zip(logs, bounds, strict=True)]

    def _start(self, known: StreamOffset, part: PartitionLog, bound: PartitionBounds) -> int:
        at = offset_in(known, part)
        if at is None:
            return bound.start
        if self.is_other_topic(known, part):
            return bound.first
        lost = bound.lost_from(at)
        if lost >= 0:
            self._raise_or_warn(truncated_error(part, at, lost))
            return lost
        if at < bound.start:
            self._raise_or_warn(data_lost_error(part, at, bound.next, bound.start))
            return bound.start
        return at

    def end_fingerprints(
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
        fresh = self.compare_fingerprints(
            metadata, compared, [(each.log, each.end) for each in ranges]
        )
        kept = {part: recorded.get((part, end), "") for part, end in zip(logs, ends, strict=True)}
        return kept | fresh

    def compare_fingerprints(
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
                self._raise_or_warn(_replaced_error(part, at))
        return {part: now for (part, _), now in zip(fresh, found[count:], strict=True)}

    def is_other_topic(self, known: StreamOffset, part: PartitionLog) -> bool:
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

    def require_partitions(self, known: StreamOffset, logs: Sequence[PartitionLog]) -> None:
        """Raise DataLoss if the offset names a partition that is not selected or gone."""
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


def _replaced_error(part: PartitionLog, at: int) -> DataLoss:
    """Build the error for a log whose records below offset `at` differ from the checkpoint."""
    return DataLoss(
        f"Topic {part.topic!r} partition {part.partition}: the checkpoint has offsets up to "
        f"{at - 1}, but offset {at - 1} is another record now: Redis lost the end of the log, as "
        "in a failover, and later appends reused its offsets. Set failOnDataLoss to false to "
        f"continue from {at}, or start with a new checkpoint to read the whole log."
    )
