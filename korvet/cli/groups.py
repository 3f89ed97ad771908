"""`korvet groups`: list, describe, create, reset, change and delete."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.broker_log import BrokerLog, Log, on_any_log
from korvet.cli.config_changes import add_group_commands
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import GROUP, Requests, Via, ask_coordinator, leaders, on_log
from korvet.cli.table_output import Rows, View, show
from korvet.config.setting import StartError
from korvet.groups.assignment import assigned_partitions
from korvet.groups.description import CLASSIC, CONSUMER, STREAMS, describe_any
from korvet.groups.streams_group import name_tasks
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.position import EARLIEST, LATEST, Position
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from korvet.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from korvet.wire.schema import Message

app = o.group()
add_group_commands(app)

_Topic = Annotated[
    str,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=o.complete_topics
    ),
]
_MEMBER = ("member", "instance", "client", "host")
_STREAMS_MEMBER = ("member", "instance", "process", "client", "host", "active", "standby")
_OFFSET = ("topic", "partition", "committed", "end", "lag", "behind", "age", "metadata", "member")
_TIMES = ("behind", "age")
_AT_ONCE = 100
"""Groups that one request describes."""


@o.command(app, "list")
def list_(via: Via, out: o.Output) -> None:
    """List groups with type, state and members."""

    async def rows(log: AsyncKorvet) -> list[table_output.Row]:
        return [
            (group.group, group.type, group.state, group.protocol_type or None, group.members)
            for group in await log.groups()
        ]

    columns = ("group", "type", "state", "protocol", "members")
    found = via.run(_list) if via.has_brokers else on_log(rows, via.target)
    out.listing(columns, found)


@o.command(app, "describe")
def describe(name: o.GroupName, via: Via, out: o.Output, watch: o.Watch = None) -> None:
    """Print a group's members, offsets and lag.

    Lag is a number of records in every offset mode; without a commit it counts all of them.
    `behind` is the time from the oldest unread record to the newest one, `age` that to now. Brokers
    know neither, and no lag of offsets that are times.
    """
    printed = partial(show, watch=watch, as_json=out.json, header=out.header)
    if via.has_brokers:
        printed(lambda requests: _read_from_brokers(requests, name), via.run)
    else:
        printed(lambda log: _read(log, name), partial(on_log, target=via.target))


@o.command(app, "create")
def create(
    name: o.GroupName,
    topic: o.TopicPositions,
    via: Via,
    to: o.To = "latest",
    header: o.Header = True,
) -> None:
    """Create a group at a position in topics.

    It becomes a Redis group of the topics' streams too.
    """
    refusal = f"There is a group {name!r} already: move it with `korvet groups reset`."
    _move(via, name, o.parse_positions(topic, to), header, is_new=True, refusal=refusal)


@o.command(app, "reset")
def reset(
    name: o.GroupName, topic: o.TopicPositions, via: Via, to: o.To = None, header: o.Header = True
) -> None:
    """Move a group to a position in topics.

    The group exists and has no members.
    """
    wanted = o.parse_positions(topic, to)
    o.check_group_name(name)
    refusal = (
        f"There is no group {name!r}: `korvet groups list` names them, and `korvet groups create` "
        "makes one."
    )
    _move(via, name, wanted, header, is_new=False, refusal=refusal)


def _move(
    via: Via, name: str, wanted: dict[str, Position], header: bool, *, is_new: bool, refusal: str
) -> None:
    """Move a group, which is new or exists, and print its offsets. Raises StartError."""

    async def move(log: Log, is_known: bool) -> list[table_output.Row]:
        if is_known is is_new:
            raise StartError(refusal)
        return await _reset(log, name, wanted)

    async def by_brokers(requests: Requests) -> list[table_output.Row]:
        groups = await _list(requests)
        return await move(BrokerLog(requests), name in [row[0] for row in groups])

    async def here(log: AsyncKorvet) -> list[table_output.Row]:
        return await move(log, bool(await log.store.command("EXISTS", log.keys.group(name).group)))

    rows = via.run(by_brokers) if via.has_brokers else on_log(here, via.target)
    table_output.table(("topic", "partition", "offset"), rows, header=header)


@o.command(app, "delete")
def delete(names: o.GroupNames, via: Via) -> None:
    """Delete groups that have no members.

    Their committed offsets are deleted too.
    """

    async def run(log: Log) -> None:
        for name in names:
            await log.delete_group(name)
            table_output.line(f"deleted {name}")

    on_any_log(run, via)


@o.command(app, "delete-offsets")
def delete_offsets(
    name: o.GroupName, topic: _Topic, via: Via, partition: o.Partitions = None
) -> None:
    """Delete what a group has committed for a topic.

    No member of the group may subscribe to the topic.
    """

    async def run(requests: Requests) -> list[int]:
        numbers = partition or sorted(await leaders(requests, topic))
        rows = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        of_topic = OffsetDeleteRequestTopic(name=topic, partitions=rows)
        request = OffsetDeleteRequest(group_id=name, topics=[of_topic])
        answer = await ask_coordinator(requests, GROUP, name, request)
        check(answer)
        for row in answer.topics[0].partitions:
            check(row)
        return sorted(numbers)

    numbers = ", ".join(map(str, via.run(run)))
    table_output.line(f"deleted the offsets of {name} for {topic}, partitions {numbers}")


async def _reset(log: Log, name: str, positions: dict[str, Position]) -> list[table_output.Row]:
    """Commit the offsets at those positions, in all topics or in none."""
    o.check_group_name(name)
    topics = {topic: await log.topic(topic) for topic in positions}
    offsets = {
        (topic, number): await log.find_offset(topic, number, positions[topic])
        for topic, info in topics.items()
        for number in range(info.partitions)
    }
    await log.commit(name, offsets)
    return [(topic, number, offset) for (topic, number), offset in offsets.items()]


# A group as `describe` shows it.


class _Described(NamedTuple):
    """A group's state, its members, and the member that each partition is assigned to."""

    state: dict[str, object]
    members: list[table_output.Row]
    owners: dict[tuple[str, int], str]
    columns: tuple[str, ...] = _MEMBER


_NOT_DESCRIBED = _Described({}, [], {})
"""A group of which only the offsets are stored."""


async def _read(log: AsyncKorvet, name: str) -> View:
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
    return _view(name, found, rows)


def _view(name: str, group: _Described, rows: dict[tuple[str, int], tuple[object, ...]]) -> View:
    """Return a group for the screen; `rows` are the columns of its partitions up to `member`."""
    offsets = [(*at, *row, group.owners.get(at)) for at, row in sorted(rows.items())]
    columns = [f"{name}_ms" if name in _TIMES else name for name in _OFFSET]
    in_seconds = list(map(_with_seconds, offsets))
    tables = [
        Rows("members", group.columns, group.members, is_printed=bool(group.state)),
        Rows("offsets", _OFFSET, in_seconds, in_json=(columns, offsets)),
    ]
    return View(name, group.state, tables)


async def _read_from_brokers(requests: Requests, name: str) -> View:
    """Return the state, members, offsets and lag of a group. Raises StartError if there is none."""
    broker = await requests.coordinator(GROUP, name)
    listed = (await requests.call(ListGroupsRequest(), broker)).groups
    kinds = [row.group_type.lower() or "classic" for row in listed if row.group_id == name]
    if not kinds:
        raise StartError(f"There is no group {name!r}: `korvet groups list` names them.")
    (group,) = (await requests.call(_describe_request(kinds[0], [name]), broker)).groups
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
    return _view(name, _Described(state, members, owners), lags)


async def _lags(
    requests: Requests, name: str, owners: Iterable[tuple[str, int]], *, is_share: bool
) -> dict[tuple[str, int], tuple[object, ...]]:
    """Return the columns of a group's partitions: those with a commit, and those it reads."""
    log, known = BrokerLog(requests), dict[tuple[str, int], tuple[int, int | None]]()
    if is_share:
        asked = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)]
        request = DescribeShareGroupOffsetsRequest(groups=asked)
        found = await ask_coordinator(
            requests, GROUP, name, request, lambda row: row.groups[0].error_code
        )
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
    shapes = await log.shapes(sorted({topic for topic, _ in places}))
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


async def _end(log: AsyncKorvet, topic: str, partition: int) -> int | None:
    """Return the partition's log end offset, None if there is no such partition."""
    found = await log.topic_table.get(topic)
    if found is None or not 0 <= partition < found.partitions:
        return None
    return (await log.offsets(topic))[partition].latest


async def _described(log: AsyncKorvet, name: str) -> _Described:
    """Read the group, of any protocol."""
    try:
        group = await describe_any(log.coordinator, name)
    except Refused:
        return _NOT_DESCRIBED
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


# At brokers.


async def _list(requests: Requests) -> list[table_output.Row]:
    """Return a row of each group: its type, state, protocol and members."""
    rows: dict[str, table_output.Row] = {}
    for broker in requests.brokers:
        answer = await requests.call(ListGroupsRequest(), broker)
        check(answer)
        by_type: dict[str, list[Any]] = {}
        for group in answer.groups:
            by_type.setdefault(group.group_type.lower() or "classic", []).append(group)
        for kind, groups in by_type.items():
            for at in range(0, len(groups), _AT_ONCE):
                some = groups[at : at + _AT_ONCE]
                found = await requests.call(
                    _describe_request(kind, [row.group_id for row in some]), broker
                )
                members = {row.group_id: len(row.members) for row in found.groups}
                for row in some:
                    protocol = row.protocol_type or None
                    count = members.get(row.group_id, 0)
                    rows[row.group_id] = (row.group_id, kind, row.group_state, protocol, count)
    return [rows[name] for name in sorted(rows)]


def _describe_request(kind: str, names: list[str]) -> Message:
    """Return the request that describes groups of a type."""
    if kind == "classic":
        return DescribeGroupsRequest(groups=names)
    request = {
        "consumer": ConsumerGroupDescribeRequest,
        "share": ShareGroupDescribeRequest,
        "streams": StreamsGroupDescribeRequest,
    }[kind]
    return request(group_ids=names, include_authorized_operations=False)
