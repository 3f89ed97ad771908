"""Check the library on real servers: the same scenarios with Korvet and AsyncKorvet."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
import redis.asyncio

import korvet
from korvet import AsyncKorvet, Korvet, KorvetError, Record, StoreError, StoreUnavailable
from korvet.base.errors import ErrorCode
from korvet.testing import fake_async_redis, fake_redis
from tests.support.redis_servers import TestServer


class Inline:
    """AsyncKorvet as a synchronous object: one event loop, run for each call."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._log = self._loop.run_until_complete(self._make(make))

    async def _make(self, make: Callable[[], Any]) -> AsyncKorvet:
        made = make()
        return await made if inspect.isawaitable(made) else made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made = getattr(self._log, name)(*args, **options)
            return self._loop.run_until_complete(self._collect(made))

        return call

    async def _collect(self, made: Any) -> Any:
        if inspect.isasyncgen(made):
            return [item async for item in made]
        return await made

    def end(self) -> None:
        """Close the log and the loop."""
        self._loop.run_until_complete(self._log.close())
        self._loop.close()


@pytest.fixture(params=["sync client", "async client", "sync url", "async url"])
def log(request: pytest.FixtureRequest, redis_server: TestServer) -> Iterator[Any]:
    """An empty log on each server, by each class."""
    url = redis_server.url
    if request.param.startswith("sync"):
        with redis.Redis.from_url(url, decode_responses=True) as client:
            made = Korvet(client) if request.param == "sync client" else Korvet.connect(url)
            with made:
                yield made
        return
    client = redis.asyncio.Redis.from_url(url, decode_responses=True)
    found = Inline(
        (lambda: AsyncKorvet(client))
        if request.param == "async client"
        else (lambda: AsyncKorvet.connect(url))
    )
    yield found
    found.end()


def values(log: Any, topic: str, partition: int = 0, *range_: int, **options: Any) -> list[Any]:
    return [record.value for record in log.records(topic, partition, *range_, **options)]


def test_topics_are_created_grown_listed_and_deleted(log: Any) -> None:
    made = log.create_topic("orders", 2, {"offset.mode": "dense", "retention.ms": "5000"})
    assert (made.name, made.partitions, made.offset_mode) == ("orders", 2, "dense")
    assert log.create_topic("by-default").partitions == 1
    log.add_partitions("orders", 3)
    assert [(topic.name, topic.partitions) for topic in log.topics()] == [
        ("by-default", 1),
        ("orders", 3),
    ]
    assert [part.latest for part in log.offsets("orders")] == [0, 0, 0]
    log.delete_topic("orders")
    with pytest.raises(KorvetError, match="There is no topic 'orders'; there are: by-default"):
        log.topic("orders")


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_records_are_read_as_they_were_produced(log: Any, layout: str) -> None:
    log.create_topic("orders", 2, {"storage.format": layout, "offset.mode": "dense"})
    sent = [
        Record(b"a", b"k", [("h", b"1"), ("h", None)], 1_700_000_000_000),
        Record(None, b"k"),
        Record(b"", b"k"),
    ]
    (appended,) = log.produce("orders", sent)
    assert (appended.base_offset, appended.records, appended.duplicate) == (0, 3, False)
    found = list(log.records("orders", appended.partition))
    assert [(r.offset, r.key, r.value) for r in found] == [
        (0, b"k", b"a"),
        (1, b"k", None),
        (2, b"k", b""),
    ]
    assert list(found[0].headers) == [("h", b"1"), ("h", None)]
    assert found[0].timestamp_ms == 1_700_000_000_000
    assert abs(found[1].timestamp_ms / 1000 - datetime.now(UTC).timestamp()) < 60
    assert values(log, "orders", appended.partition, 1, 2) == [None]
    fetched = log.fetch("orders", appended.partition, 2)
    assert ([r.value for r in fetched.records], fetched.next_offset) == ([b""], 3)
    assert log.fetch("orders", appended.partition, 3).records == []


def test_records_without_a_key_go_to_all_partitions_in_turn(log: Any) -> None:
    log.create_topic("orders", 3)
    for number in range(6):
        log.produce("orders", [Record(b"%d" % number)])
    assert [part.records for part in log.offsets("orders")] == [2, 2, 2]


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_batch_sent_again_is_stored_once(log: Any, layout: str) -> None:
    log.create_topic("orders", 1, {"storage.format": layout, "offset.mode": "dense"})
    producer = log.new_producer()
    first = [Record(b"a"), Record(b"b")]
    for attempt in range(3):
        again = log.append("orders", 0, first, producer=producer, sequence=0)
        assert (again.base_offset, again.duplicate) == (0, attempt > 0)
    assert log.append("orders", 0, [Record(b"c")], producer=producer, sequence=2).base_offset == 2
    with pytest.raises(KorvetError) as caught:
        log.append("orders", 0, [Record(b"e")], producer=producer, sequence=9)
    assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(log, "orders") == [b"a", b"b", b"c"]
    assert log.new_producer().id != producer.id


def test_a_read_in_pieces_yields_every_record_once(log: Any) -> None:
    log.create_topic("orders", 1, {"offset.mode": "dense"})
    sent = [b"%04d" % number + bytes(2000) for number in range(1500)]
    log.produce("orders", map(Record, sent))
    assert values(log, "orders") == sent
    assert values(log, "orders", 0, 700, 1400, committed=True) == sent[700:1400]


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_time_finds_the_first_record_at_or_after_it(log: Any, layout: str) -> None:
    log.create_topic("orders", 1, {"offset.mode": "dense", "storage.format": layout})
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [int((start + timedelta(hours=n)).timestamp() * 1000) for n in range(5)]
    log.produce("orders", [Record(b"v", timestamp_ms=at) for at in times])
    assert log.find_offset("orders", 0, start + timedelta(minutes=90)) == 2
    assert log.find_offset("orders", 0, "earliest") == 0
    assert log.find_offset("orders", 0, "latest") == 5
    assert log.find_offset("orders", 0, 99) == 5


def test_groups_commit_reset_and_go(log: Any) -> None:
    log.create_topic("orders", 2, {"offset.mode": "dense"})
    log.append("orders", 0, [Record(b"a"), Record(b"b")])
    log.commit("readers", {("orders", 0): 1}, metadata="by hand")
    (row,) = log.committed("readers")
    assert (row.offset, row.lag, row.log_end_offset, row.metadata) == (1, 1, 2, "by hand")
    assert log.reset("readers", "orders", "earliest") == {0: 0, 1: 0}
    assert [(each.partition, each.lag) for each in log.committed("readers")] == [(0, 2), (1, 0)]
    (group,) = log.groups()
    assert (group.group, group.state, group.members) == ("readers", "Empty", 0)
    log.delete_group("readers")
    assert log.groups() == []
    with pytest.raises(KorvetError, match="There is no group 'readers'"):
        log.delete_group("readers")


REFUSED: list[tuple[Callable[[Any], object], ErrorCode]] = [
    (lambda log: log.create_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (lambda log: log.create_topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
    (lambda log: log.create_topic("a", 0), ErrorCode.INVALID_PARTITIONS),
    (lambda log: log.create_topic("a", 1, {"retention.m": "1"}), ErrorCode.INVALID_CONFIG),
    (lambda log: log.add_partitions("orders", 1), ErrorCode.INVALID_PARTITIONS),
    (lambda log: log.produce("absent", []), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda log: log.append("orders", 1, [Record(b"")]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda log: log.append("orders", -1, [Record(b"")]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda log: log.append("orders", 0, [Record(bytes(2 << 20))]), ErrorCode.MESSAGE_TOO_LARGE),
    (lambda log: log.append("orders", 0, []), ErrorCode.INVALID_RECORD),
    (lambda log: log.fetch("orders", 0, 1 << 60), ErrorCode.OFFSET_OUT_OF_RANGE),
    (lambda log: list(log.records("orders", 5)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda log: log.commit("g", {("orders", 5): 0}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda log: log.commit("g", {("orders", 0): -1}), ErrorCode.OFFSET_OUT_OF_RANGE),
    (lambda log: log.commit("g", {("orders", 0): 2**63}), ErrorCode.OFFSET_OUT_OF_RANGE),
]


@pytest.mark.parametrize(("work", "error"), REFUSED)
def test_a_refused_call_raises_kafkas_error_code(
    log: Any, work: Callable[[Any], object], error: ErrorCode
) -> None:
    log.create_topic("orders")
    with pytest.raises(KorvetError) as caught:
        work(log)
    assert caught.value.error is error and str(caught.value)


def test_a_server_that_is_not_there_is_a_store_error() -> None:
    log = Korvet(redis.Redis(port=1))
    with pytest.raises(StoreUnavailable):
        log.topics()

    async def ask() -> None:
        async with AsyncKorvet(redis.asyncio.Redis(port=1)) as other:
            await other.topics()

    with pytest.raises(StoreUnavailable):
        asyncio.run(ask())


def test_a_key_of_another_type_is_a_store_error(log: Any, redis_server: TestServer) -> None:
    log.create_topic("orders")
    with redis_server.client() as client:
        client.delete("{korvet:orders:0}:log")
        client.rpush("{korvet:orders:0}:log", "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        log.fetch("orders", 0, 0)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        log.offsets("orders")
    assert log.topic("orders").partitions == 1


def test_a_client_of_another_kind_is_refused_with_the_way_to_connect() -> None:
    for face in (Korvet, AsyncKorvet):
        with pytest.raises(TypeError, match=r"use connect\(URL\) for a Redis Cluster"):
            face(object())


def test_the_callers_client_keeps_its_own_connections(redis_server: TestServer) -> None:
    with redis.Redis.from_url(redis_server.url, decode_responses=True, protocol=3) as client:
        client.set("mine", "text")
        with Korvet(client) as log:
            log.create_topic("orders")
            log.produce("orders", [Record(b"\xff")])
            assert values(log, "orders") == [b"\xff"]
        assert client.get("mine") == "text"


def test_both_faces_run_on_a_fake_redis() -> None:
    with Korvet(fake_redis()) as log:
        log.create_topic("orders")
        log.produce("orders", [Record(b"a")])
        assert values(log, "orders") == [b"a"]

    async def ask() -> list[str]:
        async with AsyncKorvet(fake_async_redis()) as other:
            await other.create_topic("orders")
            return [topic.name for topic in await other.topics()]

    assert asyncio.run(ask()) == ["orders"]


async def test_the_sync_face_works_inside_a_running_event_loop() -> None:
    with Korvet(fake_redis()) as log:
        log.create_topic("orders")
        log.produce("orders", [Record(b"a", timestamp_ms=5)])
        assert log.find_offset("orders", 0, datetime.fromtimestamp(0, UTC)) > 0
        assert values(log, "orders") == [b"a"]


def test_both_faces_have_the_same_calls() -> None:
    def calls(face: type) -> set[str]:
        return {name for name in dir(face) if not name.startswith("_")}

    assert calls(Korvet) <= calls(AsyncKorvet)
    for name in calls(Korvet) - {"connect"}:
        sync, other = getattr(Korvet, name), getattr(AsyncKorvet, name)
        assert inspect.signature(sync).parameters == inspect.signature(other).parameters, name


def test_every_public_name_can_be_imported() -> None:
    for name in korvet.__all__:
        assert getattr(korvet, name) is not None
    for name in korvet.testing.__all__:  # type: ignore[attr-defined]
        assert getattr(korvet.testing, name) is not None  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = korvet.Nothing  # type: ignore[attr-defined]
