"""Streams groups (KIP-1071): topologies, tasks and the lists that scripts exchange.

A topology is encoded as lua/lib/streams_topology.lua describes, tasks as
lua/lib/partition_owners.lua does: kind, subtopology id in hex digits, partitions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from korvet.base.bounded import chunks
from korvet.config.dynamic import ConfigTable
from korvet.config.values import Settings
from korvet.groups.assignment import decode_assignment, encode_assignment
from korvet.groups.modern import group_timeout_ms, pack, pack_bytes, unpack, unpack_bytes

ACTIVE, STANDBY, WARMUP = "a", "b", "c"
"""The kinds of tasks."""


class StreamsGroupConfig(
    msgspec.Struct, frozen=True, rename=lambda name: f"streams.{name.replace('_', '.')}"
):
    """The configs of one streams group in effect: a field has the name of its config."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    num_standby_replicas: int


def streams_group_config(
    configs: ConfigTable, settings: Settings, group_id: str
) -> StreamsGroupConfig:
    """Return the configs of the streams group in effect."""
    names = (each.encode_name for each in msgspec.structs.fields(StreamsGroupConfig))
    values = {name: group_timeout_ms(configs, settings, group_id, name) for name in names}
    return msgspec.convert(values, StreamsGroupConfig)


class Info(msgspec.Struct, frozen=True):
    """A repartition or changelog topic of a topology."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class Subtopology(msgspec.Struct, frozen=True):
    """A subtopology as the group stores it."""

    id: str
    source_topics: list[str]
    sink_topics: list[str]
    repartition_topics: list[Info]
    changelog_topics: list[Info]

    def all_topics(self) -> list[str]:
        """Return the names of its topics, each as often as it has it."""
        infos = (*self.repartition_topics, *self.changelog_topics)
        return [*self.source_topics, *self.sink_topics, *(info.name for info in infos)]


def encode_topology(topology: Any) -> bytes:
    """Encode a request's topology; equal ones are encoded equally."""
    subs = sorted(topology.subtopologies, key=lambda sub: sub.subtopology_id.encode())
    return pack_bytes(
        pack_bytes(
            (
                sub.subtopology_id.encode().hex().encode(),
                pack(sorted(sub.source_topics)),
                pack(sorted(sub.repartition_sink_topics)),
                _encode_infos(sub.repartition_source_topics),
                _encode_infos(sub.state_changelog_topics),
                pack_bytes(sorted(pack(group) for group in _copartition_groups(sub))),
            )
        )
        for sub in subs
    )


def _encode_infos(infos: Iterable[Any]) -> bytes:
    return pack_bytes(
        pack_bytes(
            (
                info.name.encode(),
                b"%d" % info.partitions,
                b"%d" % info.replication_factor,
                encode_pairs((row.key, row.value) for row in info.topic_configs),
            )
        )
        for info in sorted(infos, key=lambda info: info.name)
    )


def _copartition_groups(sub: Any) -> Iterator[list[str]]:
    """Yield the topics of each copartition group. Raises IndexError for an unknown topic."""
    repartition = [info.name for info in sub.repartition_source_topics]
    for group in sub.copartition_groups:
        names = [_at(sub.source_topics, number) for number in group.source_topics]
        names += [_at(repartition, number) for number in group.repartition_source_topics]
        yield sorted(names)


def _at(names: Sequence[str], number: int) -> str:
    if number < 0:
        raise IndexError(number)
    return names[number]


def topic_names(topology: Any) -> set[str]:
    """Return all topics of a request's topology."""
    return {
        name
        for sub in topology.subtopologies
        for name in (
            *sub.source_topics,
            *sub.repartition_sink_topics,
            *(info.name for info in sub.repartition_source_topics),
            *(info.name for info in sub.state_changelog_topics),
        )
    }


def decode_topology(encoded: bytes) -> list[Subtopology]:
    """Decode a topology."""
    found = []
    for row in unpack_bytes(encoded):
        sub, sources, sinks, repartition, changelog, _ = unpack_bytes(row)
        found.append(
            Subtopology(
                decode_id(sub.decode()),
                unpack(sources),
                unpack(sinks),
                _decode_infos(repartition),
                _decode_infos(changelog),
            )
        )
    return found


def _decode_infos(encoded: bytes) -> list[Info]:
    rows = [unpack_bytes(row) for row in unpack_bytes(encoded)]
    return [
        Info(name.decode(), int(partitions), int(replicas), dict(decode_pairs(configs)))
        for name, partitions, replicas, configs in rows
    ]


def encode_pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Encode configs or tags: keys and values in turn, ordered by key."""
    return pack(cell for pair in sorted(pairs) for cell in pair)


def decode_pairs(encoded: bytes) -> list[tuple[str, str]]:
    """Decode configs or tags."""
    cells = unpack(encoded)
    return list(zip(cells[::2], cells[1::2], strict=True))


def decode_missing(flat: Sequence[bytes]) -> list[tuple[str, int, dict[str, str]]]:
    """Return name, partitions and configs of the internal topics that a heartbeat lacks.

    A topic has four cells in the reply of lua/group/streams_heartbeat.lua.
    """
    rows = chunks(flat, 4)
    return [
        (name.decode(), int(count), dict(decode_pairs(found))) for name, count, _, found in rows
    ]


def encode_tasks(tasks: Mapping[str, Sequence[Any] | None]) -> bytes:
    """Encode the tasks of each kind: rows of a request."""
    return encode_assignment(
        (kind + row.subtopology_id.encode().hex(), row.partitions)
        for kind, rows in tasks.items()
        for row in rows or ()
    )


def decode_tasks(encoded: bytes) -> dict[str, dict[str, list[int]]]:
    """Decode tasks: kind, subtopology id, partitions."""
    found: dict[str, dict[str, list[int]]] = {ACTIVE: {}, STANDBY: {}, WARMUP: {}}
    for name, numbers in decode_assignment(encoded).items():
        found[name[0]][decode_id(name[1:])] = numbers
    return found


def input_topics(stored: Iterable[Subtopology]) -> dict[str, list[str]]:
    """Return the topics that each subtopology's tasks read."""
    return {
        sub.id: [*sub.source_topics, *(each.name for each in sub.repartition_topics)]
        for sub in stored
    }


def input_partitions(
    inputs: Mapping[str, Sequence[str]],
    tasks: Mapping[str, Iterable[int]],
    counts: Mapping[str, int],
) -> list[tuple[str, int]]:
    """Return the partitions that tasks read; `counts` has the partitions of each topic."""
    return sorted(
        (topic, number)
        for sub, numbers in tasks.items()
        for topic in inputs.get(sub, ())
        for number in numbers
        if number < counts.get(topic, 0)
    )


def name_tasks(tasks: Mapping[str, Iterable[int]]) -> list[str]:
    """Return the names of tasks as Kafka Streams has them, such as 0_1."""
    return [f"{sub}_{number}" for sub, numbers in sorted(tasks.items()) for number in numbers]


def decode_id(digits: str) -> str:
    """Return the subtopology id of its hex digits."""
    return bytes.fromhex(digits).decode("utf-8", "surrogateescape")


def decode_endpoint(text: str) -> tuple[str, int] | None:
    """Return host and port of a user endpoint; None for none."""
    host, _, port = text.rpartition(":")
    return (host, int(port)) if port else None
