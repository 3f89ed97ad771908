"""`korvet groups`: list, describe, create, reset, change and delete."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import typer

from korvet.cli import group_view, over_brokers, table_output
from korvet.cli import options as o
from korvet.cli.admin_client import CommandLog, on_log
from korvet.cli.broker_log import BrokerLog, Log, on_any_log
from korvet.cli.config_changes import add_group_commands
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import GROUP, Requests, Via, ask_coordinator, leaders
from korvet.cli.live import show
from korvet.config.broker_config import StartError
from korvet.log.position import Position
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

app = o.group()
add_group_commands(app)

_Topic = Annotated[
    str,
    typer.Option(
        "--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=o.complete_topics
    ),
]


@o.command(app, "list")
def list_(via: Via, json: o.Json = False, header: o.Header = True) -> None:
    """List groups with type, state and members."""

    async def rows(log: CommandLog) -> list[table_output.Row]:
        return [
            (group.group, group.type, group.state, group.protocol_type or None, group.members)
            for group in await log.groups()
        ]

    columns = ("group", "type", "state", "protocol", "members")
    found = via.run(over_brokers.list_groups) if via.has_brokers else on_log(rows, via.target)
    table_output.listing(columns, found, as_json=json, header=header)


@o.command(app, "describe")
def describe(
    name: o.GroupName,
    via: Via,
    watch: o.Watch = None,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Print a group's members, offsets and lag.

    Lag is a number of records in every offset mode; without a commit it counts all of them.
    `behind` is the time from the oldest unread record to the newest one, `age` that to now. Brokers
    know neither, and no lag of offsets that are times.
    """
    printed = partial(show, watch=watch, as_json=json, header=header)
    if via.has_brokers:
        printed(lambda requests: group_view.read_from_brokers(requests, name), via.run)
    else:
        printed(lambda log: group_view.read(log, name), partial(on_log, target=via.target))


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
    wanted = o.parse_positions(topic, to)

    async def run(log: Log, is_known: bool) -> list[table_output.Row]:
        if is_known:
            raise StartError(
                f"There is a group {name!r} already: move it with `korvet groups reset`."
            )
        return await _reset(log, name, wanted)

    table_output.table(("topic", "partition", "offset"), _on_group(run, via, name), header=header)


@o.command(app, "reset")
def reset(
    name: o.GroupName, topic: o.TopicPositions, via: Via, to: o.To = None, header: o.Header = True
) -> None:
    """Move a group to a position in topics.

    The group exists and has no members.
    """
    wanted = o.parse_positions(topic, to)
    o.check_group_name(name)

    async def run(log: Log, is_known: bool) -> list[table_output.Row]:
        if not is_known:
            raise StartError(
                f"There is no group {name!r}: `korvet groups list` names them, and "
                "`korvet groups create` makes one."
            )
        return await _reset(log, name, wanted)

    table_output.table(("topic", "partition", "offset"), _on_group(run, via, name), header=header)


def _on_group(
    work: Callable[[Log, bool], Awaitable[list[table_output.Row]]], via: Via, name: str
) -> list[table_output.Row]:
    """Run `work` with the log, and whether it has the group; return its result."""

    async def by_brokers(requests: Requests) -> list[table_output.Row]:
        groups = await over_brokers.list_groups(requests)
        return await work(BrokerLog(requests), name in [row[0] for row in groups])

    async def here(log: CommandLog) -> list[table_output.Row]:
        return await work(log, bool(await log.store.command("EXISTS", log.keys.group(name).group)))

    return via.run(by_brokers) if via.has_brokers else on_log(here, via.target)


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
