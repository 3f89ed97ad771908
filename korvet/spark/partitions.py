"""Partitions as tasks read them: their properties, ranges of offsets, and errors about these."""

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import REMOTE
from korvet.scripts.keys import Keys, Partition
from korvet.spark.errors import DataLoss, TopicChanged
from korvet.topics.table import Topic


class PartitionLog(msgspec.Struct, frozen=True, order=True):
    """A partition with the properties that a task needs to read it."""

    topic: str
    partition: int
    topic_id: str
    is_batch: bool
    mode: str
    bits: int
    is_remote: bool = False
    """Whether records may be in segments: the topic has or had remote.storage.enable, or the
    brokers give it to topics by default."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def handle(self, keys: Keys) -> Partition:
        """Return the partition's keys, and the calls of scripts on it."""
        return keys.partition(self.topic, self.partition, self.topic_id)


class PartitionBounds(msgspec.Struct, frozen=True):
    """Readable offsets of a partition.

    Offsets from `first` up to `next` (exclusive) can be read; `start` is the log start offset.
    `end` is after all records, including those of open transactions. `newest` is a time in ms.
    The next append gets offset `coming` or higher: in time mode offsets follow the clock.
    """

    start: int
    first: int
    next: int
    end: int
    newest: int
    coming: int


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of one partition from `start` up to `end` (exclusive)."""

    log: PartitionLog
    start: int
    end: int

    def local_edge(self, local_start: bytes | None) -> int:
        """Return the offset in the range below which Redis has no records."""
        return min(max(self.start, int(local_start or 0)), self.end)


def partitions_of(topic: Topic) -> list[PartitionLog]:
    """Return the topic's partitions."""
    policy = topic.policy
    return [
        PartitionLog(
            topic.name,
            number,
            topic.id,
            topic.is_batch,
            policy.offset_mode,
            policy.offset_bits,
            policy.remote_storage or REMOTE in topic.configs,
        )
        for number in range(topic.partitions)
    ]


def raise_if_gone(part: PartitionLog, error: int) -> None:
    """Raise TopicChanged with the reason if the reply's error code is not 0."""
    if error == ErrorCode.NONE:
        return
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        raise TopicChanged(f"Topic {part.topic!r} was deleted and created again during the query.")
    raise TopicChanged(f"{part} does not exist any more: {ErrorCode(error).name}.")


def data_lost_error(part: PartitionLog, start: int, end: int, first: int) -> DataLoss:
    """Build the error for a read of [start, end) from a log that begins at `first`."""
    return DataLoss(
        f"Topic {part.topic!r} partition {part.partition}: offsets {start} to {end - 1} were asked "
        f"for, but the log begins at {first}: retention or a trim removed the records below it. "
        "Set failOnDataLoss to false to continue from there."
    )
