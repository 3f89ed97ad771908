"""A consumer group as `korvet groups describe` shows it: state, members, offsets, lag."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from korvet.cli import table_output
from korvet.config.setting import StartError

if TYPE_CHECKING:
    from korvet.cli.admin_client import CommandLog

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


class GroupView(NamedTuple):
    """A group; `described` is None if only its offsets are stored."""

    name: str
    described: _Described | None
    offsets: list[table_output.Row]

    def document(self) -> dict[str, object]:
        """Return the group for JSON."""
        found = self.described
        members = [] if found is None else table_output.objects(found.columns, found.members)
        state = {} if found is None else found.state
        columns = [f"{name}_ms" if name in _TIMES else name for name in _OFFSET]
        rows = table_output.objects(columns, self.offsets)
        return {"group": self.name, **state, "members": members, "offsets": rows}

    def parts(self) -> Iterable[table_output.Part]:
        """Yield a line with the state, a table of the members and one of the offsets."""
        found = self.described
        if found is not None:
            words = (f"{key} {'-' if held is None else held}" for key, held in found.state.items())
            yield table_output.Part(f"{self.name}: {', '.join(words).removeprefix('state ')}")
            yield table_output.Part(None, found.columns, found.members)
            yield table_output.Part("")
        yield table_output.Part(None, _OFFSET, list(map(_with_seconds, self.offsets)))


async def read(log: "CommandLog", name: str) -> GroupView:
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
    if found is None and not rows:
        raise StartError(f"There is no group {name!r}.")
    owners = found.owners if found else {}
    for place in owners.keys() - rows.keys():
        rows[place] = (None, await _end(log, *place), None, None, None, None)
    return GroupView(name, found, [(*at, *row, owners.get(at)) for at, row in sorted(rows.items())])


def _with_seconds(row: table_output.Row) -> table_output.Row:
    """Show the times in seconds."""
    cells = list(row)
    for name in _TIMES:
        at = _OFFSET.index(name)
        cells[at] = None if row[at] is None else f"{cast(int, row[at]) / 1000:g} s"
    return cells


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
    """Read the group, of any protocol; None if there is none."""
    from korvet.groups.consumer_protocol import assigned_partitions

    keys, coordinator = log.keys, log.coordinator
    found = await coordinator.run(name, lambda _: keys.group(name).describe(full=1))
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
    if found.type == b"streams":
        return await _streams(log, name)
    if found.type in (b"consumer", b"share"):
        newer = await coordinator.run(
            name, lambda _: keys.group(name).consumer_describe(type=found.type.decode())
        )
        if newer.error:
            return None
        state = {
            "state": newer.state.decode(),
            "epoch": newer.epoch,
            "assignor": newer.assignor.decode() if found.type == b"consumer" else "simple",
        }
        rows = [newer.members[at : at + 10] for at in range(0, len(newer.members), 10)]
        members = [(row[0], row[1], row[3], row[4]) for row in rows]
        parts = [await _assigned(log, row[8]) for row in rows]
    shown: list[Any] = [tuple(cell.decode() or None for cell in member) for member in members]
    owners = {
        place: member[0] for member, places in zip(shown, parts, strict=True) for place in places
    }
    return _Described(state, shown, owners)


async def _streams(log: "CommandLog", name: str) -> _Described | None:
    """Read a streams group; None if there is none."""
    from korvet.groups import streams_group

    found = await log.coordinator.run(name, lambda _: log.keys.group(name).streams_describe())
    if found.error:
        return None
    inputs = streams_group.input_topics(streams_group.decode_topology(found.topology))
    counts = {}
    for topic in {topic for topics in inputs.values() for topic in topics}:
        known = await log.table.get(topic)
        counts[topic] = known.partitions if known else 0
    state: dict[str, object] = {
        "state": found.state.decode(),
        "epoch": found.epoch,
        "topology": found.topology_epoch,
    }
    if found.detail:
        state["reason"] = found.detail.decode()
    members: list[Any] = []
    owners: dict[tuple[str, int], str] = {}
    cells = streams_group.CELLS
    for row in (found.members[at : at + cells] for at in range(0, len(found.members), cells)):
        tasks = streams_group.decode_tasks(row[10])
        active, standby = tasks[streams_group.ACTIVE], tasks[streams_group.STANDBY]
        member = row[0].decode()
        members.append(
            (
                member,
                row[1].decode() or None,
                row[7].decode() or None,
                row[3].decode() or None,
                row[4].decode(),
                " ".join(streams_group.name_tasks(active)) or None,
                " ".join(streams_group.name_tasks(standby)) or None,
            )
        )
        places = streams_group.input_partitions(inputs, active, counts)
        owners |= dict.fromkeys(places, member)
    return _Described(state, members, owners, _STREAMS_MEMBER)
