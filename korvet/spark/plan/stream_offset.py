"""The offset of a stream as JSON in Spark's checkpoint, and its comparison with the log.

    {"orders": {"0": 17, "1": 23, "id": "..."}, "/splits": {...}, "/start": {...}, "/tails": {...}}

Rules
- A topic has the next offset of each partition, and the topic's id: it detects a topic that was
  deleted and created again.
- "/splits" has the options that divide the batch ending here into tasks (`splits`).
- "/start" has the first offset of partitions that the previous offset does not name, or where they
  do not continue, because records were lost: Spark stores neither the start of the first batch nor
  that of a new partition.
- "/tails" has a fingerprint of the last entry below each offset (`tail_fingerprint`).
- Records that the offset names may be missing or replaced in the log. If failOnDataLoss is false,
  log a warning: the stream reads what is left.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from korvet.spark.errors import DataLoss, TopicRecreated
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import BATCH_START, FINGERPRINTS, SPLITTING, ReadOptions
from korvet.spark.partitions import PartitionBounds, PartitionLog, data_lost_error, truncated_error
from korvet.spark.plan.read_limits import unread_ranges
from korvet.spark.plan.tail_fingerprint import Position, fingerprints

StreamOffset = dict[str, dict[str, Any]]
TOPIC_ID = "id"


def make_offset(logs: Sequence[PartitionLog], offsets: Sequence[int]) -> StreamOffset:
    """Return the offset with these next offsets."""
    found: StreamOffset = {}
    for part, at in zip(logs, offsets, strict=True):
        found.setdefault(part.topic, {TOPIC_ID: part.topic_id})[str(part.partition)] = at
    return found


def make_batch_end(
    logs: Sequence[PartitionLog],
    offsets: Sequence[int],
    splitting: dict[str, Any],
    fingerprints: Mapping[PartitionLog, str],
) -> StreamOffset:
    """Return the end offset of a batch, with its splitting and fingerprints if there are any."""
    found = make_offset(logs, offsets)
    if splitting:
        found[SPLITTING] = splitting
    tails: dict[str, dict[str, str]] = {}
    for part, fingerprint in fingerprints.items():
        if fingerprint:
            tails.setdefault(part.topic, {})[str(part.partition)] = fingerprint
    if tails:
        found[FINGERPRINTS] = tails
    return found


def topics_of(offset: StreamOffset) -> StreamOffset:
    """Return the offset's topics without its other keys."""
    other = (SPLITTING, BATCH_START, FINGERPRINTS)
    return {name: value for name, value in offset.items() if name not in other}


def offset_in(offset: StreamOffset, part: PartitionLog) -> int | None:
    """Return the next offset of the partition, or None if it is not named."""
    at = offset.get(part.topic, {}).get(str(part.partition))
    return None if at is None else int(at)


def names_partition(offset: StreamOffset, part: PartitionLog) -> bool:
    """Return whether the offset names this partition, of this topic id."""
    topic = offset.get(part.topic, {})
    return str(part.partition) in topic and topic.get(TOPIC_ID, part.topic_id) == part.topic_id


def fingerprints_in(offset: StreamOffset, logs: Sequence[PartitionLog]) -> dict[Position, str]:
    """Return the recorded fingerprints by partition and next offset."""
    tails = offset.get(FINGERPRINTS, {})
    return {
        (part, at): fingerprint
        for part in logs
        if names_partition(offset, part)
        and (fingerprint := tails.get(part.topic, {}).get(str(part.partition)))
        and (at := offset_in(offset, part)) is not None
    }


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
