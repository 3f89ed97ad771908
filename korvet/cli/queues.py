"""`korvet queues`: list, describe and move share groups; put dead letters back."""

from typing import Annotated

import typer

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.cli import options as o
from korvet.cli import queue_replay, queue_view, table_output
from korvet.cli.admin_client import CommandLog, on_log
from korvet.cli.help_text import group
from korvet.cli.live import show
from korvet.cli.topic_positions import To, check_group_name, parse_positions
from korvet.config.broker_config import StartError
from korvet.groups.share_offsets import ShareOffsets, list_partitions
from korvet.log.position import Position
from korvet.topics.table import Topic

app = group()

_Name = Annotated[str, typer.Argument(metavar="GROUP", help="The share group's id.")]
_RESET = ("topic", "partition", "start", "new_start", "records")
_ALL = "*"


@o.command(app, "list")
def list_(target: o.Target, json: o.Json = False, header: o.Header = True) -> None:
    """List share groups with state, members and the records that are left.

    Available and acquired records are in delivery; the lag counts these and all later ones.
    """
    rows = on_log(queue_view.summaries, target)
    table_output.listing(queue_view.SUMMARY, rows, as_json=json, header=header)


@o.command(app, "describe")
def describe(
    name: _Name,
    target: o.Target,
    watch: o.Watch = None,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Print a share group's members, partitions and delivered records.

    A lock ends at `ends`. Records without a member were delivered and are available again, from
    `ends` on.
    """
    show(lambda log: queue_view.read(log, name), target, watch=watch, as_json=json, header=header)


@o.command(app, "reset")
def reset(
    name: _Name,
    target: o.Target,
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
    to: To = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where the group would move; change nothing.")
    ] = False,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Move a share group to a position in topics.

    The group must have no members. All records from the position on are available again, with no
    deliveries counted; `records` says how many there are.
    """
    if not topic and to is None:
        raise typer.BadParameter(f"give --to POSITION: {o.POSITIONS}")
    wanted = parse_positions(topic or [_ALL], to)
    rows = on_log(lambda log: _reset(log, name, wanted, dry_run=dry_run), target)
    table_output.listing(_RESET, rows, as_json=json, header=header)


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
    log: CommandLog, name: str, positions: dict[str, Position], *, dry_run: bool
) -> list[table_output.Row]:
    """Move the group in these topics; `*`: in all of its other topics.

    Return a row of each partition: its start offset, the new one, and the records from there on.
    """
    check_group_name(name)
    offsets = ShareOffsets(log.store, log.keys, log.table, log.coordinator)
    topics = await _topics(log, offsets, name, positions)
    places = list_partitions(topics)

    async def find(place: tuple[Topic, int]) -> int:
        topic, number = place
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
        moves = [(*place, offset) for place, offset in zip(places, found, strict=True)]
        error, errors = await offsets.alter(name, moves)
        _check(name, error)
        for (topic, number), failed in errors.items():
            _check(f"{topic}-{number}", failed)
    return [
        (topic.name, number, old.start if old.start >= 0 else None, offset, count.records)
        for (topic, number), old, offset, count in zip(places, before, found, counts, strict=True)
    ]


async def _topics(
    log: CommandLog, offsets: ShareOffsets, name: str, positions: dict[str, Position]
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
