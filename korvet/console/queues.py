"""Read what a share group (KIP-932) does in its partitions: counts, and records that are locked."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict

from korvet.console.visit import Visit
from korvet.groups.share_offsets import SharePartition

MAX_RUNS = 50
"""Max delivered runs that are read of each partition."""
MAX_LOCKS = 500
"""Max delivered runs on a page."""


class QueueRow(msgspec.Struct, frozen=True):
    """A partition of a share group. Counts are of records from the start offset on."""

    topic: str
    partition: int
    start: int
    """-1 if the group has not read the partition."""
    available: int
    acquired: int
    acknowledged: int
    archived: int
    dead_letters: int
    """Dead letters that are not copied to their topic yet."""
    lag: int


class LockRow(msgspec.Struct, frozen=True):
    """Delivered records, locked by a member until the deadline."""

    topic: str
    partition: int
    first: int
    last: int
    deliveries: int
    """How often they were delivered."""
    member: str
    """Empty if they are available again."""
    deadline_ms: int
    """End of the lock, or of the delay before the next delivery; 0 for none."""


async def read_queue(visit: Visit, group: str) -> tuple[list[QueueRow], list[LockRow]]:
    """Return the partitions and the locks of a share group, of topics that the user may see."""
    parts = [
        part
        for part in await visit.services.share_offsets.describe_all(group, runs=MAX_RUNS)
        if visit.context().may_describe(part.topic.name, audit=False)
    ]
    return [_row(part) for part in parts], _locks(parts)[:MAX_LOCKS]


async def lag_of(visit: Visit, group: str) -> tuple[int, list[str], int]:
    """Return the lag, the topics and the number of partitions of a share group."""
    rows, _ = await read_queue(visit, group)
    return sum(max(0, row.lag) for row in rows), sorted({row.topic for row in rows}), len(rows)


def _row(part: SharePartition) -> QueueRow:
    values = asdict(part) | {"topic": part.topic.name}
    return QueueRow(**{name: values[name] for name in QueueRow.__struct_fields__})


def _locks(parts: Sequence[SharePartition]) -> list[LockRow]:
    """Return the delivered runs, those with the most deliveries first."""
    rows = [
        LockRow(topic=part.topic.name, partition=part.partition, **asdict(run))
        for part in parts
        for run in part.runs
    ]
    return sorted(rows, key=lambda row: (-row.deliveries, row.topic, row.partition, row.first))
