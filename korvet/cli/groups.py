"""`korvet groups`: list, describe, create, reset and delete."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.help_text import group

if TYPE_CHECKING:
    from korvet.cli.admin_client import CommandLog
    from korvet.library.record_calls import Position

app = group("List, move and delete consumer groups.")

_Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
_Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[=POSITION]",
        help="A topic, and its position if it differs from --to. Repeat.",
    ),
]
_To = Annotated[str | None, typer.Option("--to", metavar="POSITION", help=o.POSITIONS)]
_MEMBER = ("member", "instance", "client", "host")
_OFFSET = ("topic", "partition", "committed", "end", "lag", "behind", "metadata", "member")


@o.command(app, "list")
def list_(target: o.Target, json: o.Json = False, header: o.Header = True) -> None:
    """List groups with type, state and members."""
    from korvet.cli.admin_client import on_log

    async def rows(log: "CommandLog") -> list[table_output.Row]:
        return [
            (group.group, group.type, group.state, group.protocol_type or None, group.members)
            for group in await log.groups()
        ]

    columns = ("group", "type", "state", "protocol", "members")
    table_output.listing(columns, on_log(rows, target), as_json=json, header=header)


@o.command(app, "describe")
def describe(name: _Name, target: o.Target, json: o.Json = False, header: o.Header = True) -> None:
    """Print a group's members, offsets and lag."""
    from korvet.cli.admin_client import on_log

    async def run(log: "CommandLog") -> "tuple[_Described | None, list[table_output.Row]]":
        from korvet.config.broker_config import StartError

        found = await _described(log, name)
        rows: dict[tuple[str, int], tuple[object, ...]] = {
            (row.topic, row.partition): (
                row.offset,
                row.log_end_offset,
                row.lag,
                None if row.lag_ms < 0 else row.lag_ms,
                row.metadata or None,
            )
            for row in await log.committed(name)
        }
        if found is None and not rows:
            raise StartError(f"There is no group {name!r}.")
        owners = found.owners if found else {}
        for place in owners.keys() - rows.keys():
            rows[place] = (None, await _end(log, *place), None, None, None)
        return found, [(*at, *row, owners.get(at)) for at, row in sorted(rows.items())]

    found, offsets = on_log(run, target)
    if json:
        members = [] if found is None else table_output.objects(_MEMBER, found.members)
        state = {} if found is None else found.state
        columns = [{"behind": "behind_ms"}.get(name, name) for name in _OFFSET]
        rows = table_output.objects(columns, offsets)
        table_output.document({"group": name, **state, "members": members, "offsets": rows})
        return
    if found is not None:
        words = (f"{key} {'-' if value is None else value}" for key, value in found.state.items())
        table_output.line(f"{name}: {', '.join(words).removeprefix('state ')}")
        table_output.table(_MEMBER, found.members, header=header)
        table_output.line("")
    table_output.table(_OFFSET, map(_with_seconds, offsets), header=header)


def _with_seconds(row: table_output.Row) -> table_output.Row:
    """Show the time a group is behind in seconds."""
    at = _OFFSET.index("behind")
    return [
        *row[:at],
        None if row[at] is None else f"{cast(int, row[at]) / 1000:g} s",
        *row[at + 1 :],
    ]


class _Described(NamedTuple):
    """A group's state, its members, and the member that each partition is assigned to."""

    state: dict[str, object]
    members: list[table_output.Row]
    owners: dict[tuple[str, int], str]


async def _end(log: "CommandLog", topic: str, partition: int) -> int | None:
    """Return the partition's log end offset, None if there is no such partition."""
    found = await log.table.get(topic)
    if found is None or not 0 <= partition < found.partitions:
        return None
    return (await log.offsets(topic))[partition].latest


async def _assigned(log: "CommandLog", assignment: bytes) -> list[tuple[str, int]]:
    """Return the partitions of existing topics that a KIP-848 member is assigned."""
    from uuid import UUID

    from korvet.groups.assignment import decode_assignment

    found = []
    for topic_id, numbers in decode_assignment(assignment).items():
        topic = await log.table.get_id(UUID(topic_id))
        found += [(topic.name, number) for number in numbers] if topic else []
    return found


async def _described(log: "CommandLog", name: str) -> _Described | None:
    """Read the group, of either protocol; None if there is none."""
    from korvet.groups.consumer_protocol import assigned_partitions
    from korvet.scripts import group as scripts

    keys, coordinator = log.keys, log.coordinator
    found = await coordinator.run(name, lambda _: scripts.describe(keys, name, full=1))
    if found.error:
        return None
    state: dict[str, object] = {
        "state": found.state.decode(),
        "generation": found.generation,
        "protocol": found.protocol.decode() or None,
    }
    rows = [found.members[at : at + 6] for at in range(0, len(found.members), 6)]
    members = [(row[0], row[1], row[2], row[3]) for row in rows]
    # An assignment can be read if its protocol type is "consumer": Connect's holds tasks.
    parts = [
        assigned_partitions(row[5]) if found.protocol_type == b"consumer" else [] for row in rows
    ]
    if found.type == b"consumer":
        newer = await coordinator.run(name, lambda _: scripts.consumer_describe(keys, name))
        if newer.error:
            return None
        state = {
            "state": newer.state.decode(),
            "epoch": newer.epoch,
            "assignor": newer.assignor.decode(),
        }
        rows = [newer.members[at : at + 10] for at in range(0, len(newer.members), 10)]
        members = [(row[0], row[1], row[3], row[4]) for row in rows]
        parts = [await _assigned(log, row[8]) for row in rows]
    shown: list[Any] = [tuple(cell.decode() or None for cell in member) for member in members]
    owners = {
        place: member[0] for member, places in zip(shown, parts, strict=True) for place in places
    }
    return _Described(state, shown, owners)


@o.command(app, "create")
def create(
    name: _Name,
    topic: _Topics,
    target: o.Target,
    to: _To = "latest",
    header: o.Header = True,
) -> None:
    """Create a group at a position in topics.

    It becomes a Redis group of the topics' streams too.
    """
    from korvet.cli.admin_client import on_log
    from korvet.config.broker_config import StartError

    wanted = _positions(topic, to)

    async def run(log: "CommandLog") -> list[table_output.Row]:
        if await log.store.command("EXISTS", log.keys.group(name).group):
            raise StartError(
                f"There is a group {name!r} already: move it with `korvet groups reset`."
            )
        return await _reset(log, name, wanted)

    table_output.table(("topic", "partition", "offset"), on_log(run, target), header=header)


@o.command(app, "reset")
def reset(
    name: _Name,
    topic: _Topics,
    target: o.Target,
    to: _To = None,
    header: o.Header = True,
) -> None:
    """Move a group to a position in topics.

    The group must have no members.
    """
    from korvet.cli.admin_client import on_log

    wanted = _positions(topic, to)

    async def run(log: "CommandLog") -> list[table_output.Row]:
        return await _reset(log, name, wanted)

    table_output.table(("topic", "partition", "offset"), on_log(run, target), header=header)


@o.command(app, "delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' ids.")],
    target: o.Target,
) -> None:
    """Delete groups that have no members.

    Their committed offsets are deleted too.
    """
    from korvet.cli.admin_client import on_log

    async def run(log: "CommandLog") -> None:
        for name in names:
            await log.delete_group(name)
            table_output.line(f"deleted {name}")

    on_log(run, target)


def _positions(topics: list[str], to: str | None) -> "dict[str, Position]":
    """Parse each topic's position before anything is read or changed."""
    from korvet.config.broker_config import StartError
    from korvet.log.position import BadPosition, parse_position

    now, found = datetime.now(UTC), {}
    for text in topics:
        name, _, own = text.partition("=")
        position = own or to
        if position is None:
            raise StartError(
                f"The position in {name!r} is missing: give --to POSITION or "
                f"--topic {name}=POSITION."
            )
        try:
            found[name] = parse_position(position, now)
        except BadPosition as error:
            raise StartError(f"{'--topic' if own else '--to'}: {error}") from None
    return found


async def _reset(
    log: "CommandLog", name: str, positions: "dict[str, Position]"
) -> list[table_output.Row]:
    """Commit the offsets at those positions, in all topics or in none."""
    from korvet.config.broker_config import StartError

    if not name:
        raise StartError("A group needs a name.")
    try:
        name.encode()
    except UnicodeEncodeError:
        # Responses to clients hold group ids as UTF-8: one that is not breaks every listing.
        raise StartError(f"A group's name is UTF-8, not {os.fsencode(name)!r}.") from None
    topics = {topic: await log.topic(topic) for topic in positions}
    offsets = {
        (topic, number): await log.find_offset(topic, number, positions[topic])
        for topic, info in topics.items()
        for number in range(info.partitions)
    }
    await log.commit(name, offsets)
    return [(topic, number, offset) for (topic, number), offset in offsets.items()]
