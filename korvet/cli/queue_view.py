"""Share groups as `korvet queues` shows them: members, partitions, delivered records."""

from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog
from korvet.cli.table_output import Rows, View
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


async def read(log: CommandLog, name: str) -> View:
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
    delivered = [_delivered(part, run) for part in parts for run in part.runs]
    tables = [
        Rows("members", _MEMBER, members),
        Rows("partitions", _PARTITION, list(map(_partition, parts))),
        Rows("delivered", _DELIVERED, delivered, is_printed=bool(delivered)),
    ]
    return View(name, {"state": group.state, "epoch": group.epoch}, tables)


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
