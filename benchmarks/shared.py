"""Measure share groups: records acquired and accepted by consumers of one partition.

Each consumer has one request in flight: a ShareFetch of at most `most` records that accepts those
of the last response, as clients do.
"""

import asyncio
import struct
import time
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID, uuid4

from korvet.testing.bench import frames
from korvet.testing.bench.connection import Connection
from korvet.testing.bench.load import Pump, Tally, Target, connections, drain, measured, topic
from korvet.testing.bench.payloads import batch
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from korvet.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from korvet.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from korvet.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from korvet.wire.schema import Message, decode, encode

R = TypeVar("R", bound=Message)
GROUP_RESOURCE = 32
BATCH_RECORDS = 500
ACCEPT = [1]
PAUSE_S = 0.1


def encoded(message: Message, version: int) -> bytes:
    """Return the frame of a request with a flexible header."""
    body = encode(message, version)
    header = struct.pack(">hhi", message.__message__.key, version, 1) + frames.text("korvet-bench")
    return struct.pack(">i", len(header) + 1 + len(body)) + header + b"\0" + body


async def ask(connection: Connection, request: Message, version: int, response: type[R]) -> R:
    """Return the response to a request with flexible headers."""
    reply = await connection.ask(encoded(request, version))
    return decode(response, reply, version, 5)


@dataclass(frozen=True, slots=True)
class Shared:
    """`consumers` members of one share group read `records` of `size` bytes of one partition."""

    consumers: int
    records: int = 300_000
    size: int = 100
    most: int = 500

    async def run(self, target: Target) -> dict[str, float]:
        """Return the rates, from the first fetch until all records are accepted."""
        async with (
            topic(target, "bench-shared", 1) as name,
            connections(target, self.consumers + 1) as opened,
        ):
            control, members = opened[0], opened[1:]
            group = f"{name}-group"
            await self._configure(control, group)
            await self._fill(control, name)
            known = await ask(
                control,
                MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=0), name=name)]),
                12,
                MetadataResponse,
            )
            topic_id = known.topics[0].topic_id
            run = _Run(self, group, topic_id)
            consumers = [_Consumer(run, connection) for connection in members]
            for consumer in consumers:
                await consumer.join(name)
            tally = Tally()
            async with measured(target, tally):
                await asyncio.gather(*(consumer.consume() for consumer in consumers))
            tally.requests = sum(consumer.requests for consumer in consumers)
            tally.records, tally.payload = run.accepted, run.accepted * self.size
            return tally.row()

    async def _configure(self, control: Connection, group: str) -> None:
        config = AlterableConfig(
            name="share.auto.offset.reset", config_operation=0, value="earliest"
        )
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await ask(control, request, 1, IncrementalAlterConfigsResponse)
        if answer.responses[0].error_code:
            raise frames.Refused(f"config of group {group}: {answer.responses[0].error_message}")

    async def _fill(self, control: Connection, name: str) -> None:
        one = frames.produce(name, {0: batch(BATCH_RECORDS, self.size)})
        requests = iter([one] * (self.records // BATCH_RECORDS))
        await drain([Pump(control, lambda: next(requests, None), lambda reply: None)])


@dataclass(slots=True)
class _Run:
    plan: Shared
    group: str
    topic_id: UUID
    accepted: int = 0

    @property
    def is_done(self) -> bool:
        return self.accepted >= self.plan.records


@dataclass(slots=True)
class _Consumer:
    run: _Run
    connection: Connection
    member: str = field(default_factory=lambda: str(uuid4()))
    requests: int = 0
    epoch: int = 0

    async def join(self, name: str) -> None:
        """Join the group, and wait until the partition is assigned."""
        epoch, names = 0, [name]
        for _ in range(200):
            request = ShareGroupHeartbeatRequest(
                group_id=self.run.group,
                member_id=self.member,
                member_epoch=epoch,
                subscribed_topic_names=names,
            )
            answer = await ask(self.connection, request, 1, ShareGroupHeartbeatResponse)
            if answer.error_code:
                raise frames.Refused(f"ShareGroupHeartbeat: {answer.error_message}")
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            epoch = answer.member_epoch
            await asyncio.sleep(PAUSE_S)
        raise frames.Refused("ShareGroupHeartbeat: no partition is assigned")

    async def consume(self) -> None:
        """Fetch and accept until the group has accepted all records."""
        acquired: list[tuple[int, int]] = []
        deadline = time.perf_counter() + 120
        while not self.run.is_done or acquired:
            answer = await ask(self.connection, self._request(acquired), 2, ShareFetchResponse)
            self.requests += 1
            self.run.accepted += sum(last - first + 1 for first, last in acquired)
            acquired = []
            if answer.error_code or time.perf_counter() > deadline:
                raise frames.Refused(f"ShareFetch: error code {answer.error_code}")
            for row in answer.responses:
                for partition in row.partitions:
                    if partition.error_code or partition.acknowledge_error_code:
                        raise frames.Refused(f"ShareFetch: {partition.error_message}")
                    acquired += [
                        (run.first_offset, run.last_offset) for run in partition.acquired_records
                    ]

    def _request(self, acquired: list[tuple[int, int]]) -> Message:
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=ACCEPT)
            for first, last in acquired
        ]
        row = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topics = [AcknowledgeTopic(topic_id=self.run.topic_id, partitions=[row])]
        most = self.run.plan.most
        request = ShareFetchRequest(
            group_id=self.run.group,
            member_id=self.member,
            share_session_epoch=self.epoch,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=most,
            batch_size=most,
            topics=topics if acquired or self.epoch == 0 else [],
        )
        self.epoch += 1
        return request
