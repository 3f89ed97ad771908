"""Check members of consumer groups that commit in the application's own steps, on real servers."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
import redis.asyncio

import korvet
from korvet import Consumer, KorvetError, LostRecords, Record
from korvet.base.errors import ErrorCode
from korvet.scripts import inlined
from korvet.scripts.keys import Keys
from korvet.store import redis_user
from korvet.store.redis_py import run_inline
from korvet.store.sync_store import SyncStore
from tests.interop.librdkafka import eventually
from tests.spark.topic_log import Log, begun, forgotten, plain
from tests.store.cluster_topology import TestCluster, cluster
from tests.support.redis_servers import TestServer

DENSE = {"offset.mode": "dense"}
QUICK = {"group.consumer.heartbeat.interval.ms": "50"}
ADD = f"""{inlined.library()}
korvet.commit({{ KEYS[1], KEYS[2], KEYS[3] }}, {{ unpack(ARGV, 2) }})
return redis.call("INCRBY", KEYS[4], ARGV[1])
"""
OWN = ("+incrby", "+multi", "+exec", "+watch", "+unwatch")
GROUP = Keys().group("totals")


@pytest.fixture
def log(client: redis.Redis) -> Iterator[korvet.Korvet]:
    """A log with the topic orders, of two partitions that hold the numbers 1 to 10."""
    with korvet.Korvet(client, settings=QUICK) as made:
        made.create_topic("orders", 2, DENSE)
        for number in range(10):
            made.append("orders", number % 2, [Record(b"%d" % (number + 1))])
        yield made


def step(consumer: Consumer, client: redis.Redis, value: bytes | None) -> None:
    """Add a record's number to the sum, and commit."""
    with client.pipeline() as pipe:
        consumer.check(pipe)
        pipe.multi()
        pipe.incrby("sum", int(value or 0))
        consumer.commit_with(pipe)
        pipe.execute()


def remove(log: korvet.Korvet, consumer: Consumer) -> None:
    """Remove a member, as an administrator does."""
    run_inline(log._async.store.run(GROUP.leave([(consumer._async.member_id, "")])))  # type: ignore[attr-defined]


def committed(log: korvet.Korvet) -> dict[int, int]:
    return {row.partition: row.offset for row in log.committed("totals")}


@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("mode", ["dense", "time"])
def test_a_records_effect_and_its_commit_are_one_step(
    log: korvet.Korvet, client: redis.Redis, layout: str, mode: str
) -> None:
    log.create_topic("paid", 2, {"offset.mode": mode, "storage.format": layout})
    log.produce("paid", [Record(b"%d" % n, b"k%d" % n, [("h", b"x")], 7) for n in range(20)])
    for count in (15, 5, 0):
        with log.consumer("totals", ["paid"], idle_s=0) as consumer:
            for _, record in zip(range(count), consumer, strict=False):
                step(consumer, client, record.value)
                assert (record.key, record.timestamp_ms) == (b"k" + (record.value or b""), 7)
                assert list(record.headers) == [("h", b"x")]
            if count == 0:
                assert list(consumer) == []
    assert client.get("sum") == b"190"
    assert [row.lag for row in log.committed("totals")] == [0, 0]
    assert [(group.type, group.members) for group in log.groups()] == [("consumer", 0)]


def test_a_member_that_was_removed_neither_commits_nor_writes(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        next(consumer)
        remove(log, consumer)
        with pytest.raises(KorvetError, match="continue the iteration"):
            consumer.commit()
        next(consumer)
        with client.pipeline() as pipe:
            consumer.check(pipe)
            pipe.multi()
            pipe.incrby("sum", 1)
            watched = consumer.commit_with(pipe)
            with pytest.raises(RuntimeError, match="was not executed"):
                _ = watched.offsets
            remove(log, consumer)
            with pytest.raises(redis.WatchError):
                pipe.execute()
        with pytest.raises(redis.WatchError):
            _ = watched.offsets
        next(consumer)
        remove(log, consumer)
        with client.pipeline() as pipe, pytest.raises(KorvetError, match="continue"):
            consumer.check(pipe)
        next(consumer)
        assert not client.exists("sum") and committed(log) == {}
        remove(log, consumer)
        with client.pipeline() as pipe:
            pipe.incrby("sum", 1)
            refused = consumer.commit_with(pipe, on_refused="error")
            with pytest.raises(redis.ResponseError, match="KORVETREFUSED UNKNOWN_MEMBER_ID"):
                pipe.execute()
        with pytest.raises(KorvetError) as caught:
            _ = refused.offsets
        assert caught.value.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert client.get("sum") == b"1"  # MULTI does not roll back
        assert {int(record.value or 0) for record in consumer} == set(range(1, 11))


def test_a_step_that_failed_is_read_again_and_cannot_happen_late(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        first = next(consumer)
        with client.pipeline() as late:
            consumer.check(late)
            late.multi()
            late.incrby("sum", 100)
            consumer.commit_with(late)
            consumer.rewind()  # as after a timeout, whose outcome is unknown
            assert next(consumer) == first
            with pytest.raises(redis.WatchError):
                late.execute()
        assert next(consumer) == first
        with client.pipeline() as begun:
            consumer.check(begun)  # and then a command of the application fails
        assert next(consumer) == first
        step(consumer, client, first.value)
        for record in consumer:
            step(consumer, client, record.value)
    assert client.get("sum") == b"55"


def test_a_commit_names_the_offset_from_which_it_was_read(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        next(consumer)
        client.hset(GROUP.offsets, mapping={"korvet:orders:0": 2, "korvet:orders:1": 2})
        with pytest.raises(KorvetError) as caught:
            consumer.commit()
        assert caught.value.error is ErrorCode.INVALID_RECORD_STATE
        assert len([record for record in consumer if record.offset >= 2]) == 6
        consumer.commit()
        consumer.commit()
    assert committed(log) == {0: 5, 1: 5}


@pytest.mark.parametrize("kind", ["script", "function"])
def test_a_script_of_the_application_commits(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer, kind: str
) -> None:
    if kind == "function":
        if redis_server.kind == "redis62":
            return  # It has none.
        client.execute_command("FUNCTION", "LOAD", "REPLACE", inlined.functions())
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        for count, record in enumerate(consumer, 1):
            with consumer.commit_args() as (keys, args):
                if kind == "script":
                    client.eval(ADD, 4, *keys, "sum", record.value or b"", *args)
                else:
                    assert client.fcall("korvet_commit", 3, *keys, *args) == b"OK"
            # redis-py repeats a script if the connection breaks after Redis has run it.
            with pytest.raises(redis.ResponseError, match="did not begin at the committed offsets"):
                client.eval(ADD, 4, *keys, "sum", 1000, *args)
            if count == 9:
                break
        last = next(consumer)
        with pytest.raises(redis.ResponseError, match="not an integer"), consumer.commit_args():
            client.incrby("sum", "a")  # type: ignore[arg-type]
        assert next(consumer) == last
    assert sum(committed(log).values()) == 9


def test_several_commits_of_one_pipeline_are_settled_together(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with log.consumer("totals", ["orders"], idle_s=0) as consumer, client.pipeline() as pipe:
        receipts = []
        for record in consumer:
            pipe.incrby("sum", int(record.value or 0))
            receipts.append(consumer.commit_with(pipe))
        assert consumer.commit_with(pipe).offsets == {}
        pipe.execute()
        found = [offset for receipt in receipts for offset in receipt.offsets.values()]
        assert sorted(found) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (client.get("sum"), committed(log)) == (b"55", {0: 5, 1: 5})


def test_members_share_the_partitions(log: korvet.Korvet, client: redis.Redis) -> None:
    with (
        korvet.Korvet(client, settings=QUICK) as other,
        log.consumer("totals", ["orders"], idle_s=0.01) as one,
    ):
        first = next(one)
        with other.consumer("totals", ["orders"], idle_s=0.01) as two:
            while len(one.assignment) != 1 or len(two.assignment) != 1:
                one.next()
                two.next()
            assert sorted(one.assignment + two.assignment) == [("orders", 0), ("orders", 1)]
            with client.pipeline() as pipe:
                if ("orders", first.partition) not in one.assignment:
                    with pytest.raises(KorvetError, match="continue the iteration"):
                        one.commit_with(pipe)
        while len(one.assignment) != 2:
            one.next()


def test_a_member_that_died_is_removed_without_a_broker(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with korvet.Korvet(client, settings=QUICK) as other:
        dead = other.consumer("totals", ["orders"])
        with log.consumer("totals", ["orders"], idle_s=0.05) as consumer:
            member = f"m:{dead._async.member_id}"
            now_s, _ = client.time()  # type: ignore[misc]
            client.zadd(GROUP.deadlines, {member: now_s * 1000 - 1})
            found = set()
            while len(found) < 10:
                found |= {record.value for record in consumer}
            assert len(consumer.assignment) == 2 and client.hlen(GROUP.consumer_members) == 1


@pytest.mark.parametrize("kind", ["client", "url"])
def test_a_record_ends_the_wait(redis_server: TestServer, kind: str) -> None:
    with redis_server.client() as client:
        made = (
            korvet.Korvet(client) if kind == "client" else korvet.Korvet.connect(redis_server.url)
        )
        with made as log:
            log.create_topic("batches", 1, {**DENSE, "storage.format": "batch"})
            log.create_topic("records", 1, DENSE)
            with log.consumer("totals", ["batches", "records"]) as consumer:
                for name in ("batches", "records"):
                    writer = threading.Thread(
                        target=lambda: korvet.Korvet(client).produce(name, [Record(b"a")])  # noqa: B023
                    )
                    writer.start()
                    assert next(consumer).topic == name
                    writer.join()
                client.xadd("korvet:records:0", {"value": "native"})
                assert next(consumer).value == b"native"


def test_a_follower_reads_from_now_or_from_a_position(log: korvet.Korvet) -> None:
    with log.follow("orders", idle_s=0) as now, log.follow("orders", partition=1, idle_s=0) as one:
        assert list(now) == list(one) == []
        log.append("orders", 0, [Record(b"11")])
        assert [record.value for record in now] == [b"11"] and list(one) == []
    with log.follow("orders", 3, partition=0, idle_s=0) as offset:
        assert [record.value for record in offset] == [b"7", b"9", b"11"]
    with log.follow("orders", datetime(2020, 1, 1, tzinfo=UTC), idle_s=0) as moment:
        assert len(list(moment)) == 11
    with log.follow("orders", "earliest", partition=1, idle_s=0) as late:
        log.delete_records("orders", 1, before=3)
        assert [record.value for record in late] == [b"8", b"10"]
    with pytest.raises(KorvetError, match="orders has partitions 0 to 1, not 2"):
        log.follow("orders", partition=2)


def test_a_consumer_that_was_closed_can_join_again(log: korvet.Korvet) -> None:
    consumer = log.consumer("totals", "orders", idle_s=0)
    assert len(list(consumer)) == 10
    consumer.close()
    assert (consumer.assignment, log.groups()[0].members) == ([], 0)
    assert len(list(consumer)) == 10
    consumer.commit()
    consumer.close()
    assert committed(log) == {0: 5, 1: 5}


def test_a_log_that_is_closed_has_no_connections(client: redis.Redis) -> None:
    def connections() -> set[str]:
        return {connection["id"] for connection in client.client_list()}

    before = connections()
    with korvet.Korvet(client) as made:
        made.topics()
        made.create_topic("closed", 1)
        with made.consumer("totals", "closed", idle_s=0) as consumer:
            assert list(consumer) == []
        assert connections() - before
    # The server notices the end of a connection a moment later.
    eventually(lambda: connections() <= before)


def test_a_user_needs_the_rule_of_redis_acl_and_its_own(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer
) -> None:
    rule = redis_user.rules("korvet", "pw", waitaof=False)
    client.execute_command("ACL", "SETUSER", "shop", *rule, "~sum", *OWN)
    options = {"username": "shop", "password": "pw"}
    try:
        with (
            redis.Redis.from_url(redis_server.url, **options) as shop,
            korvet.Korvet(shop) as own,
            own.consumer("totals", ["orders"], idle_s=0.01) as consumer,
        ):
            for record in consumer:
                step(consumer, shop, record.value)
        assert client.get("sum") == b"55"
    finally:
        client.execute_command("ACL", "DELUSER", "shop")


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("mode", ["dense", "time"])
def test_readers_of_lost_records_warn_and_continue_at_the_first_of_them(
    log: korvet.Korvet,
    redis_server: TestServer,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    is_known: bool,
) -> None:
    with SyncStore.connect(redis_server.url) as store:
        stored = Log(store, redis_server.url)
        topic = stored.create("t", mode=mode)
        ended = stored.append(topic, 0, plain(2))[-1][0] + 1
        with log.follow("t", "earliest", idle_s=0) as follower:
            with forgotten(stored):
                position = stored.append(topic, 0, plain(2))[-1][0] + 1
                assert len(list(follower)) == 4
            begun(stored, topic, position if is_known else -1)
            stored.append(topic, 0, plain(1))
            assert len(list(follower)) == 1
    log.commit("totals", {("t", 0): position})
    with log.consumer("totals", ["t"], idle_s=0) as consumer:
        assert len(list(consumer)) == 1
        consumer.commit()
        assert list(consumer) == []
    assert sum(f"from offset {ended} on" in each for each in caplog.messages) == 2
    with pytest.raises(LostRecords, match=f"from offset {position}: ") as caught:
        log.fetch("t", 0, position)
    assert caught.value.first == ended


@pytest.mark.parametrize("mode", ["dense", "time"])
def test_a_log_whose_records_were_all_lost_is_read_from_its_start(
    log: korvet.Korvet, redis_server: TestServer, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    with SyncStore.connect(redis_server.url) as store:
        stored = Log(store, redis_server.url)
        topic = stored.create("t", mode=mode)
        with forgotten(stored):
            position = stored.append(topic, 0, plain(2))[-1][0] + 1
        begun(stored, topic, position)
        stored.append(topic, 0, plain(3))
    assert len(list(log.records("t", 0))) == 3
    assert len(log.fetch("t", 0, log.offsets("t")[0].earliest).records) == 3
    with log.follow("t", "earliest", idle_s=0) as follower:
        assert len(list(follower)) == 3
    assert not caplog.messages


def test_a_group_without_offsets_begins_where_the_caller_says(log: korvet.Korvet) -> None:
    with log.consumer("new", ["orders"], auto_offset_reset="latest", idle_s=0) as consumer:
        assert list(consumer) == []
        log.append("orders", 0, [Record(b"11")])
        assert [record.value for record in consumer] == [b"11"]
        consumer.commit()
    log.delete_records("orders", 1, before=4)
    log.commit("old", {("orders", 1): 1})
    with log.consumer("old", ["orders"], idle_s=0) as consumer:
        assert len(list(consumer)) == 7


def test_groups_of_other_kinds_are_refused(log: korvet.Korvet, client: redis.Redis) -> None:
    for kind in ("share", "streams"):
        client.hset(Keys().group(kind).group, "type", kind)
        with pytest.raises(KorvetError, match=f"Group '{kind}' has another type") as caught:
            log.consumer(kind, ["orders"])
        assert caught.value.error is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KorvetError, match="There is no topic 'ordres'"):
        log.consumer("totals", ["ordres"])


def test_offsets_of_an_open_transaction_are_waited_for(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    client.hset(GROUP.txn_pending, "7 korvet:orders:1", "pending")
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        assert {record.partition for record in consumer} == {0}
        client.delete(GROUP.txn_pending)
        found = None
        while found is None:
            found = consumer.next()
        assert found.partition == 1


def test_a_topic_that_is_created_again_is_read_from_its_begin(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with log.consumer("totals", ["orders"], idle_s=0) as consumer:
        assert len(list(consumer)) == 10
        consumer.commit()
        with korvet.Korvet(client) as other:
            other.delete_topic("orders")
            other.create_topic("orders", 2, DENSE)
            other.append("orders", 0, [Record(b"again")])
        found = None
        while found is None:
            found = consumer.next()
        assert (found.value, found.offset) == (b"again", 0)


@pytest.mark.parametrize("kind", ["client", "url"])
def test_asyncio_consumes_and_commits_in_one_step(redis_server: TestServer, kind: str) -> None:
    async def work() -> tuple[Any, list[int]]:
        client = redis.asyncio.Redis.from_url(redis_server.url)
        made = (
            korvet.AsyncKorvet(client)
            if kind == "client"
            else await korvet.AsyncKorvet.connect(redis_server.url)
        )
        async with client, made as log:
            await log.create_topic("orders", 2)
            await log.produce("orders", [Record(b"%d" % n, b"%d" % n) for n in range(10)])

            async def add() -> None:
                await log.produce("orders", [Record(b"100")])

            async with await log.consumer("totals", ["orders"]) as consumer:
                count, adding = 0, None
                async for record in consumer:
                    async with client.pipeline() as pipe:
                        await consumer.check(pipe)
                        pipe.multi()
                        pipe.incrby("sum", int(record.value or 0))
                        receipt = await consumer.commit_with(pipe)
                        await pipe.execute()
                    assert receipt.offsets
                    count += 1
                    if count == 10:
                        adding = asyncio.create_task(add())
                    if count == 11:
                        break
                assert adding is not None
                await adding
            async with await log.follow("orders", "earliest", idle_s=0) as follower:
                assert len([record async for record in follower]) == 11
            return await client.get("sum"), [row.lag for row in await log.committed("totals")]

    assert asyncio.run(work()) == (b"145", [0, 0])


@pytest.fixture(scope="module")
def nodes() -> Iterator[TestCluster]:
    """Three masters."""
    with cluster() as running:
        yield running


def test_a_step_on_a_cluster_has_the_hash_tag_of_the_group(nodes: TestCluster) -> None:
    client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
    with korvet.Korvet.connect(nodes.url) as log:
        log.create_topic("orders", 4, DENSE)
        log.produce("orders", [Record(b"%d" % n, b"%d" % n) for n in range(10)])
        with log.consumer("totals", ["orders"], idle_s=0.05) as consumer:
            total = f"{{{consumer.hash_tag}}}:sum"
            for record in consumer:
                with client.pipeline(transaction=True) as pipe:
                    consumer.check(pipe)
                    pipe.multi()
                    pipe.incrby(total, int(record.value or 0))
                    consumer.commit_with(pipe)
                    pipe.execute()
            assert client.get(total) == b"45"
            log.produce("orders", [Record(b"1")])
            next(consumer)
            with client.pipeline(transaction=True) as pipe:
                pipe.incrby("sum", 1)
                refused = consumer.commit_with(pipe)
                with pytest.raises(redis.exceptions.CrossSlotTransactionError):
                    pipe.execute()
            with pytest.raises(redis.exceptions.CrossSlotTransactionError):
                _ = refused.offsets
            assert next(consumer).value == b"1"
    client.close()
