"""Share groups as `korvet queues` shows them: members, partitions, delivered records."""

from collections.abc import Iterable
from typing import NamedTuple

from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog
from korvet.config.setting import StartError
from korvet.groups.description import SHARE, describe_modern
from korvet.groups.share_offsets import Delivered, ShareOffsets, SharePartition
from korvet.topics.lifecycle import Refused

SUMMARY = ("group", "state", "members", "topics", "available", "acquired", "lag")
_MEMBER = ("member", "client", "host", "epoch", "partitions")
_PARTITION = (
    "topic",
    "partition",
    "start",
    "available",
    "acquired",
    "accepted",
    "archived",
    "dead_letters",
    "lag",
)
_DELIVERED = ("topic", "partition", "first", "last", "deliveries", "ends", "member")
_RUNS = 100
"""Delivered runs that are shown of each partition."""


class QueueView(NamedTuple):
    """A share group: its state, and rows of its members, partitions and delivered records."""

    name: str
    state: dict[str, object]
    members: list[table_output.Row]
    partitions: list[table_output.Row]
    delivered: list[table_output.Row]

    def document(self) -> dict[str, object]:
        """Return the group for JSON."""
        return {
            "group": self.name,
            **self.state,
            "members": table_output.objects(_MEMBER, self.members),
            "partitions": table_output.objects(_PARTITION, self.partitions),
            "delivered": table_output.objects(_DELIVERED, self.delivered),
        }

    def parts(self) -> Iterable[table_output.Part]:
        """Yield a line with the state, and tables of members, partitions, delivered records."""
        words = ", ".join(f"{key} {held}" for key, held in self.state.items())
        yield table_output.Part(f"{self.name}: {words.removeprefix('state ')}")
        yield table_output.Part(None, _MEMBER, self.members)
        yield table_output.Part("")
        yield table_output.Part(None, _PARTITION, self.partitions)
        if self.delivered:
            yield table_output.Part("")
            yield table_output.Part(None, _DELIVERED, self.delivered)


async def summaries(log: CommandLog) -> list[table_output.Row]:
    """Return a row of each share group."""
    offsets = _offsets(log)
    rows: list[table_output.Row] = []
    for group in await log.groups():
        if group.type == "share":
            found = await offsets.describe_all(group.group)
            counts = (
                len({row.topic.name for row in found}),
                sum(row.available for row in found),
                sum(row.acquired for row in found),
                sum(max(row.lag, 0) for row in found),
            )
            rows.append((group.group, group.state, group.members, *counts))
    return rows


async def read(log: CommandLog, name: str) -> QueueView:
    """Read a share group. Raises StartError if there is none."""
    try:
        group = await describe_modern(log.coordinator, name, SHARE)
    except Refused:
        raise StartError(f"There is no share group {name!r}.") from None
    members: list[table_output.Row] = [
        (
            member.id,
            member.client_id,
            member.client_host,
            member.epoch,
            sum(map(len, member.assigned.partitions.values())),
        )
        for member in group.members
    ]
    parts = await _offsets(log).describe_all(name, runs=_RUNS)
    return QueueView(
        name,
        {"state": group.state, "epoch": group.epoch},
        members,
        [_partition(part) for part in parts],
        [_delivered(part, run) for part in parts for run in part.runs],
    )


def _offsets(log: CommandLog) -> ShareOffsets:
    return ShareOffsets(log.store, log.keys, log.table, log.coordinator)


def _partition(part: SharePartition) -> table_output.Row:
    """Return a row; a partition that the group has not read has only its place."""
    place = (part.topic.name, part.partition)
    if part.start < 0:
        return (*place, *(None for _ in _PARTITION[2:]))
    counts = (part.available, part.acquired, part.acknowledged, part.archived, part.dead_letters)
    return (*place, part.start, *counts, part.lag)


def _delivered(part: SharePartition, run: Delivered) -> table_output.Row:
    place = (part.topic.name, part.partition, run.first, run.last, run.deliveries)
    ends = table_output.moment(run.deadline_ms) if run.deadline_ms else None
    return (*place, ends, run.member or None)
