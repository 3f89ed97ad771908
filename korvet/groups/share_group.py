"""Share groups (KIP-932): the configs in effect, and their offsets, to describe, alter and delete.

Rules of offsets
- The group's slot has the topics with state of the group in their partitions; each partition's slot
  has the state itself. Topics are added before the state, and removed after it: so a call that was
  interrupted can be repeated, and no state is left without its group.
- An alteration needs a group without members. A member that joins meanwhile may acquire records
  from the former offset, as in Kafka.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import Any

import msgspec
from msgspec import field

from korvet.base.bounded import gather_bounded
from korvet.base.errors import ErrorCode
from korvet.config.dynamic import ConfigTable, group_resource, group_values, select_valid
from korvet.config.group_settings import GROUP
from korvet.config.setting import reset_duration_ms
from korvet.config.values import Settings
from korvet.groups.coordinator import GroupCoordinator
from korvet.log.position import Position
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import LagReply, ShareDescribeReply
from korvet.store.async_store import AsyncStore
from korvet.topics.node import Node
from korvet.topics.table import Topic, TopicTable


class ShareGroupConfig(
    msgspec.Struct, frozen=True, rename=lambda name: f"share.{name.replace('_', '.')}"
):
    """The configs of one share group in effect: a field has the name of its config, or names it."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: str
    isolation_level: str
    renew_acknowledge_enable: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    order: str
    dead_letter_topic: str = field(name="errors.deadletterqueue.topic.name")
    """Empty: the group has no dead letter queue."""
    copies_dead_letters: bool = field(name="errors.deadletterqueue.copy.record.enable")
    """Whether dead letters have the record's key, value and headers."""

    @property
    def read_committed(self) -> bool:
        """Return whether the group gets no records of open and aborted transactions."""
        return self.isolation_level == "read_committed"

    @property
    def ordered_by_key(self) -> bool:
        """Return whether records of one key are delivered one after another."""
        return self.order == "key"

    @property
    def has_dead_letters(self) -> bool:
        """Return whether the group has a dead letter queue."""
        return bool(self.dead_letter_topic)

    def start_position(self) -> Position:
        """Return where the group starts in a partition."""
        ago_ms = reset_duration_ms(self.auto_offset_reset)
        if ago_ms is None:
            return self.auto_offset_reset
        return datetime.fromtimestamp(max(0.0, time() - ago_ms / 1000), UTC)


def share_group_config(configs: ConfigTable, settings: Settings, group_id: str) -> ShareGroupConfig:
    """Return the configs of the share group in effect. Cheap: an equal result is kept."""
    resource = group_resource(group_id)
    if not configs.raw(resource):
        return _config((), settings)
    return _config(tuple(sorted(configs.explicit(resource).items())), settings)


@lru_cache(maxsize=256)
def _config(explicit: tuple[tuple[str, str], ...], settings: Settings) -> ShareGroupConfig:
    values = group_values(select_valid(dict(explicit), GROUP), settings)
    found = {name: value.parsed for name, value in values.items()}
    return msgspec.convert(found, ShareGroupConfig)


EMPTY = b"Empty"
UNKNOWN = -1


class Delivered(msgspec.Struct, frozen=True):
    """Records that a member has acquired until `deadline_ms`.

    Without a member they are available again, after a delay that ends then, or at once (0).
    """

    first: int
    last: int
    deliveries: int
    deadline_ms: int
    member: str


class SharePartition(msgspec.Struct, frozen=True):
    """The state of a share group in a partition; `start` and `lag` are -1 without one."""

    topic: Topic
    partition: int
    start: int = UNKNOWN
    lag: int = UNKNOWN
    available: int = 0
    acquired: int = 0
    acknowledged: int = 0
    archived: int = 0
    dead_letters: int = 0
    """Dead letters that are not copied yet."""
    log_end: int = UNKNOWN
    runs: tuple[Delivered, ...] = ()


@dataclass(eq=False, repr=False)
class ShareOffsets:
    """The offsets of the share groups of one namespace."""

    node: Node
    groups: GroupCoordinator

    async def topics_of(self, group_id: str) -> tuple[ErrorCode, bool, list[Topic]]:
        """Return an error, whether the group is empty, and its topics that exist."""
        reply = await self.groups.run(
            group_id, lambda _: self.node.keys.group(group_id).list_share_topics()
        )
        found = await find_topics(self.node.topics, reply.topics)
        return ErrorCode(reply.error), reply.state == EMPTY, found

    async def describe(
        self, group_id: str, wanted: Iterable[tuple[Topic, int]], *, runs: int = 0
    ) -> list[SharePartition]:
        """Return the group's state in partitions, with at most `runs` delivered runs of each."""
        return await describe_partitions(self.node.store, group_id, list(wanted), runs=runs)

    async def describe_all(self, group_id: str, *, runs: int = 0) -> list[SharePartition]:
        """Return the group's state in all partitions of its topics."""
        _, _, topics = await self.topics_of(group_id)
        return await self.describe(group_id, list_partitions(topics), runs=runs)

    async def alter(
        self, group_id: str, offsets: Sequence[tuple[Topic, int, int]]
    ) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
        """Move an empty group to offsets of partitions, and create it if it is missing.

        Return its error, or those of partitions. Offset -1 deletes the state of the partition.
        """
        rows = list({(topic.name, topic.id) for topic, _, _ in offsets})
        error = await self._alter_topics(group_id, rows, creates=True)
        if error:
            return error, {}
        replies = await self.node.store.run_many(
            self._move(group_id, *partition) for partition in offsets
        )
        errors = {
            (topic.name, number): ErrorCode(reply.error)
            for (topic, number, _), reply in zip(offsets, replies, strict=True)
        }
        return ErrorCode.NONE, errors

    def _move(self, group_id: str, topic: Topic, number: int, offset: int) -> Call[Any]:
        partition = topic.partition(number)
        if offset < 0:
            return partition.share_delete(group=group_id)
        return partition.share_reset(group=group_id, offset=offset)

    async def delete(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[ErrorCode, dict[str, Topic]]:
        """Delete the state of an empty group in topics. Return an error, or the deleted topics."""
        error, is_empty, topics = await self.topics_of(group_id)
        if error or not is_empty:
            return error or ErrorCode.NON_EMPTY_GROUP, {}
        found = {topic.name: topic for topic in topics if topic.name in set(names)}
        await self._delete_states(group_id, list(found.values()))
        rows = [(name, "") for name in found]
        return await self._alter_topics(group_id, rows, creates=False), found

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group of any type, with its offsets. Return an error if it has members."""
        error, is_empty, topics = await self.topics_of(group_id)
        if not error and not is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        await self._delete_states(group_id, topics)
        return await self.groups.delete(group_id)

    async def _delete_states(self, group_id: str, topics: Sequence[Topic]) -> None:
        async def one(topic: Topic) -> None:
            await self.node.store.run_many(
                topic.partition(number).share_delete(group=group_id)
                for number in range(topic.partitions)
            )

        await gather_bounded(one, topics)

    async def _alter_topics(
        self, group_id: str, rows: Sequence[tuple[str, str]], *, creates: bool
    ) -> ErrorCode:
        reply = await self.groups.run(
            group_id,
            lambda is_registered: self.node.keys.group(group_id).share_alter_topics(
                rows, creates=int(creates), is_registered=is_registered
            ),
            creates=creates,
        )
        return ErrorCode(reply.error)


async def find_topics(topics: TopicTable, flat: Sequence[bytes]) -> list[Topic]:
    """Return the topics that exist of a share group's, by name: names and ids, flat."""
    found = []
    for name, topic_id in sorted(zip(flat[::2], flat[1::2], strict=True)):
        topic = await topics.get(name.decode())
        if topic is not None and topic.id == topic_id.decode():
            found.append(topic)
    return found


async def share_places(node: Node, group_id: str) -> list[tuple[Topic, int]]:
    """Return all partitions of the topics of a share group."""
    flat = await node.store.command("HGETALL", node.keys.group(group_id).share_topics)
    return list_partitions(await find_topics(node.topics, flat))


def list_partitions(topics: Iterable[Topic]) -> list[tuple[Topic, int]]:
    """Return all partitions of the topics."""
    return [(topic, number) for topic in topics for number in range(topic.partitions)]


async def describe_partitions(
    store: AsyncStore,
    group_id: str,
    places: Sequence[tuple[Topic, int]],
    *,
    runs: int = 0,
) -> list[SharePartition]:
    """Return a share group's state in partitions, with at most `runs` delivered runs of each."""
    states = await store.run_many(
        topic.partition(number).share_describe(group=group_id, most=runs)
        for topic, number in places
    )
    lags = await store.run_many(
        topic.partition(number).lag(offset=max(state.end, 0))
        for (topic, number), state in zip(places, states, strict=True)
    )
    return [
        _partition(topic, number, state, lag)
        for (topic, number), state, lag in zip(places, states, lags, strict=True)
    ]


def _partition(
    topic: Topic, number: int, state: ShareDescribeReply, lag: LagReply
) -> SharePartition:
    if state.error or state.start < 0:
        return SharePartition(topic, number)
    return SharePartition(
        topic,
        number,
        state.start,
        UNKNOWN if lag.error else lag.records + state.available + state.acquired,
        state.available,
        state.acquired,
        state.acknowledged,
        state.archived,
        state.dead_letters,
        UNKNOWN if lag.error else lag.next,
        tuple(delivered_runs(state)),
    )


def delivered_runs(state: ShareDescribeReply) -> Iterator[Delivered]:
    """Yield the delivered runs of a share group in a partition."""
    cells = iter(state.runs)
    for first, last, deliveries, deadline_ms, member in zip(*[cells] * 5, strict=True):
        yield Delivered(int(first), int(last), int(deliveries), int(deadline_ms), member.decode())
