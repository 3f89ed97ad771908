"""Check appends in a caller's own pipeline, on real servers."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
from aiokafka.partitioner import murmur2

import korvet
from korvet import KorvetError, Producer, Record, StoreError
from korvet.base.errors import ErrorCode
from korvet.library import publishing
from korvet.scripts import inlined
from korvet.store import redis_user
from tests.store.cluster_topology import TestCluster, cluster
from tests.support.redis_servers import Replicated, TestServer, replicated

DENSE = {"offset.mode": "dense"}
STEPS = {"MULTI": True, "pipeline": False}
NEW = ("valkey", "redis8")
"""Servers that know WAITAOF, and get Korvet's functions here."""


@pytest.fixture
def client(redis_server: TestServer) -> Iterator[redis.Redis]:
    """The application's client on each server; the newest have Korvet's functions."""
    with redis_server.client() as made:
        if redis_server.kind != "redis62":
            made.function_flush()
        if redis_server.kind in NEW:
            made.function_load(inlined.steps())
        yield made
        if redis_server.kind in NEW:
            made.function_flush()


@pytest.fixture
def log(client: redis.Redis) -> Iterator[korvet.Korvet]:
    """A log in the application's Redis, with the topics orders and invoices."""
    with korvet.Korvet(client) as made:
        made.create_topic("orders", 1, DENSE)
        made.create_topic("invoices", 1, DENSE)
        yield made


def values(log: korvet.Korvet, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in log.records(topic, partition)]


def replace(log: korvet.Korvet, client: redis.Redis, topic: str = "orders") -> None:
    """Delete the topic and create it again from another program."""
    log.topic(topic)
    with korvet.Korvet(client) as other:
        other.delete_topic(topic)
        other.create_topic(topic, 1, DENSE)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_record_and_a_write_of_the_application_are_one_step(
    log: korvet.Korvet, client: redis.Redis, step: str, layout: str
) -> None:
    log.create_topic("stock", 1, {**DENSE, "storage.format": layout})
    with client.pipeline(transaction=STEPS[step]) as pipe:
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, "stock", Record(b"3 cups", b"ann"), Record(b"1 fork", b"ann"))
        pipe.hget("cups", "left")
        with pytest.raises(RuntimeError, match="not executed"):
            _ = receipt.offset
        replies = pipe.execute()
    assert (replies[0], replies[2]) == (1, b"7")
    assert (receipt.partition, receipt.offset) == (0, 0)
    assert receipt.appended == [korvet.Appended("stock", 0, 0, 2)]
    assert values(log, "stock") == [b"3 cups", b"1 fork"]


def test_offsets_in_bytes_are_published_too(log: korvet.Korvet, client: redis.Redis) -> None:
    log.create_topic("raw", 1, {"offset.mode": "bytes"})
    with client.pipeline() as pipe:
        first = log.publish(pipe, "raw", Record(b"a"))
        second = log.publish(pipe, "raw", Record(b"b"))
        pipe.execute()
    assert first.offset == 0 < second.offset < log.offsets("raw")[0].latest


def test_scheduled_records_are_published_when_they_are_due(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    log.create_topic("later", 1, {**DENSE, "delivery.schedule.enable": "true"})
    late = Record(b"a", headers=[("korvet-delay-ms", b"60000")])
    with client.pipeline() as pipe:
        receipt = log.publish(pipe, "later", late, on_refused="error")
        second = log.publish(pipe, "later", late)
        third = log.publish(pipe, "later", Record(b"b"))
        pipe.execute()
    assert [each.offset for each in (receipt, second, third)] == [-1, -1, 0]


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    with replicated() as running:
        yield running


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("client_of", [redis.Redis.from_url, valkey.Valkey.from_url])
def test_a_step_waits_for_replicas_and_disk(
    pair: Replicated, client_of: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_WAIT_MS", 200)
    with client_of(pair.master.url) as client, korvet.Korvet(pair.master.client()) as log:
        client.flushall()
        log.create_topic("orders", 1, DENSE)

        def published(durable: str) -> korvet.Receipt:
            with client.pipeline(transaction=STEPS[step]) as pipe:
                pipe.hset("cups", "left", 7)
                receipt = log.publish(pipe, "orders", Record(b"a"), durable=durable)
                plain = log.publish(pipe, "orders", Record(b"b"))
                assert len(pipe.execute()) == 3
            assert plain.offset >= 0
            return receipt

        assert [published(each).offset for each in ("fsync+replicas:1", "memory")] == [0, 2]
        with pair.frozen():
            assert published("fsync").offset == 4
            with pytest.raises(KorvetError, match="0 of 1 replicas have them") as late:
                _ = published("fsync+replicas:1").offset
        assert late.value.error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert values(log, "orders") == [b"a", b"b"] * 4
        with log.consumer("totals", "orders", idle_s=0) as consumer:
            first = next(consumer)
            with pair.frozen(), client.pipeline(transaction=STEPS[step]) as pipe:
                commit = consumer.commit_with(pipe, durable="replicas:1")
                pipe.execute()
            with pytest.raises(KorvetError, match="The commit is stored, but 0 of 1 replicas"):
                _ = commit.offsets
            assert next(consumer).offset == first.offset + 1
        with client.pipeline() as pipe:
            pipe.execute_command("NOSUCH")
            log.publish(pipe, "orders", Record(b"a"), durable="fsync")
            with pytest.raises(Exception, match="unknown command"):
                pipe.execute()
        assert client.hget("cups", "left") == b"7", "the connection is in order"
        with (
            pytest.raises(ValueError, match="memory, fsync, replicas:N"),
            client.pipeline() as pipe,
        ):
            log.publish(pipe, "orders", Record(b"a"), durable="disk")


def test_a_server_that_syncs_no_file_is_named(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer
) -> None:
    with client.pipeline() as pipe:
        receipt = log.publish(pipe, "orders", Record(b"a"), durable="fsync")
        assert len(pipe.execute()) == 1
    reason = "appendonly is disabled" if redis_server.kind in NEW else "unknown command"
    with pytest.raises(KorvetError, match=f"are stored, but the wait failed: .*{reason}"):
        _ = receipt.offset
    assert values(log, "orders") == [b"a"] and client.ping()


async def test_a_step_of_asyncio_waits_for_replicas_and_disk(
    pair: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_WAIT_MS", 200)
    async with redis.asyncio.Redis.from_url(pair.master.url) as client:
        await client.flushall()
        async with korvet.AsyncKorvet(client) as log:
            await log.create_topic("orders", 1, DENSE)
            for frozen, offset in ((False, 0), (True, None), (False, 2)):
                with pair.frozen() if frozen else nullcontext():
                    async with client.pipeline() as pipe:
                        receipt = await log.publish(
                            pipe, "orders", Record(b"a"), durable="fsync+replicas:1"
                        )
                        await pipe.execute()
                if offset is not None:
                    assert receipt.offset == offset
                else:
                    with pytest.raises(KorvetError, match="0 of 1 replicas have them"):
                        _ = receipt.offset
            assert await client.ping()


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_lost_its_scripts_publishes(
    log: korvet.Korvet, client: redis.Redis, step: str
) -> None:
    for number in range(3):
        client.script_flush()
        with client.pipeline(transaction=STEPS[step]) as pipe:
            pipe.hset("cups", "left", number)
            receipts = [log.publish(pipe, name, Record(b"a")) for name in ("orders", "invoices")]
            if step == "pipeline":
                pipe.execute_command("SCRIPT", "FLUSH")
            receipts.append(log.publish(pipe, "orders", Record(b"b")))
            pipe.execute()
        assert [receipt.offset for receipt in receipts] == [2 * number, number, 2 * number + 1]


def calls(client: redis.Redis, command: str) -> int:
    """Return how many calls of a command the server has executed."""
    found: Any = client.info("commandstats")
    return int(found.get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("client_of", [redis.Redis.from_url, valkey.Valkey.from_url])
def test_a_step_calls_the_functions_while_its_connection_lasts(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer, client_of: Any, step: str
) -> None:
    has = redis_server.kind in NEW
    with client_of(redis_server.url) as own:

        def published(**options: Any) -> korvet.Receipt:
            with own.pipeline(transaction=STEPS[step]) as pipe:
                receipt = log.publish(pipe, "orders", Record(b"a"), **options)
                pipe.hincrby("cups", "left", 1)
                pipe.execute()
            return receipt

        client.config_resetstat()
        assert [published().offset, published(on_refused="error").offset] == [0, 1]
        assert (calls(client, "eval"), calls(client, "fcall") > 1) == (
            (0, True) if has else (2, False)
        )
        if has:
            client.function_flush()
            with pytest.raises(Exception, match="Function not found"):
                published()
            assert published().offset == 2, "nothing was stored, and the text is sent from now on"
            client.function_load(inlined.steps())
            own.connection_pool.disconnect()
            assert published().offset == 3
            client.function_flush()
            assert client.client_kill_filter(_type="normal", skipme=True)
            assert published().offset == 4, "the new connection was asked"
            assert (calls(client, "eval"), client.hget("cups", "left")) == (2, b"6")


def test_a_pipeline_is_the_callers_own_after_a_step(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with client.pipeline() as pipe:
        own = dict(vars(pipe))
        for fails in (True, False):
            log.publish(pipe, "orders", Record(b"a"))
            pipe.execute_command("NO-COMMAND" if fails else "PING")
            with pytest.raises(redis.ResponseError) if fails else nullcontext():
                pipe.execute()
            assert vars(pipe).keys() == own.keys()
        pipe.echo("mine")
        assert pipe.execute() == [b"mine"]


def test_a_refusal_in_the_middle_of_a_step_leaves_nothing_of_the_log_half_done(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    replace(log, client)
    before = sorted(client.keys())
    with client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        refused = log.publish(pipe, "orders", Record(b"a"))
        stored = log.publish(pipe, "invoices", Record(b"b"))
        pipe.hincrby("cups", "left", -1)
        pipe.execute()
    with pytest.raises(KorvetError, match="Partition 0 of 'orders' refused a batch") as caught:
        _ = refused.offset
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert (stored.offset, client.hget("cups", "left")) == (0, b"6")
    assert sorted(client.keys()) == sorted({*before, b"cups", b"korvet:invoices:0"} | indexes())
    with korvet.Korvet(client) as other:
        assert values(other, "orders") == []


def indexes() -> set[bytes]:
    """Return the other key that a partition's first record adds."""
    return {b"{korvet:invoices:0}:index"}


def test_a_refusal_can_be_an_error_of_execute(log: korvet.Korvet, client: redis.Redis) -> None:
    replace(log, client)
    with client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        refused = log.publish(pipe, "orders", Record(b"a"), on_refused="error")
        stored = log.publish(pipe, "invoices", Record(b"b"), on_refused="error")
        with pytest.raises(redis.ResponseError, match=r"#? ?2 .*UNKNOWN_TOPIC_ID korvet:orders:0"):
            pipe.execute()
    with pytest.raises(KorvetError) as caught:
        _ = refused.offset
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert (stored.offset, client.hget("cups", "left")) == (0, b"7")


def test_a_deleted_topic_is_refused_by_its_name(log: korvet.Korvet, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        receipt = log.publish(pipe, "orders", Record(b"a"), on_refused="error")
        with korvet.Korvet(client) as other:
            other.delete_topic("orders")
        (reply,) = pipe.execute(raise_on_error=False)
    assert str(reply) == "KORVETREFUSED UNKNOWN_TOPIC_OR_PARTITION korvet:orders:0"
    with pytest.raises(KorvetError):
        _ = receipt.offset


def test_an_error_of_a_neighbour_hides_no_receipt(log: korvet.Korvet, client: redis.Redis) -> None:
    client.set("cups", "many")
    with client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, "orders", Record(b"a"))
        with pytest.raises(redis.ResponseError, match=r"Command # 1 \(HSET cups left 7\)"):
            pipe.execute()
    assert receipt.offset == 0


def test_a_step_that_redis_aborts_does_nothing(log: korvet.Korvet, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, "orders", Record(b"a"))
        pipe.execute_command("NO-COMMAND")
        with pytest.raises(redis.ResponseError, match="unknown command"):
            pipe.execute()
    with pytest.raises(redis.ResponseError, match="unknown command"):
        _ = receipt.offset
    assert values(log, "orders") == [] and not client.exists("cups")


def test_a_user_needs_the_rule_of_redis_acl_and_its_own(
    log: korvet.Korvet, client: redis.Redis, redis_server: TestServer
) -> None:
    rule = redis_user.rules("korvet", "pw", waitaof=False)
    own = ["~cups", "+multi", "+exec", "+watch"]
    client.execute_command("ACL", "SETUSER", "shop", *rule, *own)
    options = {"username": "shop", "password": "pw"}
    try:
        with redis.Redis.from_url(redis_server.url, **options) as shop, shop.pipeline() as pipe:
            log.check(pipe, "orders")
            pipe.multi()
            pipe.hset("cups", "left", 7)
            receipt = log.publish(pipe, "orders", Record(b"a"))
            pipe.execute()
        assert receipt.offset == 0
    finally:
        client.execute_command("ACL", "DELUSER", "shop")


def test_a_full_redis_does_nothing_of_a_step(log: korvet.Korvet, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        both = log.publish(pipe, "orders", Record(b"a"))
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                pipe.execute()
            alone = log.publish(pipe, "orders", Record(b"a"))
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                pipe.execute()
        finally:
            client.config_set("maxmemory", 0)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        _ = both.offset
    with pytest.raises((StoreError, redis.ResponseError), match="maxmemory"):
        _ = alone.offset
    assert values(log, "orders") == [] and not client.exists("cups")


def test_an_error_of_the_script_is_raised_at_the_receipt(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    client.set("korvet:orders:0", "no stream")
    with client.pipeline() as pipe:
        receipt = log.publish(pipe, "orders", Record(b"a"))
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            pipe.execute()
    with pytest.raises(StoreError, match="WRONGTYPE"):
        _ = receipt.offset


def test_what_a_topic_does_not_take_is_refused_before_it_is_queued(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    log.create_topic("small", 2, {"max.message.bytes": "1000"})
    log.create_topic("last", 1, {"cleanup.policy": "compact"})
    with client.pipeline() as pipe:
        with pytest.raises(KorvetError, match="There is no topic 'ordres'; there are: invoices"):
            log.publish(pipe, "ordres", Record(b"a"))
        with pytest.raises(KorvetError, match=r"max\.message\.bytes of this topic is 1000"):
            log.publish(pipe, "small", Record(b"a" * 2000))
        with pytest.raises(KorvetError, match=r"at most 1000 records and 1000 bytes .* 'small'"):
            log.publish(pipe, "small", Record(b"a" * 600, b"k"), Record(b"a" * 600, b"k"))
        with pytest.raises(KorvetError, match="at most 1000 records and 262144 bytes"):
            log.publish(pipe, "orders", *[Record(b"a")] * 1001)
        with pytest.raises(KorvetError, match="no record without a key"):
            log.publish(pipe, "last", Record(b"a"))
        with pytest.raises(KorvetError, match="small has partitions 0 to 1, not 2"):
            log.publish(pipe, "small", Record(b"a"), partition=2)
        with pytest.raises(KorvetError, match="at least one record"):
            log.publish(pipe, "orders")
        with pytest.raises(TypeError, match=r"Redis is no pipeline: pass client.pipeline\(\)"):
            log.publish(client, "orders", Record(b"a"))
        assert len(pipe) == 0


def test_a_key_chooses_the_partition_that_kafkas_clients_choose(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    log.create_topic("wide", 7, DENSE)
    keys = [b"ann", b"bob", b"", b"\xff" * 9]
    with client.pipeline() as pipe:
        receipts = [log.publish(pipe, "wide", Record(b"a", key)) for key in keys]
        together = log.publish(pipe, "wide", *(Record(b"b", key) for key in keys))
        named = log.publish(pipe, "wide", Record(b"c", b"ann"), partition=6)
        pipe.execute()
    chosen = [(murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]
    assert [receipt.partition for receipt in receipts] == chosen
    assert {part.partition for part in together.appended} == set(chosen)
    assert named.partition == 6
    tags = [log.hash_tag("wide", key) for key in keys]
    assert tags == [f"korvet:wide:{number}" for number in chosen]


def test_a_step_that_is_repeated_publishes_once_under_a_producer(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    producer = log.new_producer()
    found = []
    for _ in range(2):
        with client.pipeline() as pipe:
            receipt = log.publish(pipe, "orders", Record(b"a"), producer=producer)
            pipe.execute()
        found += receipt.appended
    assert [(part.base_offset, part.duplicate) for part in found] == [(0, False), (0, True)]
    with client.pipeline() as pipe:
        gap = log.publish(pipe, "orders", Record(b"b"), producer=producer, sequence=5)
        pipe.execute()
    with pytest.raises(KorvetError) as caught:
        _ = gap.offset
    assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.create_topic("wide", 7)
    with pytest.raises(KorvetError, match=r"for 2 partitions of 'wide'.* give the partition"):
        log.publish(pipe, "wide", Record(b"a", b"ann"), Record(b"b", b"bob"), producer=Producer(1))


def test_a_checked_step_does_nothing_if_its_topic_changed(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with client.pipeline() as pipe:
        log.check(pipe, "orders")
        with pytest.raises(TypeError, match=r"call its multi\(\) first"):
            log.publish(pipe, "orders", Record(b"a"))
        pipe.multi()
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, "orders", Record(b"a"))
        replace(log, client)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    with pytest.raises(redis.WatchError):
        _ = receipt.offset
    assert not client.exists("cups")


def test_a_checked_step_happens_while_others_append(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    replace(log, client)
    with client.pipeline() as pipe:
        log.check(pipe, "orders")
        pipe.multi()
        receipt = log.publish(pipe, "orders", Record(b"b"))
        with korvet.Korvet(client) as other:
            other.produce("orders", [Record(b"a")])
        pipe.execute()
        assert receipt.offset == 1
        with pytest.raises(KorvetError, match="There is no topic 'ordres'"):
            log.check(pipe, "ordres")


def test_the_transaction_helper_of_redis_py_publishes(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    receipts = []

    def step(pipe: Any) -> None:
        left = int(pipe.get("cups") or 10)
        pipe.multi()
        pipe.set("cups", left - 3)
        receipts.append(log.publish(pipe, "orders", Record(b"3 cups")))
        if len(receipts) == 1:
            client.set("cups", 7)  # another client is first

    client.transaction(step, "cups")
    with pytest.raises(redis.WatchError):
        _ = receipts[0].offset
    assert (receipts[1].offset, client.get("cups"), len(receipts)) == (0, b"4", 2)


def test_a_pipeline_can_be_reset_and_used_again(log: korvet.Korvet, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        dropped = log.publish(pipe, "orders", Record(b"a"))
        pipe.reset()
        pipe.set("cups", 7)
        assert pipe.execute() == [True]
        assert pipe.execute() == []
        log.publish(pipe, "orders", Record(b"b"))
        pipe.reset()
        kept = log.publish(pipe, "orders", Record(b"c"))
        pipe.execute()
    with pytest.raises(RuntimeError):
        _ = dropped.offset
    assert (kept.offset, values(log, "orders")) == (0, [b"c"])


def test_a_broken_connection_is_raised_at_the_receipt(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    with client.pipeline() as pipe:
        pipe.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        receipt = log.publish(pipe, "orders", Record(b"a"))
        pipe.client_list()
        with pytest.raises(redis.ConnectionError):
            pipe.execute()
    with pytest.raises(redis.ConnectionError):
        _ = receipt.offset


@pytest.mark.parametrize("step", STEPS)
def test_pipelines_of_asyncio_publish(redis_server: TestServer, step: str) -> None:
    async def work() -> tuple[int, list[bytes | None]]:
        async with (
            redis.asyncio.Redis.from_url(redis_server.url, decode_responses=True) as client,
            korvet.AsyncKorvet(client) as log,
        ):
            await log.create_topic("orders", 1, DENSE)
            await log.topic("orders")
            async with client.pipeline(transaction=STEPS[step]) as pipe:
                pipe.hset("cups", "left", 7)
                receipt = await log.publish(pipe, "orders", Record(b"a"), Record(b"b"))
                second = await log.publish(pipe, "orders", Record(b"c"))
                await pipe.execute()
                await log.check(pipe, "orders")
                pipe.multi()
                pipe.hset("cups", "left", 8)
                late = await log.publish(pipe, "orders", Record(b"d"), on_refused="error")
                await log.delete_topic("orders")
                with pytest.raises(redis.WatchError):
                    await pipe.execute()
            with pytest.raises(redis.WatchError):
                _ = late.offset
            assert await client.hget("cups", "left") == "7"
            return receipt.offset, second.offset

    assert asyncio.run(work()) == (0, 2)


def test_a_cancelled_execute_leaves_the_outcome_open(redis_server: TestServer) -> None:
    async def work() -> None:
        async with (
            redis.asyncio.Redis.from_url(redis_server.url) as client,
            korvet.AsyncKorvet(client) as log,
        ):
            await log.create_topic("orders", 1)
            pipe = client.pipeline()
            receipt = await log.publish(pipe, "orders", Record(b"a"))
            task = asyncio.ensure_future(pipe.execute())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(korvet.StoreUnavailable, match="the outcome is unknown"):
                _ = receipt.offset

    asyncio.run(work())


def test_pipelines_of_valkey_py_publish(log: korvet.Korvet, redis_server: TestServer) -> None:
    with valkey.Valkey.from_url(redis_server.url) as client, client.pipeline() as pipe:
        pipe.hset("cups", "left", 7)
        receipt = log.publish(pipe, "orders", Record(b"a"))
        pipe.execute()
        assert receipt.offset == 0
        log.delete_topic("invoices")
        log.create_topic("invoices", 1)
        log.check(pipe, "invoices")
        pipe.multi()
        refused = log.publish(pipe, "invoices", Record(b"a"), on_refused="error")
        client.delete("{korvet:invoices:0}:log")
        with pytest.raises(valkey.ResponseError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            pipe.execute()
    with pytest.raises(KorvetError):
        _ = refused.offset


@pytest.fixture(scope="module")
def nodes() -> Iterator[TestCluster]:
    """Three masters."""
    with cluster() as running:
        yield running


def test_a_step_on_a_cluster_has_the_hash_tag_of_its_partition(nodes: TestCluster) -> None:
    client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
    with korvet.Korvet.connect(nodes.url) as log:
        log.create_topic("orders", 4, DENSE)
        tag = log.hash_tag("orders", b"ann")
        with client.pipeline(transaction=True) as pipe:
            pipe.hset(f"{{{tag}}}:cups", "left", 7)
            receipt = log.publish(pipe, "orders", Record(b"a", b"ann"))
            pipe.execute()
            assert (receipt.offset, f"korvet:orders:{receipt.partition}") == (0, tag)
            pipe.hset("cups", "left", 7)
            refused = log.publish(pipe, "orders", Record(b"b", b"ann"))
            with pytest.raises(redis.exceptions.CrossSlotTransactionError, match="the same slot"):
                pipe.execute()
            with pytest.raises(redis.exceptions.CrossSlotTransactionError):
                _ = refused.offset
            with pytest.raises(KorvetError, match="On a Redis Cluster the table of topics"):
                log.check(pipe, "orders")
        owner = nodes.client(nodes.owner(tag))
        with owner, owner.pipeline() as plain:
            plain.hset(f"{{{tag}}}:cups", "left", 6)
            log.publish(plain, "orders", Record(b"b"), partition=receipt.partition)
            plain.execute()
            other = next(n for n in range(100) if nodes.owner(f"k{n}") == nodes.owner(tag))
            plain.hset(f"k{other}", "left", 7)
            log.publish(plain, "orders", Record(b"c"), partition=receipt.partition)
            with pytest.raises(redis.ResponseError, match="Keys in request don't hash to"):
                plain.execute()
        assert values(log, "orders", receipt.partition) == [b"a", b"b"]
        assert not client.exists("cups") and client.hget(f"{{{tag}}}:cups", "left") == b"6"
    client.close()


def test_asyncio_on_a_cluster_publishes(nodes: TestCluster) -> None:
    async def work() -> int:
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
        async with client, await korvet.AsyncKorvet.connect(nodes.url, namespace="aio") as log:
            await log.create_topic("orders", 4, DENSE)
            tag = await log.hash_tag("orders", b"ann")
            async with client.pipeline(transaction=True) as pipe:
                pipe.hset(f"{{{tag}}}:cups", "left", 7)
                receipt = await log.publish(pipe, "orders", Record(b"a", b"ann"))
                await pipe.execute()
            return receipt.offset

    assert asyncio.run(work()) == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_on_a_cluster_waits_for_the_replicas_of_its_node(
    nodes: TestCluster, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(publishing, "_WAIT_MS", 200)
    with korvet.Korvet.connect(nodes.url, namespace=f"wait-{is_async}") as log:
        topic = log.create_topic("orders", 12, DENSE)
        tags = [f"wait-{is_async}:orders:{number}" for number in range(topic.partitions)]
        owners = [nodes.owner(tag) for tag in tags]
        chosen = owners.index(0), next(n for n, owner in enumerate(owners) if owner)

        async def publish_async(number: int) -> korvet.Receipt:
            client = redis.asyncio.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
            async with client, client.pipeline(transaction=True) as pipe:
                options: Any = {"partition": number, "durable": "replicas:1"}
                receipt = log.publish(pipe, "orders", Record(b"a"), **options)
                await pipe.execute()
            return receipt

        def publish(number: int) -> korvet.Receipt:
            if is_async:
                return asyncio.run(publish_async(number))
            client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
            with client, client.pipeline(transaction=True) as pipe:
                options: Any = {"partition": number, "durable": "replicas:1"}
                receipt = log.publish(pipe, "orders", Record(b"a"), **options)
                pipe.execute()
                pipe.get(f"{{{tags[number]}}}:cups")
                assert pipe.execute() == [None], "the connection is in order"
            return receipt

        replicated, alone = map(publish, chosen)
        assert replicated.offset == 0
        with pytest.raises(KorvetError, match="0 of 1 replicas have them after 200 ms"):
            _ = alone.offset
        client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
        with client, client.pipeline() as pipe, pytest.raises(KorvetError, match="Without MULTI a"):
            log.publish(pipe, "orders", Record(b"a"), durable="replicas:1")


ONCE = {**DENSE, "dedupe.window.ms": "60000"}


def test_a_record_with_a_known_dedupe_id_is_not_stored_again(
    log: korvet.Korvet, client: redis.Redis
) -> None:
    log.create_topic("once", 1, ONCE)
    record = Record(b"3 cups", dedupe_id="order-17")
    first = log.append("once", 0, [record])
    again = log.append("once", 0, [record])
    assert (first.base_offset, first.duplicate) == (0, False)
    assert (again.base_offset, again.duplicate) == (0, True)
    for step in STEPS.values():
        with client.pipeline(transaction=step) as pipe:
            receipt = log.publish(pipe, "once", record)
            mixed = log.publish(pipe, "once", Record(b"more"), record)
            pipe.execute()
        assert (receipt.offset, receipt.appended[0].duplicate) == (0, True)
        assert (mixed.offset, mixed.appended[0].duplicate) == (-1, False)
    (stored, *_) = log.records("once", 0)
    assert stored.headers == [("korvet-dedupe-id", b"order-17")]
    assert values(log, "once") == [b"3 cups", b"more", b"more"]
    with pytest.raises(KorvetError) as caught:
        log.append("once", 0, [Record(b"x", dedupe_id="x" * 129)])
    assert caught.value.error is ErrorCode.INVALID_RECORD
