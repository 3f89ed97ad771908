"""The offset of a stream as JSON in Spark's checkpoint.

    {"orders": {"0": 17, "1": 23, "id": "..."}, "/splits": {...}, "/start": {...}, "/tails": {...}}

Rules
- A topic has the next offset of each partition, and the topic's id: it detects a topic that was
  deleted and created again.
- "/splits" has the options that divide the batch ending here into tasks (`split_checkpoint`).
- "/start" has the first offset of partitions that the previous offset does not name, or where they
  do not continue, because records were lost: Spark stores neither the start of the first batch nor
  that of a new partition.
- "/tails" has a fingerprint of the last entry below each offset (`tail_fingerprint`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from korvet.spark.options import BATCH_START, FINGERPRINTS, SPLITTING
from korvet.spark.partitions import PartitionLog
from korvet.spark.plan.tail_fingerprint import Position

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
