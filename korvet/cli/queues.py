"""`korvet queues`: list, describe and move share groups; put dead letters back."""

from functools import partial
from typing import Annotated

import typer

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.cli import options as o
from korvet.cli import queue_replay, table_output
from korvet.cli.config_changes import add_group_commands
from korvet.cli.kafka_requests import on_log
from korvet.cli.table_output import Rows, View, show
from korvet.config.setting import StartError
from korvet.groups.description import SHARE, describe_modern
from korvet.groups.share_group import Delivered, ShareOffsets, SharePartition, list_partitions
from korvet.library.async_korvet import AsyncKorvet
from korvet.log.position import Position
from korvet.topics.lifecycle import Refused
from korvet.topics.table import Topic

_SUMMARY = ("group", "state", "members", "topics", "available", "acquired", "lag")
_MEMBER = ("member", "client", "host", "epoch", "partitions")
_PARTITION: tuple[str, ...] = (
    "topic", "partition", "start", "available", "acquired", "accepted", "archived", "dead_letters",
    "lag",
)  # fmt: skip
_DELIVERED = ("topic", "partition", "first", "last", "deliveries", "ends", "member")
_RUNS = 100
"""Delivered runs that are shown of each partition."""


async def _summaries(log: AsyncKorvet) -> list[table_output.Row]:
    """Return a row of each share group."""
    offsets = _offsets(log)
    rows: list[table_output.Row] = []
    for each in await log.groups():
        if each.type == "share":
            found = await offsets.describe_all(each.group)
            counts = (
                len({row.topic.name for row in found}),
                sum(row.available for row in found),
                sum(row.acquired for row in found),
                sum(max(row.lag, 0) for row in found),
            )
            rows.append((each.group, each.state, each.members, *counts))
    return rows


async def _read(log: AsyncKorvet, name: str) -> View:
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


def _offsets(log: AsyncKorvet) -> ShareOffsets:
    return ShareOffsets(log.node, log.coordinator)


def _partition(part: SharePartition) -> table_output.Row:
    """Return a row; a partition that the group has not read has only its place."""
    topic_partition = (part.topic.name, part.partition)
    if part.start < 0:
        return (*topic_partition, *(None for _ in _PARTITION[2:]))
    counts = (part.available, part.acquired, part.acknowledged, part.archived, part.dead_letters)
    return (*topic_partition, part.start, *counts, part.lag)


def _delivered(part: SharePartition, run: Delivered) -> table_output.Row:
    run_key = (part.topic.name, part.partition, run.first, run.last, run.deliveries)
    ends = table_output.moment(run.deadline_ms) if run.deadline_ms else None
    return (*run_key, ends, run.member or None)


app = o.group()
add_group_commands(app)

_Name = Annotated[str, typer.Argument(metavar="GROUP", help="The share group's id.")]
_RESET = ("topic", "partition", "start", "new_start", "records")
_ALL = "*"


@o.command(app, "list")
def list_(target: o.Target, out: o.Output) -> None:
    """List share groups with state, members and the records that are left.

    Available and acquired records are in delivery; the lag counts these and all later ones.
    """
    rows = on_log(_summaries, target)
    out.listing(_SUMMARY, rows)


@o.command(app, "describe")
def describe(name: _Name, target: o.Target, out: o.Output, watch: o.Watch = None) -> None:
    """Print a share group's members, partitions and delivered records.

    A lock ends at `ends`. Records without a member were delivered and are available again, from
    `ends` on.
    """
    on = partial(on_log, target=target)
    show(lambda log: _read(log, name), on, watch=watch, as_json=out.json, header=out.header)


@o.command(app, "reset")
def reset(
    name: _Name,
    target: o.Target,
    out: o.Output,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[=POSITION]",
            help="A topic, and its position if it differs from --to. Repeat. "
            "Default: all topics that the group has read.",
        ),
    ] = [],  # noqa: B006
    to: o.To = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where the group would move; change nothing.")
    ] = False,
) -> None:
    """Move a share group to a position in topics.

    The group must have no members. All records from the position on are available again, with no
    deliveries counted; `records` says how many there are.
    """
    if not topic and to is None:
        raise typer.BadParameter(f"give --to POSITION: {o.POSITIONS}")
    wanted = o.parse_positions(topic or [_ALL], to)
    rows = on_log(lambda log: _reset(log, name, wanted, dry_run=dry_run), target)
    out.listing(_RESET, rows)


@o.command(app, "replay")
def replay(
    queue: Annotated[
        str, typer.Argument(metavar="DLQ", help="The topic that is the dead letter queue.")
    ],
    target: o.Target,
    json: o.Json = False,
) -> None:
    """Put the records of a dead letter queue back into the partitions they came from.

    Each record is put back once, also if the command is ended and repeated. It continues after the
    dead letters of the last replay: the committed offsets of the group korvet.replay.
    """
    done = on_log(lambda log: queue_replay.Replay(log, queue).run(), target)
    if json:
        table_output.document(done)
        return
    table_output.line(f"{done.records} records put back")
    if done.gone:
        table_output.line(f"{done.gone} records are gone: neither the queue nor the log has them")
    if done.not_dead_letters:
        table_output.line(f"{done.not_dead_letters} records of {queue} are no dead letters")


async def _reset(
    log: AsyncKorvet, name: str, positions: dict[str, Position], *, dry_run: bool
) -> list[table_output.Row]:
    """Move the group in these topics; `*`: in all of its other topics.

    Return a row of each partition: its start offset, the new one, and the records from there on.
    """
    o.check_group_name(name)
    offsets = _offsets(log)
    topics = await _topics(log, offsets, name, positions)
    places = list_partitions(topics)

    async def find(partition: tuple[Topic, int]) -> int:
        topic, number = partition
        position = positions.get(topic.name, positions.get(_ALL))
        assert position is not None
        return await log.find_offset(topic.name, number, position)

    found = await gather_bounded(find, places)
    counts = await log.store.run_many(
        topic.partition(number).lag(offset=offset)
        for (topic, number), offset in zip(places, found, strict=True)
    )
    before = await offsets.describe(name, places)
    if not dry_run:
        moves = [(*partition, offset) for partition, offset in zip(places, found, strict=True)]
        error, errors = await offsets.alter(name, moves)
        _check(name, error)
        for (topic, number), failed in errors.items():
            _check(f"{topic}-{number}", failed)
    return [
        (topic.name, number, old.start if old.start >= 0 else None, offset, count.records)
        for (topic, number), old, offset, count in zip(places, before, found, counts, strict=True)
    ]


async def _topics(
    log: AsyncKorvet, offsets: ShareOffsets, name: str, positions: dict[str, Position]
) -> list[Topic]:
    """Return the topics to move in, which exist."""
    error, _, own = await offsets.topics_of(name)
    _check(name, error)
    found = {topic.name: topic for topic in own} if _ALL in positions else {}
    for topic in positions:
        if topic != _ALL:
            found[topic] = await log.find_topic(topic)
    if not found:
        raise StartError(f"Share group {name!r} has read no topic: name one with --topic.")
    return list(found.values())


def _check(name: str, error: ErrorCode) -> None:
    """Raise StartError unless there is no error."""
    if error is ErrorCode.NON_EMPTY_GROUP:
        raise StartError(f"Share group {name!r} has members: stop them first.")
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise StartError(f"There is no share group {name!r}, or it is a group of another type.")
    if error:
        raise StartError(f"{name!r} cannot be moved: {error.name}.")
