"""Partitions as tasks read them: their properties, ranges of offsets, and errors about these."""

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import REMOTE
from korvet.log.leader_epochs import end_of, lost_from, parse_rows
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
    epoch: int = 0
    """The leader epoch in which a range of it was planned."""

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
    epoch: int
    epochs: bytes
    """The rows of the leader epochs."""

    def lost_from(self, at: int) -> int:
        """Return the first lost offset for a reader of lost records; -1 for another one."""
        return lost_from(at, parse_rows(self.epochs), self.first, self.end)

    def lost_since(self, epoch: int, at: int) -> int:
        """Return the first lost offset if there were records up to `at` in an epoch, else -1."""
        end = end_of(epoch, parse_rows(self.epochs), self.end)
        return end if end < at else -1

    def range_of(self, log: PartitionLog, start: int, end: int) -> "OffsetRange":
        """Return a range of the log, planned in the present epoch."""
        return OffsetRange(msgspec.structs.replace(log, epoch=self.epoch), start, end)


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


def truncated_error(part: PartitionLog, at: int, first: int) -> DataLoss:
    """Build the error for a reader of records that Redis lost from `first` on."""
    return DataLoss(
        f"{part}: read up to offset {at}, but Redis has lost data: the records from offset {first} "
        "on. Use the Redis that has them, or set failOnDataLoss to false to continue after them."
    )


def data_lost_error(part: PartitionLog, start: int, end: int, first: int) -> DataLoss:
    """Build the error for a read of [start, end) from a log that begins at `first`."""
    return DataLoss(
        f"Topic {part.topic!r} partition {part.partition}: offsets {start} to {end - 1} were asked "
        f"for, but the log begins at {first}: retention or a trim removed the records below it. "
        "Set failOnDataLoss to false to continue from there."
    )
