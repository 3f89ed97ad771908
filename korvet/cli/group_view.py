"""A consumer group as `korvet groups describe` shows it: state, members, offsets, lag."""

from typing import NamedTuple, cast

from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog
from korvet.cli.table_output import Rows, View
from korvet.config.setting import StartError
from korvet.groups.description import CLASSIC, STREAMS, describe_any
from korvet.groups.streams_group import name_tasks
from korvet.topics.lifecycle import Refused

_MEMBER = ("member", "instance", "client", "host")
_STREAMS_MEMBER = ("member", "instance", "process", "client", "host", "active", "standby")
_OFFSET = ("topic", "partition", "committed", "end", "lag", "behind", "age", "metadata", "member")
_TIMES = ("behind", "age")


class _Described(NamedTuple):
    """A group's state, its members, and the member that each partition is assigned to."""

    state: dict[str, object]
    members: list[table_output.Row]
    owners: dict[tuple[str, int], str]
    columns: tuple[str, ...] = _MEMBER


NOT_DESCRIBED = _Described({}, [], {})
"""A group of which only the offsets are stored."""


async def read(log: CommandLog, name: str) -> View:
    """Read a group. Raises StartError if there is none."""
    found = await _described(log, name)
    rows: dict[tuple[str, int], tuple[object, ...]] = {
        (row.topic, row.partition): (
            None if row.offset < 0 else row.offset,
            row.log_end_offset,
            row.lag,
            None if row.lag_ms < 0 else row.lag_ms,
            None if row.age_ms < 0 else row.age_ms,
            row.metadata or None,
        )
        for row in await log.lags(name)
    }
    if not found.state and not rows:
        raise StartError(f"There is no group {name!r}.")
    for partition in found.owners.keys() - rows.keys():
        rows[partition] = (None, await _end(log, *partition), None, None, None, None)
    offsets = [(*at, *row, found.owners.get(at)) for at, row in sorted(rows.items())]
    columns = [f"{name}_ms" if name in _TIMES else name for name in _OFFSET]
    in_seconds = list(map(_with_seconds, offsets))
    tables = [
        Rows("members", found.columns, found.members, is_printed=bool(found.state)),
        Rows("offsets", _OFFSET, in_seconds, in_json=(columns, offsets)),
    ]
    return View(name, found.state, tables)


def _with_seconds(row: table_output.Row) -> table_output.Row:
    """Show the times in seconds."""
    cells = list(row)
    for name in _TIMES:
        at = _OFFSET.index(name)
        cells[at] = None if row[at] is None else f"{cast(int, row[at]) / 1000:g} s"
    return cells


async def _end(log: CommandLog, topic: str, partition: int) -> int | None:
    """Return the partition's log end offset, None if there is no such partition."""
    found = await log.topic_table.get(topic)
    if found is None or not 0 <= partition < found.partitions:
        return None
    return (await log.offsets(topic))[partition].latest


async def _described(log: CommandLog, name: str) -> _Described:
    """Read the group, of any protocol."""
    try:
        group = await describe_any(log.coordinator, name)
    except Refused:
        return NOT_DESCRIBED
    state: dict[str, object] = {"state": group.state}
    if group.type == CLASSIC:
        state |= {"generation": group.epoch, "protocol": group.assignor or None}
    elif group.type == STREAMS:
        state |= {"epoch": group.epoch, "topology": group.topology_epoch}
        if group.detail:
            state["reason"] = group.detail
    else:
        state |= {"epoch": group.epoch, "assignor": group.assignor}
    members: list[table_output.Row] = []
    for each in group.members:
        client = (each.client_id or None, each.client_host or None)
        if group.type == STREAMS:
            tasks = map(name_tasks, (each.assigned.active, each.assigned.standby))
            words = (" ".join(names) or None for names in tasks)
            members.append((each.id, each.instance, each.process or None, *client, *words))
        else:
            members.append((each.id, each.instance, *client))
    parts = zip(group.members, await group.partitions(log.topic_table), strict=True)
    owners = {partition: each.id for each, places in parts for partition in places}
    return _Described(state, members, owners, _STREAMS_MEMBER if group.type == STREAMS else _MEMBER)
