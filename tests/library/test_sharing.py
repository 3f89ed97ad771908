"""Check members of share groups that acknowledge in the application's steps, on real servers."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import korvet
from korvet import AcquiredRecord, KorvetError, Record, ShareConsumer
from korvet.base.errors import ErrorCode
from korvet.log.cleaner import LogCleaner
from korvet.scripts import inlined
from korvet.scripts.calls.partition import ShareDescribeReply
from korvet.store import redis_user
from korvet.store.redis_py import run_inline
from tests.library.test_consuming import DENSE, OWN
from tests.store.cluster_topology import cluster
from tests.support.redis_servers import TestServer

EARLIEST = {"share.auto.offset.reset": "earliest"}
AT_ONCE = {"group.share.assignment.interval.ms": "0"}
ADD = f"""{inlined.library()}
korvet.acknowledge({{ KEYS[1], KEYS[2], KEYS[3] }}, {{ unpack(ARGV, 2) }})
return redis.call("INCRBY", KEYS[4], ARGV[1])
"""
LAYOUTS = pytest.mark.parametrize("layout", ["record", "batch"])


@pytest.fixture
def log(client: redis.Redis) -> Iterator[korvet.Korvet]:
    """A log with the topic orders, whose partition holds the numbers 1 to 10, and a group."""
    with korvet.Korvet(client, settings=AT_ONCE) as made:
        made.create_topic("orders", 1, DENSE)
        made.configure_group("jobs", EARLIEST)
        made.produce("orders", [Record(b"%d" % n) for n in range(1, 11)])
        yield made


def consumer_of(log: korvet.Korvet, *topics: str, **words: Any) -> ShareConsumer:
    return log.share_consumer("jobs", topics or ["orders"], **{"idle_s": 0, **words})


def step(consumer: ShareConsumer, client: redis.Redis, record: AcquiredRecord) -> None:
    """Add a record's number to the sum, and accept it."""
    with client.pipeline() as pipe:
        consumer.check(pipe, record)
        pipe.multi()
        pipe.incrby("sum", int(record.value or 0))
        receipt = consumer.acknowledge_with(pipe, record)
        pipe.execute()
    assert receipt.record is record


def take(log: korvet.Korvet, consumer: ShareConsumer) -> None:
    """Take a member's records, as the end of its session does."""
    call = log._async.keys.partition("orders", 0, log.topic("orders").id).share_release(
        group="jobs", member=consumer._async.member_id, delivery_limit=5
    )
    run_inline(log._async.store.run(call))


def state(log: korvet.Korvet, topic: str = "orders") -> ShareDescribeReply:
    call = log._async.keys.partition(topic, 0, log.topic(topic).id).share_describe(
        group="jobs", most=100
    )
    return run_inline(log._async.store.run(call))


def counts(log: korvet.Korvet, topic: str = "orders") -> tuple[int, int, int, int]:
    """Return the available, acquired, accepted and archived records."""
    found = state(log, topic)
    return found.available, found.acquired, found.acknowledged, found.archived


@LAYOUTS
@pytest.mark.parametrize("mode", ["dense", "time"])
def test_a_records_effect_and_its_acknowledgement_are_one_step(
    log: korvet.Korvet, client: redis.Redis, layout: str, mode: str
) -> None:
    log.create_topic("paid", 1, {"offset.mode": mode, "storage.format": layout})
    log.produce("paid", [Record(b"%d" % n, b"k%d" % n, [("h", b"x")], 7) for n in range(20)])
    for count in (15, 5, 0):
        with consumer_of(log, "paid", max_records=10) as consumer:
            for _, record in zip(range(count), consumer, strict=False):
                step(consumer, client, record)
                assert (record.key, record.timestamp_ms) == (b"k" + (record.value or b""), 7)
                assert list(record.headers) == [("h", b"x")]
            if count == 0:
                assert list(consumer) == []
    assert (client.get("sum"), counts(log, "paid")) == (b"190", (0, 0, 20, 0))
    assert [(group.type, group.members) for group in log.groups()] == [("share", 0)]


def test_a_member_that_has_lost_a_record_neither_acknowledges_nor_writes(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    lost = log._async.keys.partition("orders", 0).share_lost
    with consumer_of(log, max_records=1) as consumer:
        record = next(consumer)
        take(log, consumer)
        with pytest.raises(KorvetError, match="continue the iteration"):
            consumer.acknowledge(record)
        with pytest.raises(KorvetError, match="continue the iteration"):
            consumer.acknowledge(record)
        record = next(consumer)
        assert (record.value, record.deliveries) == (b"1", 2)
        with client.pipeline() as pipe:
            consumer.check(pipe, record)
            pipe.multi()
            pipe.incrby("sum", 1)
            watched = consumer.acknowledge_with(pipe, record)
            with pytest.raises(RuntimeError, match="was not executed"):
                _ = watched.record
            take(log, consumer)
            with pytest.raises(redis.WatchError):
                pipe.execute()
        with pytest.raises(redis.WatchError):
            _ = watched.record
        assert client.delete(lost)
        record = next(consumer)
        assert not client.exists(lost)  # What is certain ends no step of another member.
        assert record.deliveries == 3 and not client.exists("sum")
        take(log, consumer)
        with client.pipeline() as pipe, pytest.raises(KorvetError, match="continue"):
            consumer.check(pipe, record)
        record = next(consumer)
        take(log, consumer)
        with client.pipeline() as pipe:
            pipe.incrby("sum", 1)
            refused = consumer.acknowledge_with(pipe, record, on_refused="error")
            with pytest.raises(redis.ResponseError, match="KORVETREFUSED INVALID_RECORD_STATE"):
                pipe.execute()
        with pytest.raises(KorvetError) as caught:
            _ = refused.record
        assert caught.value.error is ErrorCode.INVALID_RECORD_STATE
        assert client.get("sum") == b"1"  # MULTI does not roll back


def test_a_step_that_failed_is_returned_again_and_cannot_happen_late(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with consumer_of(log) as consumer:
        first = next(consumer)
        with client.pipeline() as late:
            consumer.check(late, first)
            late.multi()
            late.incrby("sum", 100)
            consumer.acknowledge_with(late, first)
            assert next(consumer) is first  # as after a timeout, whose outcome is unknown
            with pytest.raises(redis.WatchError):
                late.execute()
        assert next(consumer) is first
        with client.pipeline() as begun:
            consumer.check(begun, first)  # and then a command of the application fails
        assert next(consumer) is first
        with client.pipeline() as pipe:
            pipe.lpush("sum", 1)
            pipe.incrby("sum", 1)
            receipt = consumer.acknowledge_with(pipe, first)
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                pipe.execute()
        assert receipt.record is first
        client.delete("sum")
        for record in consumer:
            step(consumer, client, record)
    assert (client.get("sum"), counts(log)) == (b"54", (0, 0, 10, 0))


class LosesReply(redis.client.Pipeline):
    def execute(self, raise_on_error: bool = True) -> Any:
        super().execute(raise_on_error)
        raise redis.TimeoutError


class LosesRequest(redis.client.Pipeline):
    def execute(self, raise_on_error: bool = True) -> Any:
        raise redis.ConnectionError


def test_a_record_whose_step_has_an_unknown_outcome_is_returned_unless_it_happened(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with consumer_of(log) as consumer:
        for kind, value in ((LosesReply, b"2"), (LosesRequest, b"3")):
            record = next(consumer)
            with client.pipeline() as pipe, pytest.raises(redis.RedisError):
                pipe.__class__ = kind
                consumer.check(pipe, record)
                pipe.multi()
                pipe.incrby("sum", int(record.value or 0))
                consumer.acknowledge_with(pipe, record)
                pipe.execute()
            record = next(consumer)
            assert record.value == value
            step(consumer, client, record)
    assert (client.get("sum"), counts(log)) == (b"6", (7, 0, 3, 0))


@pytest.mark.parametrize("kind", ["script", "function"])
def test_a_script_of_the_application_acknowledges(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer, kind: str
) -> None:
    if kind == "function":
        if redis_server.kind == "redis62":
            return  # It has none.
        client.execute_command("FUNCTION", "LOAD", "REPLACE", inlined.functions())
    with consumer_of(log) as consumer:
        for count, record in enumerate(consumer, 1):
            with consumer.acknowledge_args(record) as (keys, args):
                if kind == "script":
                    client.eval(ADD, 4, *keys, "sum", record.value or b"", *args)
                else:
                    assert client.fcall("korvet_acknowledge", 3, *keys, *args) == b"OK"
            # redis-py repeats a script if the connection breaks after Redis has run it.
            with pytest.raises(redis.ResponseError, match="has not acquired these records"):
                client.eval(ADD, 4, *keys, "sum", 1000, *args)
            if count == 9:
                break
        last = next(consumer)
        with (
            pytest.raises(redis.ResponseError, match="not an integer"),
            consumer.acknowledge_args(last) as (keys, args),
        ):
            client.incrby("sum", "a")  # type: ignore[arg-type]
        assert next(consumer) is last
        for wrong, words in ((keys[::-1], args), (keys, args[:11])):
            with pytest.raises(redis.ResponseError, match="of an acknowledgement are"):
                client.eval(ADD, 4, *wrong, "sum", 1, *words)
    assert counts(log) == (1, 0, 9, 0)


def test_several_records_of_one_step_are_acknowledged_together(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with consumer_of(log) as consumer, client.pipeline() as pipe:
        records = list(consumer)
        consumer.check(pipe, *records)
        pipe.multi()
        receipts = []
        for record in records:
            pipe.incrby("sum", int(record.value or 0))
            receipts.append(consumer.acknowledge_with(pipe, record))
        pipe.execute()
        assert [receipt.record for receipt in receipts] == records
        with pytest.raises(KorvetError, match="names its records"):
            consumer.check(pipe)
    assert (client.get("sum"), counts(log)) == (b"55", (0, 0, 10, 0))


def test_members_share_the_records_of_a_partition(log: korvet.Korvet) -> None:
    with (
        consumer_of(log, max_records=1) as one,
        consumer_of(log, max_records=1, idle_s=0.01) as two,
    ):
        found = []
        while len(found) < 10:
            for consumer in (one, two):
                record = consumer.next()
                if record is not None:
                    found.append(record.value)
                    consumer.acknowledge(record)
        assert found == [b"%d" % n for n in range(1, 11)]
        while not (one.assignment and two.assignment):
            one.next()
            two.next()


@LAYOUTS
def test_released_records_are_delivered_again_and_rejected_ones_are_dead_letters(
    client: redis.Redis, layout: str
) -> None:
    with korvet.Korvet(client, settings=AT_ONCE) as log:
        log.create_topic("orders", 1, {**DENSE, "storage.format": layout})
        log.create_topic("dlq.jobs", 1, {"errors.deadletterqueue.group.enable": "true"})
        letters = {
            "errors.deadletterqueue.topic.name": "dlq.jobs",
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.delivery.count.limit": "2",
        }
        log.configure_group("jobs", {**EARLIEST, **letters})
        log.produce("orders", [Record(b"%d" % n) for n in range(4)])
        seen = []
        with consumer_of(log, idle_s=0.01) as consumer:
            for record in consumer:
                seen.append((record.value, record.deliveries))
                number = int(record.value or 0)
                consumer.acknowledge(record, ("accept", "release", "reject", "accept")[number])  # type: ignore[arg-type]
        assert sorted(seen) == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1), (b"3", 1)]
        assert counts(log) == (0, 0, 2, 2)
        found = list(log.records("dlq.jobs", 0))
        assert [
            (record.value, dict(record.headers)["__dlq.errors.offset"]) for record in found
        ] == [
            (b"2", b"2"),
            (b"1", b"1"),
        ]


@LAYOUTS
def test_a_group_with_an_order_gets_one_record_of_a_key_at_a_time(
    log: korvet.Korvet, layout: str
) -> None:
    log.create_topic("keyed", 1, {**DENSE, "storage.format": layout})
    log.configure_group("jobs", {"share.order": "key"})
    log.produce("keyed", [Record(b"%d" % n, b"ab"[n % 2 :][:1]) for n in range(6)])
    with consumer_of(log, "keyed") as consumer:
        for pair in ((b"0", b"1"), (b"2", b"3"), (b"4", b"5")):
            records = list(consumer)
            assert tuple(record.value for record in records) == pair
            for record in records:
                consumer.acknowledge(record)
    log.configure_group("jobs", {"share.order": None})
    with pytest.raises(KorvetError, match="ordr"):
        log.configure_group("jobs", {"share.ordr": "key"})


def test_scheduled_records_are_appended_without_a_broker(log: korvet.Korvet) -> None:
    log.create_topic("later", 1, {**DENSE, "delivery.schedule.enable": "true"})
    with consumer_of(log, "later", idle_s=None) as consumer:
        writer = threading.Thread(
            target=lambda: korvet.Korvet(log._async.store._store._client).produce(  # type: ignore[attr-defined]
                "later", [Record(b"due", headers=[("korvet-delay-ms", b"20")])]
            )
        )
        writer.start()
        assert next(consumer).value == b"due"
        writer.join()


@pytest.mark.parametrize("kind", ["client", "url"])
def test_an_append_and_a_release_end_the_wait(redis_server: TestServer, kind: str) -> None:
    with redis_server.client() as client:
        made = (
            korvet.Korvet(client) if kind == "client" else korvet.Korvet.connect(redis_server.url)
        )
        with made as log, korvet.Korvet(client) as other:
            log.create_topic("orders", 1, {**DENSE, "storage.format": "batch"})
            log.configure_group("jobs", EARLIEST)
            with consumer_of(log, idle_s=None) as consumer:
                writer = threading.Thread(target=lambda: other.produce("orders", [Record(b"a")]))
                writer.start()
                assert next(consumer).value == b"a"
                writer.join()
                releaser = threading.Thread(target=lambda: take(other, consumer))
                releaser.start()
                assert next(consumer).deliveries == 2
                releaser.join()


def test_locks_are_renewed_from_a_handler_that_takes_long(log: korvet.Korvet) -> None:
    def ends() -> list[int]:
        """Return the ends of the locks."""
        flat = state(log).runs
        return [int(text) for text in flat[3::5]]

    with consumer_of(log, max_records=5) as consumer:
        records = [next(consumer) for _ in range(3)]
        consumer.acknowledge(records[1])
        first = ends()
        log.configure_group("jobs", {"share.record.lock.duration.ms": "40000"})
        consumer._async._renew_at = 0.0
        assert next(consumer).value == b"4"
        waiting = ends()
        log.configure_group("jobs", {"share.record.lock.duration.ms": "60000"})
        consumer.heartbeat()
        assert len(first) == 2 and first[0] == waiting[0] < first[1] + 5000 < waiting[1]
        assert all(end > waiting[1] + 15_000 for end in ends())
        log.configure_group("jobs", {"share.renew.acknowledge.enable": "false"})
        last = ends()
        consumer.heartbeat()
        assert ends() == last


def test_a_consumer_that_is_closed_releases_its_records_and_can_join_again(
    log: korvet.Korvet,
) -> None:
    consumer = consumer_of(log)
    record = next(consumer)
    consumer.close()
    assert (counts(log), log.groups()[0].members) == ((10, 0, 0, 0), 0)
    with pytest.raises(KorvetError):
        consumer.acknowledge(record)
    assert [one.deliveries for one in consumer] == [2] * 10
    consumer.close()


def test_a_group_of_another_type_and_other_topics_are_refused(log: korvet.Korvet) -> None:
    log.commit("jobs", {("orders", 0): 1})
    with pytest.raises(KorvetError, match="Group 'jobs' has another type"):
        consumer_of(log)
    log.create_topic("raw", 1, {"storage.format": "batch", "offset.mode": "bytes"})
    with pytest.raises(KorvetError, match="such topics have no share groups"):
        consumer_of(log, "raw")
    with pytest.raises(KorvetError, match="There is no topic 'ordres'"):
        consumer_of(log, "ordres")


def test_a_user_needs_the_rule_of_redis_acl_and_its_own(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer
) -> None:
    rule = redis_user.rules("korvet", "pw", waitaof=False)
    client.execute_command("ACL", "SETUSER", "shop", *rule, "~sum", *OWN)
    options = {"username": "shop", "password": "pw"}
    try:
        with (
            redis.Redis.from_url(redis_server.url, **options) as shop,
            korvet.Korvet(shop, settings=AT_ONCE) as own,
            consumer_of(own) as consumer,
        ):
            for record in consumer:
                step(consumer, shop, record)
        assert client.get("sum") == b"55"
    finally:
        client.execute_command("ACL", "DELUSER", "shop")


@pytest.mark.parametrize("kind", ["client", "url"])
def test_asyncio_consumes_and_acknowledges_in_one_step(redis_server: TestServer, kind: str) -> None:
    async def work() -> Any:
        client = redis.asyncio.Redis.from_url(redis_server.url)
        made = (
            korvet.AsyncKorvet(client)
            if kind == "client"
            else await korvet.AsyncKorvet.connect(redis_server.url)
        )
        async with client, made as log:
            await log.create_topic("orders", 2)
            await log.configure_group("jobs", EARLIEST)
            await log.produce("orders", [Record(b"%d" % n, b"%d" % n) for n in range(10)])

            async def add() -> None:
                await log.produce("orders", [Record(b"100")])

            async with await log.share_consumer("jobs", "orders") as consumer:
                count, adding = 0, None
                async for record in consumer:
                    async with client.pipeline() as pipe:
                        await consumer.check(pipe, record)
                        pipe.multi()
                        pipe.incrby("sum", int(record.value or 0))
                        receipt = await consumer.acknowledge_with(pipe, record)
                        await pipe.execute()
                    assert receipt.record is record
                    count += 1
                    await consumer.heartbeat()
                    if count == 10:
                        adding = asyncio.create_task(add())
                    if count == 11:
                        break
                assert adding is not None
                await adding
            return await client.get("sum")

    assert asyncio.run(work()) == b"145"


def test_offsets_without_a_record_are_acknowledged(redis_server: TestServer) -> None:
    async def work() -> tuple[list[bytes | None], tuple[int, ...]]:
        async with await korvet.AsyncKorvet.connect(redis_server.url) as log:
            configs = {**DENSE, "storage.format": "batch", "cleanup.policy": "compact"}
            await log.create_topic("orders", 1, configs)
            await log.configure_group("jobs", EARLIEST)
            for keys in (b"abab", b"abc", b"d"):
                records = [Record(b"%c%d" % (key, n), b"%c" % key) for n, key in enumerate(keys)]
                await log.append("orders", 0, records)
            topic = await log.find_topic("orders")
            assert await LogCleaner(log.store, topic, 0).run() is not None
            async with await log.share_consumer("jobs", "orders", idle_s=0) as consumer:
                found = []
                async for record in consumer:
                    found.append(record.value)
                    await consumer.acknowledge(record)
            state = await log.store.run(topic.partition(0).share_describe(group="jobs", most=1))
            return found, (state.start, state.available, state.acquired)

    assert asyncio.run(work()) == ([b"a0", b"b1", b"c2", b"d0"], (8, 0, 0))


def test_a_step_on_a_cluster_has_the_hash_tag_of_the_partition() -> None:
    with cluster() as nodes, korvet.Korvet.connect(nodes.url, settings=AT_ONCE) as log:
        client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
        log.create_topic("orders", 4, DENSE)
        log.configure_group("jobs", EARLIEST)
        log.produce("orders", [Record(b"%d" % n, b"%d" % n) for n in range(10)])
        with consumer_of(log, idle_s=0.05) as consumer:
            tags = set()
            for record in consumer:
                tags.add(consumer.hash_tag(record))
                with client.pipeline(transaction=True) as pipe:
                    consumer.check(pipe, record)
                    pipe.multi()
                    pipe.incrby(f"{{{consumer.hash_tag(record)}}}:sum", int(record.value or 0))
                    consumer.acknowledge_with(pipe, record)
                    pipe.execute()
            assert sum(int(client.get(f"{{{tag}}}:sum")) for tag in tags) == 45

        def add(job: AcquiredRecord, pipe: Any) -> None:
            pipe.incrby(f"{{korvet:jobs:{job.partition}}}:sum", int(job.value or 0))

        queue = korvet.Queue(log, "jobs")
        queue.create(partitions=2)
        for n in range(10):
            queue.enqueue(b"%d" % n, key=b"%d" % n)
        queue.work(add, client=client, idle_s=0.2)
        assert sum(int(client.get(f"{{korvet:jobs:{n}}}:sum")) for n in range(2)) == 45
        client.close()
