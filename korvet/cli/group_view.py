"""A consumer group as `korvet groups describe` shows it: state, members, offsets, lag."""

from collections.abc import Iterable
from typing import NamedTuple, cast

from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog
from korvet.cli.broker_log import BrokerLog
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import GROUP, Requests, ask_coordinator
from korvet.cli.over_brokers import describe_request, shapes_of
from korvet.cli.table_output import Rows, View
from korvet.config.setting import StartError
from korvet.groups.assignment import assigned_partitions
from korvet.groups.description import CLASSIC, CONSUMER, STREAMS, describe_any
from korvet.groups.streams_group import name_tasks
from korvet.log.position import EARLIEST, LATEST
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from korvet.wire.messages.list_groups import ListGroupsRequest

MEMBER = ("member", "instance", "client", "host")
_STREAMS_MEMBER = ("member", "instance", "process", "client", "host", "active", "standby")
_OFFSET = ("topic", "partition", "committed", "end", "lag", "behind", "age", "metadata", "member")
_TIMES = ("behind", "age")


class Described(NamedTuple):
    """A group's state, its members, and the member that each partition is assigned to."""

    state: dict[str, object]
    members: list[table_output.Row]
    owners: dict[tuple[str, int], str]
    columns: tuple[str, ...] = MEMBER


NOT_DESCRIBED = Described({}, [], {})
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
    return shown(name, found, rows)


def shown(name: str, group: Described, rows: dict[tuple[str, int], tuple[object, ...]]) -> View:
    """Return a group for the screen; `rows` are the columns of its partitions up to `member`."""
    offsets = [(*at, *row, group.owners.get(at)) for at, row in sorted(rows.items())]
    columns = [f"{name}_ms" if name in _TIMES else name for name in _OFFSET]
    in_seconds = list(map(_with_seconds, offsets))
    tables = [
        Rows("members", group.columns, group.members, is_printed=bool(group.state)),
        Rows("offsets", _OFFSET, in_seconds, in_json=(columns, offsets)),
    ]
    return View(name, group.state, tables)


async def read_from_brokers(requests: Requests, name: str) -> View:
    """Return the state, members, offsets and lag of a group. Raises StartError if there is none."""
    broker = await requests.coordinator(GROUP, name)
    listed = (await requests.call(ListGroupsRequest(), broker)).groups
    kinds = [row.group_type.lower() or "classic" for row in listed if row.group_id == name]
    if not kinds:
        raise StartError(f"There is no group {name!r}: `korvet groups list` names them.")
    (group,) = (await requests.call(describe_request(kinds[0], [name]), broker)).groups
    check(group)
    state: dict[str, object] = {"state": group.group_state}
    if kinds[0] == "classic":
        state["protocol"] = group.protocol_data or None
    else:
        state["epoch"] = group.group_epoch
    owners, members = dict[tuple[str, int], str](), list[table_output.Row]()
    for each in group.members:
        instance = getattr(each, "group_instance_id", getattr(each, "instance_id", None))
        members.append((each.member_id, instance, each.client_id or None, each.client_host or None))
        if kinds[0] != "classic":
            rows = getattr(each.assignment, "topic_partitions", ())
            places = [(row.topic_name, number) for row in rows for number in row.partitions]
        elif group.protocol_type == CONSUMER:
            places = assigned_partitions(each.member_assignment)
        else:
            places = []
        owners |= dict.fromkeys(places, each.member_id)
    lags = await _lags(requests, name, owners, is_share=kinds[0] == "share")
    return shown(name, Described(state, members, owners), lags)


async def _lags(
    requests: Requests, name: str, owners: Iterable[tuple[str, int]], *, is_share: bool
) -> dict[tuple[str, int], tuple[object, ...]]:
    """Return the columns of a group's partitions: those with a commit, and those it reads."""
    log, known = BrokerLog(requests), dict[tuple[str, int], tuple[int, int | None]]()
    if is_share:
        asked = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
        request = DescribeShareGroupOffsetsRequest(groups=asked)
        found = await ask_coordinator(requests, GROUP, name, request, lambda row: row.groups[0])
        check(found.groups[0])
        for topic in found.groups[0].topics:
            for row in topic.partitions:
                known[topic.topic_name, row.partition_index] = row.start_offset, row.lag
    else:
        known = {
            (row.topic, row.partition): (row.offset, None) for row in await log.committed(name)
        }
    rows: dict[tuple[str, int], tuple[object, ...]] = {}
    places = sorted(known.keys() | owners)
    shapes = await shapes_of(requests, sorted({topic for topic, _ in places}))
    for topic, number in places:
        offset, lag = known.get((topic, number), (-1, None))
        end = await log.find_offset(topic, number, LATEST)
        if lag is None and shapes[topic][1] != "time":
            unread = offset if offset >= 0 else await log.find_offset(topic, number, EARLIEST)
            lag = max(0, end - unread)
        rows[topic, number] = (_or_none(offset), end, _or_none(lag), None, None, None)
    return rows


def _or_none(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


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


async def _described(log: CommandLog, name: str) -> Described:
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
    return Described(state, members, owners, _STREAMS_MEMBER if group.type == STREAMS else MEMBER)
