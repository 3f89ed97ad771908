"""The report of a restore: what is restored, which offsets are lost, or why it is refused."""

from collections.abc import Iterator

import msgspec

from korvet.base.errors import ErrorCode
from korvet.remote_log.recovery.chain import Chain


class RestoreRefused(Exception):
    """The restore cannot begin; the message says why and what to do."""


def check(error: int, what: str) -> None:
    """Raise RestoreRefused if a script refused `what`."""
    if error != ErrorCode.NONE:
        raise RestoreRefused(
            f"{what} cannot be restored ({ErrorCode(error).name}): Redis changed meanwhile. "
            "Stop the brokers, empty Redis, and repeat the restore."
        )


class Loss(msgspec.Struct, frozen=True):
    """Offsets, both inclusive, that are lost: `reason` is not copied, missing, corrupt or open."""

    topic: str
    partition: int
    first: int
    last: int
    reason: str


class ScheduledLoss(msgspec.Struct, frozen=True):
    """Scheduled records of a partition that are lost: the snapshot has their number only."""

    topic: str
    partition: int
    records: int


class Report(msgspec.Struct, frozen=True):
    """The result of a restore."""

    cluster_id: str
    snapshot_ms: int
    topics: int
    partitions: int
    segments: int
    records: int
    groups: int
    users: int
    acls: int
    lost: list[Loss]
    unknown_topics: list[str]
    """Ids of topics that have objects, and are not in the snapshot."""
    scheduled: int = 0
    """Scheduled records that wait again."""
    scheduled_lost: list[ScheduledLoss] = []
    is_backup: bool = False
    """Whether the snapshot is of a backup."""


class BackupReport(msgspec.Struct, frozen=True):
    """The result of a backup."""

    url: str
    cluster_id: str
    snapshot_ms: int
    topics: int
    partitions: int
    segments: int
    """Segments that were written: not those of an earlier run."""
    records: int
    bytes: int
    groups: int
    users: int
    acls: int
    scheduled: int
    open: list[Loss]
    """Offsets above the first record of an open transaction, which are not in the backup."""
    left_out: list[str]
    """Topics with offset.mode=bytes, which are not in the backup."""


def find_losses(name: str, number: int, chain: Chain, tiered: int, end: int) -> Iterator[Loss]:
    """Yield the offsets that no segment has, up to the end that the snapshot knows."""
    corrupt = {each.first for each in chain.corrupt}
    for first, last in chain.holes:
        reason = "corrupt" if first in corrupt else "missing"
        yield Loss(name, number, first, last, reason)
    first = max(chain.end, tiered)
    if first < end:
        yield Loss(name, number, first, end - 1, "not copied")
