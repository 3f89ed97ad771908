"""ShareFetch and ShareAcknowledge: sessions, acquired records, acknowledgements, renewal.

Each case has a separate topic with two partitions, and ten records in one batch of the first.
Offsets are relative to the first record, because brokers may have different ones. Negative offsets
are sent unchanged.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from korvet.wire.messages.share_acknowledge import AcknowledgementBatch as PiggybackedBatch
from korvet.wire.messages.share_fetch import ForgottenTopic, ShareFetchRequest
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conformance.asking import Ask, case
from tests.support.raw_client import batch

CREATE, PRODUCE, ALTER, BEAT, FETCH = 7, 9, 1, 1, 2
"""API versions of the requests that prepare a case."""
RECORDS = 10
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOWHERE = UUID(int=7)
Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First offset, last offset and acknowledgement types."""


class Queue:
    """A topic with records and the share group of a case."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.topic = ask.group.replace(".", "-")
        self.group = ask.group
        self.id = UUID(int=0)
        self.base = 0

    async def fill(self, partition: int = 0, count: int = RECORDS) -> int:
        """Append a batch and return its first offset."""
        data = batch([b"%d" % n for n in range(count)])
        rows = [PartitionProduceData(index=partition, records=data)]
        topic = TopicProduceData(name=self.topic, partition_data=rows)
        asked = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        for _ in range(100):
            row = (await self.ask(asked, PRODUCE)).responses[0].partition_responses[0]
            if not row.error_code:
                return int(row.base_offset)
            await asyncio.sleep(0.1)
        raise TimeoutError("the topic accepts no records")

    async def member(self, name: str = "m") -> "Sharer":
        """Join the group and wait for the assignment. Returns the member."""
        asked = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=name * 22,
            member_epoch=0,
            subscribed_topic_names=[self.topic],
        )
        for _ in range(100):
            answer = await self.ask(asked, BEAT)
            assert answer.error_code == 0, answer
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return Sharer(self, name * 22)
            await asyncio.sleep(0.1)
            asked = ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=name * 22,
                member_epoch=answer.member_epoch,
                subscribed_topic_names=[self.topic],
            )
        raise TimeoutError("the group does not assign")


async def queue(ask: Ask) -> Queue:
    """Create the topic and the group of a case. The group starts at the first record."""
    made = Queue(ask)
    topic = CreatableTopic(
        name=made.topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    await ask(CreateTopicsRequest(topics=[topic]), CREATE)
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=32, resource_name=made.group, configs=[config])
    asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await ask(asked, ALTER)
    assert answer.responses[0].error_code == 0, answer
    made.base = await made.fill()
    made.id = await ask.topic_id(made.topic)
    return made


class Sharer:
    """A member of the share group, and the epoch of its next request."""

    def __init__(self, queue: Queue, member: str) -> None:
        self.queue = queue
        self.member = member
        self.epoch = 0

    async def fetch(self, *partitions: int, acks: Acks = (), **words: Any) -> Any:
        """Send a ShareFetch and return the compared parts; `acks` are of partition 0."""
        base = self.queue.base
        batches = [
            PiggybackedBatch(
                first_offset=a + base * (a >= 0), last_offset=base + b, acknowledge_types=[*types]
            )
            for a, b, types in acks
        ]
        numbers = list(dict.fromkeys((*partitions, *([0] if acks else ()))))
        rows = [
            AcknowledgePartition(
                partition_index=number, acknowledgement_batches=[] if number else batches
            )
            for number in numbers
        ]
        topic_id = words.pop("topic_id", self.queue.id)
        version = words.pop("version", self.queue.ask.version)
        gone = words.pop("forget", ())
        fields: dict[str, Any] = {
            "group_id": self.queue.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 300,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [AcknowledgeTopic(topic_id=topic_id, partitions=rows)] if rows else [],
            "forgotten_topics_data": [ForgottenTopic(topic_id=topic_id, partitions=[*gone])]
            if gone
            else [],
        }
        answer = await self.queue.ask(ShareFetchRequest(**{**fields, **words}), version)
        self.epoch += answer.error_code == 0
        return [
            answer.error_code,
            answer.acquisition_lock_timeout_ms,
            sorted(
                [
                    row.partition_index,
                    row.error_code,
                    row.acknowledge_error_code,
                    [
                        (run.first_offset - base, run.last_offset - base, run.delivery_count)
                        for run in row.acquired_records
                    ],
                    len(row.records or b"") > 0,
                ]
                for topic in answer.responses
                for row in topic.partitions
            ),
        ]

    async def begin(self) -> Any:
        """Open the session and fetch partition 0. Kafka must read its state first."""
        for _ in range(100):
            self.epoch = 0
            answer = await self.fetch(0, version=FETCH, max_wait_ms=1000)
            if answer[0] == 0 and any(row[3] for row in answer[2]):
                return answer
            await asyncio.sleep(0.1)
        raise TimeoutError(f"no records: {answer}")

    async def settle(self, *acks: tuple[int, int, Sequence[int]], **words: Any) -> Any:
        """Send a ShareAcknowledge of partition 0 and return the compared parts."""
        base = self.queue.base
        batches = [
            AcknowledgementBatch(
                first_offset=a + base * (a >= 0), last_offset=base + b, acknowledge_types=[*types]
            )
            for a, b, types in acks
        ]
        row = AcknowledgePartition(
            partition_index=words.pop("partition", 0), acknowledgement_batches=batches
        )
        topics = [AcknowledgeTopic(topic_id=words.pop("topic_id", self.queue.id), partitions=[row])]
        version = words.pop("version", self.queue.ask.version)
        fields: dict[str, Any] = {
            "group_id": self.queue.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "topics": topics,
        }
        answer = await self.queue.ask(ShareAcknowledgeRequest(**{**fields, **words}), version)
        self.epoch += answer.error_code == 0
        return [
            answer.error_code,
            answer.acquisition_lock_timeout_ms,
            [
                [row.partition_index, row.error_code]
                for topic in answer.responses
                for row in topic.partitions
            ],
        ]


@case("ShareFetch", one_connection=True)
async def a_session_from_its_first_fetch_to_its_last(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    return [
        await one.begin(),
        await one.fetch(),
        await one.fetch(1),
        await one.fetch(acks=[(0, 9, [ACCEPT])], share_session_epoch=-1),
        await one.fetch(),
        await one.fetch(share_session_epoch=-1),
    ]


@case("ShareFetch", one_connection=True)
async def sessions_of_the_wrong_epoch(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    before = [await one.fetch(0, share_session_epoch=epoch) for epoch in (1, -1, -2)]
    await one.begin()
    return [
        before,
        *[
            await one.fetch(0, share_session_epoch=one.epoch + by, max_wait_ms=0)
            for by in (-1, 1, 5)
            if one.epoch + by > 0
        ],
        await one.fetch(0, share_session_epoch=-2, max_wait_ms=0),
        await one.fetch(member_id="other", share_session_epoch=1),
        await one.fetch(max_wait_ms=0),
    ]


@case("ShareFetch", one_connection=True)
async def a_session_opened_again(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    first = await one.begin()
    one.epoch = 0
    again = await one.fetch(0)
    return [first, again, await one.fetch(acks=[(0, 9, [ACCEPT])])]


@case("ShareFetch", one_connection=True)
async def share_fetches_without_names(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    return [
        await one.fetch(0, **words)
        for words in ({"group_id": None}, {"member_id": None}, {"member_id": ""})
    ]


@case("ShareFetch", one_connection=True)
async def acknowledgements_that_open_a_session(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    return [
        await one.fetch(acks=[(0, 0, [ACCEPT])]),
        await one.settle((0, 0, [ACCEPT])),
        await one.fetch(share_session_epoch=0, forget=(0,)),
    ]


@case("ShareFetch", one_connection=True)
async def a_partition_forgotten_and_added_again(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    forgotten = await one.fetch(forget=(0,))
    await one.queue.fill()
    return [
        forgotten,
        await one.fetch(),
        # Its records are acquired as before.
        await one.fetch(acks=[(0, 9, [ACCEPT])], forget=(0,)),
        await one.fetch(forget=(0, 1)),
    ]


@case("ShareFetch", one_connection=True)
async def share_partitions_that_are_not_there(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.fetch(99),
        await one.fetch(forget=(99,)),
        await one.settle((0, 0, [ACCEPT]), partition=99, version=FETCH),
        await one.settle((0, 0, [ACCEPT]), topic_id=NOWHERE, version=FETCH),
    ]


@case("ShareFetch", one_connection=True)
async def a_share_topic_of_an_unknown_id(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.fetch(0, topic_id=NOWHERE),
        await one.fetch(acks=[(0, 0, [ACCEPT])], topic_id=NOWHERE),
    ]


@case("ShareFetch", one_connection=True)
async def acknowledgements_inside_share_fetches(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.fetch(acks=[(0, 1, [ACCEPT]), (2, 3, [RELEASE]), (4, 4, [REJECT])]),
        await one.fetch(acks=[(5, 9, [GAP, ACCEPT, RELEASE, REJECT, ACCEPT])]),
        await one.fetch(acks=[(2, 3, [ACCEPT]), (7, 7, [ACCEPT])]),
        await one.fetch(),
        await one.fetch(share_session_epoch=-1),
    ]


INVALID: tuple[Acks, ...] = (
    [(0, 0, [5])],
    [(0, 0, [-1])],
    [(0, 2, [ACCEPT, ACCEPT])],
    [(0, 0, [])],
    [(3, 1, [ACCEPT])],
    [(-5, 1, [ACCEPT])],
    [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
    [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
    [(0, 0, [RENEW])],
    [(0, 1, [ACCEPT, 7])],
)
"""Acknowledgements that are invalid for any acquired records; their order is no error."""
NOT_HELD: tuple[Acks, ...] = (
    [(0, 10, [ACCEPT])],
    [(10, 10, [ACCEPT])],
    [(500, 501, [ACCEPT])],
    [(4, 5, [ACCEPT])],
    [(4, 5, [ACCEPT])],
    [(3, 6, [ACCEPT])],
    [(0, 9, [ACCEPT] * 10)],
    [(0, 3, [ACCEPT]), (6, 9, [RELEASE])],
)
"""Consecutive acknowledgements, some of records that are not acquired."""


@case("ShareFetch", one_connection=True)
async def invalid_acknowledgements_inside_share_fetches(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [await one.fetch(acks=acks, max_wait_ms=50) for acks in INVALID]


@case("ShareFetch", one_connection=True)
async def acknowledgements_of_what_is_not_held(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [await one.fetch(acks=acks, max_wait_ms=50) for acks in NOT_HELD]


@case("ShareFetch", one_connection=True)
async def share_fetches_of_other_members(ask: Ask) -> Any:
    scene = await queue(ask)
    one, two = await scene.member(), await scene.member("n")
    await one.begin()
    return [
        await two.fetch(0),
        await two.fetch(acks=[(0, 9, [ACCEPT])]),
        await one.fetch(share_session_epoch=-1),
        await two.fetch(),
        await two.fetch(acks=[(0, 9, [ACCEPT])]),
    ]


@case("ShareFetch", since=2, one_connection=True)
async def records_at_most(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    limits = {"share_acquire_mode": 1, "max_records": 3}
    return [
        await one.fetch(acks=[(0, 9, [RELEASE])], **limits),
        await one.fetch(**limits),
        await one.fetch(acks=[(0, 5, [ACCEPT])], **limits),
        await one.fetch(share_acquire_mode=1, max_records=0, max_wait_ms=0),
        await one.fetch(share_acquire_mode=7),
        await one.fetch(share_acquire_mode=-1),
    ]


@case("ShareFetch", since=2, one_connection=True)
async def locks_renewed_inside_share_fetches(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    return [
        await one.fetch(acks=[(0, 3, [RENEW])], is_renew_ack=True),
        await one.fetch(acks=[(0, 3, [RENEW])], is_renew_ack=True, **nothing),
        await one.fetch(acks=[(0, 3, [RENEW]), (4, 5, [ACCEPT])], is_renew_ack=True, **nothing),
        await one.fetch(acks=[(4, 5, [RENEW])], is_renew_ack=True, **nothing),
        await one.fetch(acks=[(0, 1, [RENEW])]),
        await one.fetch(is_renew_ack=True, **nothing),
        await one.fetch(acks=[(0, 3, [ACCEPT]), (6, 9, [ACCEPT])]),
    ]


@case("ShareAcknowledge", one_connection=True)
async def records_acknowledged(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.settle((0, 1, [ACCEPT]), (2, 3, [RELEASE]), (4, 4, [REJECT])),
        await one.settle((5, 9, [GAP, ACCEPT, RELEASE, REJECT, ACCEPT])),
        await one.settle(),
        await one.fetch(version=FETCH),
        await one.settle((2, 3, [ACCEPT]), (7, 7, [ACCEPT]), share_session_epoch=-1),
        await one.settle((2, 3, [ACCEPT])),
    ]


@case("ShareAcknowledge", one_connection=True)
async def acknowledgements_of_the_wrong_epoch(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    before = [await one.settle((0, 0, [ACCEPT]), share_session_epoch=epoch) for epoch in (0, 1, -1)]
    await one.begin()
    return [
        before,
        await one.settle((0, 0, [ACCEPT]), share_session_epoch=0),
        await one.settle((0, 0, [ACCEPT]), share_session_epoch=one.epoch + 1),
        await one.settle((0, 0, [ACCEPT]), share_session_epoch=-2),
        await one.settle((0, 0, [ACCEPT]), member_id="other"),
        await one.settle((0, 0, [ACCEPT]), member_id=""),
        await one.settle((0, 0, [ACCEPT]), member_id=None),
        await one.settle((0, 0, [ACCEPT]), group_id=None),
        await one.settle((0, 0, [ACCEPT]), group_id="another"),
        await one.settle((0, 0, [ACCEPT])),
    ]


@case("ShareAcknowledge", one_connection=True)
async def invalid_acknowledgements(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [await one.settle(*acks) for acks in INVALID]


@case("ShareAcknowledge", one_connection=True)
async def acknowledgements_of_records_that_are_not_held(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [await one.settle(*acks) for acks in NOT_HELD]


@case("ShareAcknowledge", one_connection=True)
async def acknowledgements_of_partitions_that_are_not_there(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.settle((0, 0, [ACCEPT]), partition=99),
        await one.settle((0, 0, [ACCEPT]), topic_id=NOWHERE),
        # Not in the session, and no record was acquired there.
        await one.settle((0, 0, [ACCEPT]), partition=1),
    ]


@case("ShareAcknowledge", since=2, one_connection=True)
async def locks_renewed(ask: Ask) -> Any:
    one = await (await queue(ask)).member()
    await one.begin()
    return [
        await one.settle((0, 3, [RENEW])),
        await one.settle((0, 3, [RENEW]), is_renew_ack=True),
        await one.settle((0, 3, [RENEW]), (4, 5, [ACCEPT]), is_renew_ack=True),
        await one.settle((4, 5, [RENEW]), is_renew_ack=True),
        await one.settle((0, 3, [ACCEPT]), (6, 9, [ACCEPT])),
    ]
