"""Members of share groups, by requests that a connected broker serves, and by scripts."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from korvet.groups.modern import encode_subscription, pack
from korvet.scripts.keys import Keys, Partition
from korvet.security.session import Session
from korvet.store.sync_store import SyncStore
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from korvet.wire.messages.share_acknowledge import AcknowledgementBatch as SettledBatch
from korvet.wire.messages.share_fetch import ForgottenTopic, ShareFetchRequest
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows, rows_in

Runs = list[tuple[int, int, int]]


async def configure(broker: Broker, group: str = "g", **configs: str) -> None:
    """Set these configs of the group; underscores replace dots."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    ]
    row = AlterConfigsResource(resource_type=32, resource_name=group, configs=changes)
    answer = await broker.ask(IncrementalAlterConfigsRequest(resources=[row], validate_only=False))
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
    await broker.services.dynamic_config.refresh()


async def fill(broker: Broker, *counts: int, number: int = 0) -> None:
    """Append one batch for each count, with that number of records."""
    for count in counts:
        batch = packed(rows(*(b"%d" % n for n in range(count))), 13)
        assert (await produce(broker, batch, number=number)).error_code == 0


def runs_of(row: Any) -> Runs:
    """Return the acquired runs of a row: first, last, deliveries."""
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records]


@dataclass
class Member:
    """A member with its connection and the epoch of its session."""

    broker: Broker
    name: str = "m"
    group: str = "g"
    topic: str = "t"
    epoch: int = 0
    session: Session = field(default_factory=lambda: Session("127.0.0.1"))

    async def topic_id(self) -> UUID:
        topic = await self.broker.services.topics.get(self.topic)
        assert topic is not None
        return topic.uuid

    async def fetch(
        self,
        *partitions: int,
        acks: dict[int, list[tuple[int, int, list[int]]]] | None = None,
        forget: tuple[int, ...] = (),
        topic_id: UUID | None = None,
        version: int = 2,
        **limits: Any,
    ) -> Any:
        """Send a ShareFetch that adds the partitions and acknowledges; return the response."""
        known = topic_id or await self.topic_id()
        acks = acks or {}
        named = [
            AcknowledgePartition(
                partition_index=number,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
                    for a, b, types in acks.get(number, ())
                ],
            )
            for number in dict.fromkeys((*partitions, *acks))
        ]
        words: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "share_session_epoch": self.epoch,
        }
        gone = [ForgottenTopic(topic_id=known, partitions=list(forget))] if forget else []
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            topics=[AcknowledgeTopic(topic_id=known, partitions=named)] if named else [],
            forgotten_topics_data=gone,
            **{**words, **limits},
        )
        answer = await self.broker.ask(request, version, session=self.session)
        self.epoch += answer.error_code == 0
        return answer

    async def poll(self, *partitions: int, **words: Any) -> Runs:
        """Fetch; return the acquired runs of partition 0, or of the response's only partition."""
        row = await self.row(*partitions, **words)
        return runs_of(row) if row else []

    async def row(self, *partitions: int, **words: Any) -> Any:
        """Fetch; return the only row of the response with records or an error, None without one."""
        answer = await self.fetch(*partitions, **words)
        assert answer.error_code == 0
        found = [
            row
            for topic in answer.responses
            for row in topic.partitions
            if row.acquired_records or row.error_code or row.acknowledge_error_code
        ]
        assert len(found) <= 1
        return found[0] if found else None

    async def acknowledge(
        self, *ranges: tuple[int, int, int], number: int = 0, **words: Any
    ) -> tuple[int, int]:
        """Send a ShareAcknowledge of one type a range; return its error and the partition's."""
        batches = [(first, last, [type]) for first, last, type in ranges]
        return await self.acknowledge_batches(*batches, number=number, **words)

    async def acknowledge_batches(
        self, *batches: tuple[int, int, list[int]], number: int = 0, **words: Any
    ) -> tuple[int, int]:
        """Send a ShareAcknowledge; return its error and the partition's."""
        row = AcknowledgePartition(
            partition_index=number,
            acknowledgement_batches=[
                SettledBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in batches
            ],
        )
        topic_id = words.pop("topic_id", None) or await self.topic_id()
        words = {"share_session_epoch": self.epoch, **words}
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[row])],
            **words,
        )
        answer = await self.broker.ask(request, session=self.session)
        self.epoch += answer.error_code == 0
        found = [row for topic in answer.responses for row in topic.partitions]
        return answer.error_code, found[0].error_code if found else 0

    def hang_up(self) -> None:
        """Close the connection."""
        for call in self.session.on_close:
            call()


def values_of(row: Any) -> dict[int, bytes]:
    """Return the records of a row that the member has acquired, by offset."""
    acquired = {at for first, last, _ in runs_of(row) for at in range(first, last + 1)}
    return {record[0]: record[3] or b"" for record in rows_in(row.records) if record[0] in acquired}


def join_share_group(
    store: SyncStore,
    keys: Keys,
    group: str,
    topic: tuple[str, str],
    partitions: int,
    epoch: int = 0,
) -> None:
    """Let m1 join the share group as a reader of a topic, its name and id; epoch -1: leave."""
    name, topic_id = topic
    call = keys.group(group).share_heartbeat(
        [("t", name, f"{topic_id}:{partitions}")],
        member="m1",
        epoch=epoch,
        rack="",
        client_id="app",
        client_host="/10.0.0.1",
        session_ms=45_000,
        interval_ms=0,
        max_size=10,
        max_bytes=1_000_000,
        max_topics=100,
        is_registered=1,
        has_names=1,
        names=pack([name]),
        topics_version=b"1",
        resolved=encode_subscription([name.encode()]),
    )
    assert store.run(call).error == 0
    store.run(keys.group_register(group=group))


def deliver(
    store: SyncStore, place: Partition, first: int, last: int, lock_ms: int = 30_000
) -> None:
    """Let m1 of the share group `jobs` acquire records."""
    taken = place.share_acquire(
        [(first, last)],
        group="jobs",
        member="m1",
        start=0,
        read_from=first,
        read_to=last,
        most=last - first + 1,
        exact=1,
        lock_ms=lock_ms,
        delivery_limit=5,
        max_locks=100,
    )
    assert store.run(taken).runs[:2] == [first, last]
