"""Calls on topics."""

from collections.abc import Mapping

from korvet.base.errors import ErrorCode
from korvet.library.session import Session, check, check_partition, refusals
from korvet.library.values import KorvetError, PartitionOffsets, TopicInfo
from korvet.topics.lifecycle import (
    add_partitions,
    create_topic,
    delete_topic,
    plan_topic,
    refuse_colliding,
)
from korvet.topics.table import Topic


class TopicCalls(Session):
    """Create, list, grow and delete topics."""

    async def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic; without `partitions` it has as many as num.partitions says."""
        await self.refresh()
        count = self.settings.integer("num.partitions") if partitions is None else partitions
        with refusals():
            definition = plan_topic(name, count, configs or {}, self.topic_configs)
            if await self.topic_table.get(name) is None:
                refuse_colliding(self.topic_table.find_colliding(name), name)
            error = await create_topic(self.store, self.keys, name, definition)
        check(error, f"Topic {name!r} exists already.")
        self.topic_table.invalidate()
        return await self.topic(name)

    async def topics(self) -> list[TopicInfo]:
        """List the topics by name."""
        await self.refresh()
        return [_info(topic) for topic in await self.topic_table.all()]

    async def topic(self, name: str) -> TopicInfo:
        """Return one topic."""
        return _info(await self.find_topic(name))

    async def add_partitions(self, name: str, partitions: int) -> None:
        """Raise a topic's number of partitions to `partitions`."""
        topic = await self.find_topic(name)
        if partitions <= topic.partitions:
            raise KorvetError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {topic.partitions} partitions: give a higher number.",
            )
        with refusals():
            done = await add_partitions(self.store, self.keys, topic, partitions)
        self.topic_table.invalidate()
        if not done:
            raise KorvetError(
                ErrorCode.REQUEST_TIMED_OUT, f"Topic {name!r} changed meanwhile: try again."
            )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, Redis groups and committed offsets."""
        topic = await self.find_topic(name)
        with refusals():
            error = await delete_topic(self.store, self.keys, topic)
        self.topic_table.invalidate()
        check(error, f"There is no topic {name!r}.")

    async def delete_records(self, name: str, partition: int, before: int) -> int:
        """Delete a partition's records below an offset; return where the partition now starts."""
        topic = await self.find_topic(name)
        check_partition(topic, partition)
        if not topic.policy.delete:
            raise KorvetError(
                ErrorCode.POLICY_VIOLATION,
                f"Topic {name!r} is compacted only: its cleanup.policy lacks delete.",
            )
        again = before
        while again >= 0:  # a long range is deleted by several calls
            reply = await self.store.run(topic.partition(partition).delete_records(before=again))
            check(reply.error, f"Partition {partition} of {name!r} cannot be trimmed to {before}")
            again = reply.again
        return reply.start

    async def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Return where each partition starts and ends."""
        found = await self.find_topic(topic)
        replies = await self.store.run_many(
            [found.partition(number).list_offsets() for number in range(found.partitions)]
        )
        return [
            PartitionOffsets(
                partition=number,
                earliest=reply.first if self.reader.remote else reply.local_first,
                latest=reply.next,
                last_stable=reply.next if reply.stable < 0 else reply.stable,
                records=reply.records,
                bytes=reply.bytes,
                newest_timestamp_ms=reply.newest,
            )
            for number, reply in enumerate(replies)
        ]


def _info(topic: Topic) -> TopicInfo:
    policy = topic.policy
    return TopicInfo(
        topic.name,
        topic.id,
        topic.partitions,
        policy.storage_format,
        policy.offset_mode,
        topic.configs,
    )
