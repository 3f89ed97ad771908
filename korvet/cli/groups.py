"""`korvet groups`: list, describe, create, reset and delete, through the brokers' own scripts."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from korvet.cli import options as o
from korvet.cli import table_output

if TYPE_CHECKING:
    from korvet.cli.admin_client import Cluster
    from korvet.groups.coordinator import GroupCoordinator
    from korvet.log.position import Place

app = typer.Typer(help="Consumer groups: list, describe, create, reset, delete.")

_Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
_Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[=PLACE]",
        help="A topic, with a place of its own or --to's; repeatable.",
    ),
]
_To = Annotated[
    str | None,
    typer.Option("--to", metavar="PLACE", help=o.PLACES),
]


@app.command("list")
def list_(redis: o.Redis = None, data_dir: o.DataDir = None, namespace: o.Namespace = None) -> None:
    """Print every group with its state, protocol and number of members."""
    from korvet.cli.admin_client import on_cluster

    async def rows(cluster: "Cluster") -> list[tuple[object, ...]]:
        found = []
        for name in sorted(await _groups(cluster).names()):
            kind, state, protocol, size = await cluster.store.command(
                *("HMGET", cluster.keys.group(name).group),
                *("type", "state", "protocol_type", "size"),
            )
            if kind is not None:
                words = (kind, state, protocol or b"-", size or b"0")
                found.append((name, *(word.decode() for word in words)))
        return found

    table_output.table(
        ("group", "type", "state", "protocol", "members"),
        on_cluster(rows, redis, data_dir, namespace),
    )


@app.command("describe")
def describe(
    name: _Name,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Print a group's members, and per partition what it has committed, how far it lags and which
    member reads it."""
    from korvet.cli.admin_client import on_cluster
    from korvet.config.broker_config import StartError
    from korvet.groups.lag import standings

    async def run(cluster: "Cluster") -> None:
        found = await _seen(cluster, name)
        places = await standings(cluster.store, cluster.keys, cluster.topics, name)
        if found is None and not places:
            raise StartError(f"There is no group {name!r}.")
        owners = found.owners if found else {}
        if found is not None:
            table_output.line(f"{name}: {found.words}")
            table_output.table(("member", "instance", "client", "host"), found.members)
            table_output.line("")
        rows: dict[tuple[str, int], tuple[object, ...]] = {
            (row.topic, row.partition): (
                row.commit.offset,
                row.end,
                row.lag,
                "-" if row.behind_ms < 0 else f"{row.behind_ms / 1000:g} s",
                row.commit.metadata or "-",
            )
            for row in places
        }
        for place in owners.keys() - rows.keys():
            rows[place] = ("-", await _end(cluster, *place), "-", "-", "-")
        table_output.table(
            ("topic", "partition", "committed", "end", "lag", "behind", "metadata", "member"),
            [(*place, *row, owners.get(place, "-")) for place, row in sorted(rows.items())],
        )

    on_cluster(run, redis, data_dir, namespace)


class _Seen(NamedTuple):
    """A group's state in a few words, its members, and who reads which partition."""

    words: str
    members: list[tuple[str, ...]]
    owners: dict[tuple[str, int], str]


async def _end(cluster: "Cluster", topic: str, number: int) -> int | str:
    """Where the partition's log ends, if there is one."""
    from korvet.scripts import log

    found = await cluster.topics.get(topic)
    if found is None or not 0 <= number < found.partitions:
        return "-"
    call = log.list_offsets(cluster.keys, topic, number, topic_id=found.id)
    return (await cluster.store.run(call)).next


async def _held(cluster: "Cluster", spelled: bytes) -> list[tuple[str, int]]:
    """The partitions that a member of the newer protocol holds, of topics that exist."""
    from uuid import UUID

    from korvet.groups.assignment import decode_assignment

    found = []
    for topic_id, numbers in decode_assignment(spelled).items():
        topic = await cluster.topics.get_id(UUID(topic_id))
        found += [(topic.name, number) for number in numbers] if topic else []
    return found


async def _seen(cluster: "Cluster", name: str) -> _Seen | None:
    """The group, whichever protocol it speaks."""
    from korvet.groups.consumer_protocol import assigned
    from korvet.scripts import group as scripts

    keys, groups = cluster.keys, _groups(cluster)
    found = await groups.run(name, lambda _: scripts.describe(keys, name, full=1))
    if found.error:
        return None
    state, protocol = found.state.decode(), found.protocol.decode() or "-"
    words = f"{state}, generation {found.generation}, protocol {protocol}"
    rows = [found.members[at : at + 6] for at in range(0, len(found.members), 6)]
    members = [(row[0], row[1], row[2], row[3]) for row in rows]
    # Only what consumers say of partitions can be read: Connect's workers share tasks.
    parts = [assigned(row[5]) if found.protocol_type == b"consumer" else [] for row in rows]
    if found.type == b"consumer":
        newer = await groups.run(name, lambda _: scripts.consumer_describe(keys, name))
        if newer.error:
            return None
        words = f"{newer.state.decode()}, epoch {newer.epoch}, assignor {newer.assignor.decode()}"
        rows = [newer.members[at : at + 10] for at in range(0, len(newer.members), 10)]
        members = [(row[0], row[1], row[3], row[4]) for row in rows]
        parts = [await _held(cluster, row[8]) for row in rows]
    shown = [tuple(cell.decode() or "-" for cell in member) for member in members]
    owners = {
        place: member[0] for member, places in zip(shown, parts, strict=True) for place in places
    }
    return _Seen(words, shown, owners)


@app.command("create")
def create(
    name: _Name,
    topic: _Topics,
    to: _To = "latest",
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Create a group that begins to read these topics at a place, in Kafka and in Redis alike."""
    from korvet.cli.admin_client import on_cluster
    from korvet.config.broker_config import StartError

    wanted = _places(topic, to)

    async def run(cluster: "Cluster") -> None:
        if await cluster.store.command("EXISTS", cluster.keys.group(name).group):
            raise StartError(f"There is a group {name!r} already: `korvet groups reset` moves it.")
        await _move(cluster, name, wanted)

    on_cluster(run, redis, data_dir, namespace)


@app.command("reset")
def reset(
    name: _Name,
    topic: _Topics,
    to: _To = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Move a group that has no members to a place in these topics."""
    from korvet.cli.admin_client import on_cluster

    wanted = _places(topic, to)

    async def run(cluster: "Cluster") -> None:
        await _move(cluster, name, wanted)

    on_cluster(run, redis, data_dir, namespace)


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' ids.")],
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Delete groups that have no members, with what they committed."""
    from korvet.cli.admin_client import on_cluster
    from korvet.config.broker_config import StartError
    from korvet.errors import ErrorCode

    async def run(cluster: "Cluster") -> None:
        for name in names:
            error = await _groups(cluster).delete(name)
            if error is ErrorCode.GROUP_ID_NOT_FOUND:
                raise StartError(f"There is no group {name!r}.")
            if error:
                raise StartError(f"Group {name!r} has members: stop them first.")
            table_output.line(f"deleted {name}")

    on_cluster(run, redis, data_dir, namespace)


def _groups(cluster: "Cluster") -> "GroupCoordinator":
    from korvet.groups.coordinator import GroupCoordinator

    return GroupCoordinator(cluster.store, cluster.keys, lambda: cluster.settings)


def _places(topics: list[str], to: str | None) -> "dict[str, Place]":
    """Each topic's place; a wrong word is refused before anything is looked at."""
    from korvet.config.broker_config import StartError
    from korvet.log.position import BadPosition, parse_place

    now, found = datetime.now(UTC), {}
    for text in topics:
        name, _, own = text.partition("=")
        place = own or to
        if place is None:
            raise StartError(f"Where in {name!r}? Say --to PLACE, or --topic {name}=PLACE.")
        try:
            found[name] = parse_place(place, now)
        except BadPosition as error:
            raise StartError(f"{'--topic' if own else '--to'}: {error}") from None
    return found


async def _move(cluster: "Cluster", name: str, places: "dict[str, Place]") -> None:
    """The group has committed those places in every partition of the topics."""
    from korvet.config.broker_config import StartError
    from korvet.groups.lag import find_place
    from korvet.scripts import group as scripts

    if not name:
        raise StartError("A group needs a name.")
    try:
        name.encode()
    except UnicodeEncodeError:
        # No broker could tell a client of it, nor of any group that stands beside it in a list.
        raise StartError(f"A group's name is UTF-8, not {os.fsencode(name)!r}.") from None
    topics = {one: await cluster.topic(one) for one in places}
    rows = []
    for topic in topics.values():
        for number in range(topic.partitions):
            offset = await find_place(
                cluster.store, cluster.keys, cluster.reader, topic, number, places[topic.name]
            )
            rows.append((topic.name, number, offset, -1, topic.id, ""))
    groups = _groups(cluster)
    reply = await groups.run(
        name,
        lambda registered: scripts.commit(
            cluster.keys,
            name,
            rows,
            member="",
            instance="",
            generation=-1,
            is_registered=registered,
            retention_ms=-1,
        ),
    )
    if reply.error:
        raise StartError(f"Group {name!r} has members: stop them first.")
    await groups.follow(name, rows)
    table_output.table(("topic", "partition", "offset"), [row[:3] for row in rows])
