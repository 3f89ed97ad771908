"""Check fetch sessions: which partitions are read and responded, to whom, and which are evicted."""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.base.metrics.families import Counter
from korvet.fetch import sessions
from korvet.fetch.sessions import FetchSession, FetchSessions
from korvet.security.session import ANONYMOUS, Principal, Session
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from korvet.wire.schema import ZERO_UUID
from tests.support.connected_broker import Broker, broker
from tests.support.exchanges import GOOD, note_sent, packed, produce, rows, rows_in

__all__ = ["broker"]
OTHER = Principal("User", "other")
MANY = 8
WAIT_MS = 600_000
Found = dict[int, Any]
"""The rows of a response by partition."""


def asking(*offsets: tuple[int, int], topic_id: UUID = ZERO_UUID) -> FetchTopic:
    places = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in offsets
    ]
    return FetchTopic(topic="t", topic_id=topic_id, partitions=places)


class Reader:
    """A client with a fetch session."""

    def __init__(self, broker: Broker, version: int = 12, principal: Principal = ANONYMOUS) -> None:
        self.broker = broker
        self.version = version
        self.connection = Session("h", principal)
        self.id = self.epoch = 0
        self.topic_id = ZERO_UUID

    async def fetch(self, *offsets: tuple[int, int], wait: int = 0, **changes: Any) -> Found:
        """Fetch with these (partition, offset) pairs named; the response has no error."""
        answer = await self.ask(*offsets, wait=wait, **changes)
        assert answer.error_code == E.NONE and answer.session_id
        self.id, self.epoch = answer.session_id, self.epoch + 1
        return {row.partition_index: row for topic in answer.responses for row in topic.partitions}

    async def ask(self, *offsets: tuple[int, int], wait: int = 0, **changes: Any) -> Any:
        """Return the response, whatever it is."""
        fields: dict[str, Any] = {
            "session_id": self.id,
            "session_epoch": self.epoch,
            "max_wait_ms": wait,
            "min_bytes": 1,
            "topics": [asking(*offsets, topic_id=self.topic_id)] if offsets else [],
        }
        request = FetchRequest(**{**fields, **changes})
        return await self.broker.ask(request, self.version, session=self.connection)


async def resting(broker: Broker, **configs: str) -> Reader:
    """Return a client with a session of MANY partitions without records, all read."""
    await broker.create("t", MANY, offset_mode="dense", **configs)
    one = Reader(broker)
    assert len(await one.fetch(*((number, 0) for number in range(MANY)))) == MANY
    return one


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions of MANY partitions be large, without turns."""
    monkeypatch.setattr(sessions, "SMALL", 3)
    monkeypatch.setattr(sessions, "turns_per_s", lambda partitions: 0)


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.usefixtures("large")
async def test_a_session_at_rest_reads_only_partitions_with_an_append(
    broker: Broker, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await resting(broker, storage_format=form)
    sent = note_sent(broker, monkeypatch)
    assert await one.fetch(wait=1) == await one.fetch() == {}
    assert not [command for command in sent if command[0] in ("HMGET", "XRANGE")]
    waiting = asyncio.create_task(one.fetch(wait=WAIT_MS))
    await asyncio.sleep(0)
    await produce(broker, GOOD, number=5)
    found = await asyncio.wait_for(waiting, 60)
    assert list(found) == [5] and len(rows_in(found[5].records)) == 2
    assert {command[1] for command in sent if command[0] == "HMGET"} == {
        broker.services.keys.partition("t", 5).log
    }
    await produce(broker, GOOD, number=6)
    found = await one.fetch((5, 2), wait=WAIT_MS)
    assert list(found) == [6] and found[6].high_watermark == 2
    assert list(await one.fetch((6, 2))) == []


@pytest.mark.usefixtures("large")
async def test_a_session_has_no_news_twice_and_every_append_once(broker: Broker) -> None:
    one, at = await resting(broker), [0] * MANY
    for turn in range(40):
        number = turn * 5 % MANY
        await produce(broker, GOOD, number=number)
        found = await one.fetch(wait=WAIT_MS)
        assert list(found) == [number]
        assert [row[0] for row in rows_in(found[number].records)] == [at[number], at[number] + 1]
        at[number] += 2
        assert await one.fetch((number, at[number])) == {}


async def changed_start(broker: Broker, topic: Any) -> None:
    row = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="t", partitions=[row])]
    answer = await broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert answer.topics[0].partitions[0].error_code == E.NONE


async def foreign_entry(broker: Broker, topic: Any) -> None:
    await broker.services.store.command("XADD", topic.partition(0).stream, "*", "value", "v")


@pytest.mark.parametrize("change", [changed_start, foreign_entry])
@pytest.mark.parametrize("is_large", [True, False])
async def test_what_no_message_says_is_noticed_in_turn(
    broker: Broker, change: Any, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SMALL", 3 if is_large else 100)
    monkeypatch.setattr(sessions, "turns_per_s", lambda partitions: 10_000_000)
    await broker.create("t", MANY, offset_mode="dense", storage_format="record")
    await produce(broker, GOOD)
    one = Reader(broker)
    assert len(await one.fetch((0, 2), *((number, 0) for number in range(1, MANY)))) == MANY
    assert await one.fetch() == {}
    await change(broker, await broker.services.topics.get("t"))
    (row,) = (await one.fetch()).values()
    assert (row.partition_index, row.log_start_offset, row.high_watermark) in ((0, 1, 2), (0, 0, 3))


async def test_partitions_with_records_take_turns(broker: Broker) -> None:
    await broker.create("t", 4, storage_format="batch", offset_mode="dense")
    for number in range(4):
        await produce(broker, packed(rows(bytes(5000)), 13), number=number)
    one = Reader(broker)
    first = await one.fetch(*((number, 0) for number in range(4)), max_bytes=6000)
    order = [number for number, row in first.items() if row.records]
    for _ in range(7):
        order += [
            number for number, row in (await one.fetch(max_bytes=6000)).items() if row.records
        ]
    assert order == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("is_large", [True, False])
@pytest.mark.parametrize("version", [12, 18])
async def test_a_topic_that_was_deleted_and_created_again(
    broker: Broker, version: int, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SMALL", 1 if is_large else 100)
    await broker.create("t", 2, offset_mode="dense")
    await produce(broker, GOOD)
    one = Reader(broker, version)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    one.topic_id = topic.uuid
    assert len(await one.fetch((0, 2), (1, 0))) == 2
    assert await one.fetch() == {}
    await broker.made_again()
    broker.services.topics.invalidate()
    found = {number: row.error_code for number, row in (await one.fetch()).items()}
    if version < 13:
        assert found == {0: E.OFFSET_OUT_OF_RANGE}
        assert (await one.fetch((0, 0)))[0].high_watermark == 0
    else:
        assert found == {0: E.UNKNOWN_TOPIC_ID, 1: E.UNKNOWN_TOPIC_ID}
        again = await broker.services.topics.get("t")
        assert again is not None
        new = asking((0, 0), topic_id=again.uuid)
        assert (await one.fetch(topics=[new]))[0].error_code == E.NONE


async def test_a_session_is_that_of_its_principal(broker: Broker) -> None:
    await broker.create("t", 2)
    one, other = Reader(broker), Reader(broker, principal=OTHER)
    await one.fetch((0, 0))
    other.id = one.id
    for other.epoch in (1, 2):
        assert (await other.ask()).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    other.epoch = -1
    assert (await other.ask()).error_code == E.NONE
    other.epoch = 0
    await other.fetch((0, 0))
    one.connection = Session("another host")
    assert other.id != one.id and await one.fetch() == {}


async def test_an_ended_session_leaves_no_subscription(broker: Broker) -> None:
    await broker.create("t", 4)
    one = Reader(broker)
    await one.fetch((0, 0), (1, 0), (2, 0))
    subscribed = broker.services.notifier._subscriptions
    own = {broker.services.keys.partition("t", number).channel for number in range(4)}
    assert len(own & subscribed.keys()) == 3
    await one.fetch(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])])
    assert len(own & subscribed.keys()) == 2
    one.epoch = -1
    assert (await one.ask()).session_id == 0
    assert not own & subscribed.keys() and len(broker.services.fetch_sessions) == 0


async def test_a_request_that_another_overtook_is_in_the_wrong_epoch(broker: Broker) -> None:
    await broker.create("t", 1)
    one = Reader(broker)
    await one.fetch((0, 0))
    waiting = asyncio.create_task(one.ask(wait=30))
    await asyncio.sleep(0)
    one.epoch += 1
    assert await one.fetch() == {}
    answer = await waiting
    assert answer.error_code == E.INVALID_FETCH_SESSION_EPOCH and answer.session_id == one.id


class Table:
    """The sessions of a broker with two slots, and a clock."""

    def __init__(self, slots: int = 2) -> None:
        self.now = 1000.0
        self.evictions = Counter("evictions", "")
        self.sessions = FetchSessions(
            cast(Any, self), lambda: slots, self.evictions, lambda: self.now
        )

    def watch_each(self) -> Any:
        return self

    def remove(self, channels: Any) -> None:
        """Accept the end of a session's subscription."""

    def open(self, partitions: int, *, follower: bool = False) -> FetchSession | None:
        places = [(number, 0) for number in range(partitions)]
        request = FetchRequest(
            replica_id=1 if follower else -1,
            max_wait_ms=0,
            min_bytes=0,
            session_epoch=0,
            topics=[asking(*places)],
        )
        return self.sessions.begin(request, 12, ANONYMOUS)

    def has(self, session: FetchSession | None) -> bool:
        assert session is not None
        return self.sessions.find(session.id, ANONYMOUS) is session


@pytest.mark.parametrize(
    ("age", "idle", "known", "new", "evicted"),
    [
        (119, 119, [(5, False), (3, False)], (9, False), None),
        (121, 121, [(5, False), (3, False)], (1, False), 0),
        (121, 1, [(5, False), (3, False)], (4, False), 1),
        (121, 1, [(5, False), (3, False)], (2, False), None),
        (121, 1, [(5, True), (9, True)], (99, False), None),
        (1, 1, [(5, False), (3, True)], (1, True), 0),
        (1, 1, [(5, True), (3, True)], (9, True), None),
        (121, 1, [(5, True), (3, True)], (4, True), 1),
    ],
)
def test_a_new_session_evicts_as_in_kafka(
    age: int, idle: int, known: list[tuple[int, bool]], new: tuple[int, bool], evicted: int | None
) -> None:
    table = Table()
    opened = [table.open(count, follower=follower) for count, follower in known]
    table.now += age - idle
    for session in opened:
        assert session is not None
        table.sessions.touch(session)
    table.now += idle
    found = table.open(new[0], follower=new[1])
    assert (found is not None) == (evicted is not None)
    assert [table.has(each) for each in opened] == [at != evicted for at in range(2)]
    assert sum(table.evictions.values.values()) == (evicted is not None)
    assert len(table.sessions) == 2


def test_no_slots_are_no_sessions_and_bytes_are_bounded() -> None:
    assert Table(slots=0).open(1) is None
    table = Table(slots=100)
    table.sessions._sessions.limit = 25 * sessions.PARTITION_BYTES
    opened = [table.open(8) for _ in range(4)]
    assert [table.has(each) for each in opened] == [False, False, True, True]
    assert table.open(30) is None and table.sessions.partitions == 16
