"""Fetch sessions (KIP-227)."""

from typing import Any
from uuid import UUID

from korvet.wire import batch_builder
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.asking import ABSENT, PRODUCED, TOPIC, Ask, case

OPEN, CLOSE = 0, -1
PRODUCE = 9
FULL = ((0, 0), (1, 0))


class Reader:
    """A client that fetches in a session, or in none."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.id = 0
        self.known = {0: "none"}

    async def fetch(
        self,
        epoch: int,
        *places: tuple[int, int],
        topic: str = TOPIC,
        version: int | None = None,
        forget: tuple[int, ...] = (),
        **changes: Any,
    ) -> Any:
        """Fetch (partition, offset) pairs; return error, name of the session, and partitions."""
        number = UUID(int=7) if topic == ABSENT else await self.ask.topic_id(topic)
        rows = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in places
        ]
        gone = ForgottenTopic(topic=topic, topic_id=number, partitions=list(forget))
        fields: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "session_id": self.id,
            "session_epoch": epoch,
            "topics": [FetchTopic(topic=topic, topic_id=number, partitions=rows)] if rows else [],
            "forgotten_topics_data": [gone] if forget else [],
        }
        answer = await self.ask(FetchRequest(**{**fields, **changes}), version)
        self.id = answer.session_id or self.id
        name = self.known.setdefault(answer.session_id, f"session {len(self.known)}")
        return (
            answer.error_code,
            name,
            [
                (row.partition_index, row.error_code, row.high_watermark, bool(row.records))
                for topic in answer.responses
                for row in topic.partitions
            ],
        )


@case("Fetch", since=7)
async def a_fetch_session_from_its_first_request_to_its_last(ask: Ask) -> Any:
    one = Reader(ask)
    return [
        await one.fetch(OPEN, *FULL),
        await one.fetch(1),
        await one.fetch(2, (1, 0)),
        await one.fetch(3, (1, 7)),
        await one.fetch(4),
        await one.fetch(5, (1, 0)),
        await one.fetch(6),
        await one.fetch(CLOSE),
        await one.fetch(7),
    ]


@case("Fetch", since=7)
async def fetch_sessions_that_are_unknown_or_in_another_epoch(ask: Ask) -> Any:
    one = Reader(ask)
    before = [await one.fetch(epoch, *FULL, session_id=5) for epoch in (1, -1, -2)]
    return [
        *before,
        await one.fetch(OPEN, *FULL),
        await one.fetch(2),
        await one.fetch(-2),
        await one.fetch(1),
        await one.fetch(1),
        await one.fetch(2, session_id=0),
        await one.fetch(2),
    ]


@case("Fetch", since=7)
async def a_fetch_session_that_replaces_another(ask: Ask) -> Any:
    one = Reader(ask)
    found = [await one.fetch(OPEN, *FULL)]
    first = one.id
    found += [
        await one.fetch(OPEN, *FULL),
        await one.fetch(1, session_id=first),
        await one.fetch(1),
        await one.fetch(CLOSE, *FULL),
        await one.fetch(2),
    ]
    return found


@case("Fetch", since=7)
async def partitions_added_to_a_fetch_session_and_forgotten(ask: Ask) -> Any:
    one = Reader(ask)
    return [
        await one.fetch(OPEN, (0, 0)),
        await one.fetch(1, (1, 0)),
        await one.fetch(2),
        await one.fetch(3, forget=(1, 5)),
        await one.fetch(4, (1, 0), forget=(1,)),
        await one.fetch(5, (1, 0), (1, 3), (1, 0)),
        await one.fetch(6, (7, 0)),
        await one.fetch(7),
        await one.fetch(8, forget=(7,)),
        await one.fetch(9, (0, 0), topic=ABSENT),
        await one.fetch(10),
        await one.fetch(11, topic=ABSENT, forget=(0,)),
        await one.fetch(12),
        await one.fetch(13, forget=(0, 1)),
        await one.fetch(14),
    ]


@case("Fetch", since=7)
async def fetch_sessions_without_partitions(ask: Ask) -> Any:
    one = Reader(ask)
    return [
        await one.fetch(OPEN),
        await one.fetch(1),
        await one.fetch(OPEN),
        await one.fetch(1, (0, 0)),
        await one.fetch(2, (0, 0), forget=(0,)),
        await one.fetch(3),
    ]


@case("Fetch", since=7)
async def a_fetch_session_that_names_topics_in_another_way(ask: Ask) -> Any:
    other = 13 if ask.version < 13 else 12
    one = Reader(ask)
    return [
        await one.fetch(OPEN, *FULL),
        await one.fetch(1, version=other),
        await one.fetch(2, version=other),
        await one.fetch(1),
        await one.fetch(CLOSE, version=other),
        await one.fetch(2),
    ]


@case("Fetch", since=7)
async def records_in_a_fetch_session(ask: Ask) -> Any:
    one = Reader(ask)
    batch = bytes(batch_builder.build([(0, 1_700_000_000_000, b"k", b"v", [])]))
    row = PartitionProduceData(index=0, records=batch)
    wanted = TopicProduceData(name=PRODUCED, partition_data=[row])
    produced = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[wanted])
    stored = await ask(produced, PRODUCE)
    at = stored.responses[0].partition_responses[0].base_offset
    ends = [at + 1]
    found = [await one.fetch(OPEN, (0, at + 1), topic=PRODUCED), await one.fetch(1)]
    stored = await ask(produced, PRODUCE)
    ends.append(stored.responses[0].partition_responses[0].base_offset + 1)
    found += [
        await one.fetch(2),
        await one.fetch(3),
        await one.fetch(4, (0, ends[1]), topic=PRODUCED),
        await one.fetch(5),
        await one.fetch(6, (0, at), topic=PRODUCED),
    ]
    return [
        (error, name, [(code, ends.index(end), has_records) for _, code, end, has_records in rows])
        for error, name, rows in found
    ]
