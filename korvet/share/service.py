"""The service of share groups: the parts of ShareFetch and ShareAcknowledge in one broker.

Rules of acknowledgements
- Those of one partition are done together or not at all.
- A request names a type for a range or for each of its offsets; adjacent offsets of one type become
  one range for the script.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, pairwise

from korvet.admin.auto_create import TopicAutoCreator
from korvet.base.bounded import gather_bounded
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.config.dynamic import ConfigTable
from korvet.fetch.partition_reader import ResponseMemory
from korvet.groups.share_group import ShareGroupConfig, share_group_config
from korvet.log.reader import LogReader
from korvet.produce.service import ProduceService
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import ShareAcknowledgeReply
from korvet.scripts.keys import Partition
from korvet.share.acquirer import Acquirer
from korvet.share.dead_letters import DeadLetters
from korvet.share.sessions import SharePartitionId, ShareSession, ShareSessions, Targets
from korvet.store.async_store import AsyncStore
from korvet.store.calls import AsyncCalls
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic, TopicTable
from korvet.wire.messages.share_acknowledge import AcknowledgementBatch, AcknowledgeTopic


class Acknowledge(IntEnum):
    """The types of an acknowledgement."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


AT_ONCE = 1000
"""Max ranges of one call. All records of a call are acknowledged, or none."""
TypedRange = tuple[int, int, int]
"""First offset, last offset and type."""


def typed_ranges(
    batches: Iterable[AcknowledgementBatch], *, renews: bool
) -> list[TypedRange] | None:
    """Return the ranges, ascending; None if an acknowledgement is invalid, or begins below the last
    offset of the one before.

    `renews`: type 4, renew, is allowed.
    """
    highest = Acknowledge.RENEW if renews else Acknowledge.REJECT
    found: list[TypedRange] = []
    before = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not before <= first <= last or len(types) not in (1, last - first + 1):
            return None
        before = last
        if not all(0 <= type <= highest for type in types):
            return None
        if len(types) == 1:
            found.append((first, last, types[0]))
            continue
        for type, offsets in groupby(types):
            count = sum(1 for _ in offsets)
            found.append((first, first + count - 1, type))
            first += count
    return found


def _left(ranges: Sequence[TypedRange], at: int) -> list[TypedRange]:
    """Return what a call of AT_ONCE ranges has left: from the offset on, if it is not -1."""
    if at < 0:
        return list(ranges[AT_ONCE:])
    return [(max(first, at), last, type) for first, last, type in ranges if last >= at]


def acknowledgement(
    partition: Partition,
    ranges: Iterable[TypedRange],
    group: str,
    member: str,
    config: ShareGroupConfig,
    *,
    fenced: bool = False,
) -> Call[ShareAcknowledgeReply]:
    """Return the call that acknowledges ranges of records, by the configs of the group."""
    return partition.share_acknowledge(
        ranges,
        group=group,
        member=member,
        lock_ms=config.record_lock_duration_ms,
        delivery_limit=config.delivery_count_limit,
        backoff_ms=config.retry_backoff_ms,
        max_backoff_ms=config.retry_backoff_max_ms,
        dead_letters=int(config.has_dead_letters),
        fenced=int(fenced),
    )


async def release_all(
    store: AsyncCalls, partition: Partition, group: str, member: str, config: ShareGroupConfig
) -> None:
    """Release all records of the partition that the member has acquired. Raises StoreError."""
    first = 0
    while first >= 0:
        call = partition.share_release(
            group=group,
            member=member,
            delivery_limit=config.delivery_count_limit,
            dead_letters=int(config.has_dead_letters),
            first=first,
        )
        first = (await store.run(call)).next


@dataclass(eq=False, repr=False)
class Acknowledger:
    """Acknowledges and releases records of the partitions of one store."""

    store: AsyncStore
    topics: TopicTable
    acquirer: Acquirer
    dead_letters: DeadLetters

    async def acknowledge_each(
        self,
        session: ShareSession,
        config: ShareGroupConfig,
        targets: Targets,
        topics: Iterable[AcknowledgeTopic],
        *,
        renews: bool,
    ) -> list[tuple[SharePartitionId, ErrorCode]]:
        """Acknowledge records of a request; return an error for each partition with any."""
        asked = [
            ((row.topic_id, one.partition_index), one.acknowledgement_batches)
            for row in topics
            for one in row.partitions
            if one.acknowledgement_batches
        ]

        async def one(item: tuple[SharePartitionId, Sequence[AcknowledgementBatch]]) -> ErrorCode:
            where, batches = item
            topic = await targets.find(*where)
            if not isinstance(topic, Topic):
                return topic
            return await self.acknowledge(
                session.group, session.member, config, topic, where[1], batches, renews=renews
            )

        errors = await gather_bounded(one, asked)
        return [(where, error) for (where, _), error in zip(asked, errors, strict=True)]

    async def acknowledge(
        self,
        group: str,
        member: str,
        config: ShareGroupConfig,
        topic: Topic,
        partition: int,
        batches: Iterable[AcknowledgementBatch],
        *,
        renews: bool,
    ) -> ErrorCode:
        """Acknowledge records of one partition; return the error."""
        ranges = typed_ranges(batches, renews=renews and config.renew_acknowledge_enable)
        if ranges is None:
            return ErrorCode.INVALID_REQUEST
        if not ranges:
            return ErrorCode.NONE
        if any(one[1] >= following[0] for one, following in pairwise(ranges)):
            return ErrorCode.INVALID_RECORD_STATE
        if any(type == Acknowledge.RELEASE for _, _, type in ranges):
            self.acquirer.forget_position(group, topic, partition)
        while ranges:
            call = acknowledgement(
                topic.partition(partition), ranges[:AT_ONCE], group, member, config
            )
            try:
                reply = await self.store.run(call)
            except StoreError:
                return ErrorCode.KAFKA_STORAGE_ERROR
            self.dead_letters.notice(group, config, topic, partition, reply.dead_letters)
            error = ErrorCode(reply.error)
            if error:
                if error in TOPIC_GONE:
                    self.topics.invalidate()
                return error
            ranges = _left(ranges, reply.next)
        return ErrorCode.NONE

    async def release(self, session: ShareSession, config: ShareGroupConfig) -> None:
        """Release all records that the session's member has acquired. Raises StoreError."""

        async def release_one(where: SharePartitionId) -> None:
            topic = await self.topics.get_id(where[0])
            if topic is None:
                return
            partition = topic.partition(where[1])
            await release_all(self.store, partition, session.group, session.member, config)
            self.acquirer.forget_position(session.group, topic, where[1])

        await gather_bounded(release_one, sorted(session.seen))


@dataclass(eq=False, repr=False)
class ShareService:
    """Acquires and acknowledges records for members of share groups, in sessions."""

    node: Node
    configs: ConfigTable
    log_reader: LogReader
    produce: ProduceService
    auto_creator: TopicAutoCreator
    memory: ResponseMemory

    def __post_init__(self) -> None:
        letters = DeadLetters(
            self.node, self.log_reader, self.produce.append, self.auto_creator.create
        )
        self.dead_letters = letters
        self.acquirer = Acquirer(self.node, self.log_reader, letters, self.memory)
        self.acknowledger = Acknowledger(self.node.store, self.node.topics, self.acquirer, letters)
        self.sessions = ShareSessions(
            lambda: self.node.settings().integer("group.share.max.share.sessions"), self._release
        )

    def config(self, group_id: str) -> ShareGroupConfig:
        """Return the configs of a share group in effect."""
        return share_group_config(self.configs, self.node.settings(), group_id)

    async def finish(self) -> None:
        """Release the records of ended sessions, and copy the dead letters in progress."""
        await self.sessions.finish()
        await self.dead_letters.finish()

    async def _release(self, session: ShareSession) -> None:
        await self.acknowledger.release(session, self.config(session.group))
