"""Check the stores on a Redis Cluster: routing, redirection, failover."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from korvet import Korvet, Record
from korvet.base.errors import ErrorCode
from korvet.groups.heartbeat_batcher import heartbeats_of
from korvet.scripts.append_call import append_many, batch_of
from korvet.scripts.call import Call
from korvet.scripts.keys import Keys
from korvet.store import replica_wait
from korvet.store.async_store import AsyncStore
from korvet.store.errors import ScriptFailed, StoreError, StoreRefused, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.store.replica_wait import ReplicaWait
from korvet.store.sync_store import SyncStore
from tests.store.cluster_topology import TestCluster, cluster, key_of_node, until
from tests.store.scripts import PUSH, Counted, echo


@pytest.fixture(scope="module")
def running() -> Iterator[TestCluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def nodes(running: TestCluster) -> TestCluster:
    """The cluster, empty, no script loaded."""
    for node in range(3):
        running.ask(node, "FLUSHALL")
        running.ask(node, "SCRIPT", "FLUSH")
    return running


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[AsyncStore]:
    async with await AsyncStore.connect(url) as store:
        yield store


def push(key: str, value: bytes) -> Call[Counted]:
    return Call(PUSH, (key,), (value,))


async def test_every_call_goes_to_the_node_of_its_slot(nodes: TestCluster) -> None:
    async with connect(nodes.url) as store:
        assert store.is_cluster
        keys = [f"list{n}" for n in range(200)]
        replies = await store.run_many([push(key, b"x") for key in keys])
        assert {reply.length for reply in replies} == {1}
        assert {nodes.owner(key) for key in keys} == {0, 1, 2}
        for key in keys:
            assert await store.command("LRANGE", key, 0, -1) == [b"x"]
        assert (await store.run(echo(b"anywhere"))).payload == b"anywhere"
        assert await store.command("PING") == b"PONG"


async def test_a_plain_url_of_a_node_is_found_to_be_a_cluster(nodes: TestCluster) -> None:
    async with connect(f"redis://127.0.0.1:{nodes.ports[1]}") as store:
        assert store.is_cluster
        for n in range(20):
            await store.run(push(f"list{n}", b"x"))
    with SyncStore.connect(f"redis://127.0.0.1:{nodes.ports[1]}") as sync:
        assert [sync.run(push(f"list{n}", b"x")).length for n in range(20)] == [2] * 20
        assert sync.command("LLEN", "list7") == 2


async def test_a_slot_that_moved_is_followed(nodes: TestCluster) -> None:
    key = key_of_node(nodes, 1)
    async with connect(nodes.url) as store:
        await store.run(push(key, b"0"))
        nodes.move(key, 1, 2)
        try:
            replies = await store.run_many([push(key, b"%d" % n) for n in range(1, 20)])
            assert [reply.length for reply in replies] == list(range(2, 21))
            assert await store.command("LRANGE", key, 0, -1) == [b"%d" % n for n in range(20)]
            assert nodes.owner(key) == 2
        finally:
            nodes.move(key, 2, 1)


async def test_a_key_of_a_migrating_slot_is_read_at_its_target(nodes: TestCluster) -> None:
    key = key_of_node(nodes, 1)
    slot, ids = key_slot(key.encode()), nodes.ids()
    async with connect(nodes.url) as store:
        nodes.ask(2, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[1])
        nodes.ask(1, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[2])
        try:
            replies = await store.run_many([push(key, b"x") for _ in range(10)])
            assert [reply.length for reply in replies] == list(range(1, 11))
            assert await store.command("LLEN", key) == 10
            with SyncStore.connect(nodes.url) as sync:
                assert sync.run(push(key, b"x")).length == 11
        finally:
            for node in (2, 1):
                nodes.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[2])
            nodes.agree()
        nodes.move(key, 2, 1)


async def test_keys_in_two_slots_are_an_error_of_the_script(nodes: TestCluster) -> None:
    async with connect(nodes.url) as store:
        keys = (key_of_node(nodes, 0), key_of_node(nodes, 1))
        with pytest.raises(ScriptFailed, match="CROSSSLOT"):
            await store.run(Call(PUSH, keys, (b"x",)))


async def test_a_message_published_at_any_node_notifies(nodes: TestCluster) -> None:
    async with (
        connect(nodes.url) as store,
        await Notifier.connect(nodes.url) as notifier,
        notifier.listen(["a"]) as subscription,
    ):
        for node in range(3):
            nodes.ask(node, "PUBLISH", "a", "x")
            assert await subscription.wait(30)
        await store.command("PUBLISH", "a", "x")
        assert await subscription.wait(30)


def test_the_sync_store_finds_every_node(nodes: TestCluster) -> None:
    with SyncStore.connect(nodes.url) as store:
        keys = [f"list{n}" for n in range(50)]
        assert {reply.length for reply in store.run_many([push(key, b"x") for key in keys])} == {1}
        key = key_of_node(nodes, 1)
        store.run(push(key, b"0"))
        nodes.move(key, 1, 2)
        try:
            assert store.run(push(key, b"1")).length == 2
            assert store.command("LRANGE", key, 0, -1) == [b"0", b"1"]
        finally:
            nodes.move(key, 2, 1)


def test_the_sync_store_reads_the_slot_map_again_after_look_again(nodes: TestCluster) -> None:
    def asked() -> int:
        stats = [nodes.ask(n, "INFO", "commandstats") for n in range(len(nodes.ports))]
        return sum(bytes(each).count(b"cmdstat_cluster|slots:") for each in stats)  # type: ignore[call-overload]

    with SyncStore.connect(nodes.url) as store:
        store.command("GET", "k")
        for n in range(len(nodes.ports)):
            nodes.ask(n, "CONFIG", "RESETSTAT")
        store.command("GET", "k")
        assert asked() == 0
        store.look_again()
        store.command("GET", "k")
        assert asked() == 1


def test_the_sync_store_waits_for_the_replicas_of_the_keys_node(nodes: TestCluster) -> None:
    with SyncStore.connect(nodes.url) as store:
        for node, copied in ((0, True), (1, False)):  # only the first has a replica
            key = key_of_node(nodes, node)
            store.run(push(key, b"x"))
            limit_s = 30.0 if copied else 0.01
            assert store.ask_copied(("LLEN", key), 1, limit_s) == (1, copied)
            assert store.ask_copied(("LLEN", key), 0, limit_s) == (1, True)


async def test_a_store_that_wrote_nothing_to_a_node_waits_for_its_replicas_too(
    nodes: TestCluster,
) -> None:
    """A repeated task writes nothing, and neither does the connection that waits for replicas.

    A stopped replica must not confirm for either of them."""
    key, replica = key_of_node(nodes, 0), nodes.processes[3]
    async with connect(nodes.url) as store:
        with SyncStore.connect(nodes.url) as other, SyncStore.connect(_plain(nodes)) as third:
            copies, run = ReplicaWait(store), store.run_of(key)
            wanted = {"run": run, "required": (1, False)}
            await store.run(push(key, b"x"))
            replica.send_signal(signal.SIGSTOP)
            try:
                await store.run(push(key, b"y"))
                assert not other.ask_copied(("LLEN", key), 1, 0.01)[1]
                assert not third.ask_copied(("LLEN", key), 1, 0.01)[1]
                assert not await copies.wait(key, timeout_s=0.01, **wanted)  # type: ignore
            finally:
                replica.send_signal(signal.SIGCONT)
            assert other.ask_copied(("LLEN", key), 1, 10.0)[1]
            assert await copies.wait(key, timeout_s=10.0, **wanted)  # type: ignore[arg-type]
            await copies.close()


def test_replicas_of_a_slot_that_moves_are_waited_for_again(nodes: TestCluster) -> None:
    key, ids = key_of_node(nodes, 0), nodes.ids()
    slot = key_slot(key.encode())
    with SyncStore.connect(nodes.url) as store:
        store.run(push(key, b"x"))
        nodes.ask(1, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        nodes.ask(0, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        try:
            with pytest.raises(StoreUnavailable, match="no answer from Redis"):
                store.ask_copied(("LLEN", key), 1, 10.0)
        finally:
            for node in (0, 1):
                nodes.ask(node, "CLUSTER", "SETSLOT", slot, "STABLE")
        assert store.ask_copied(("LLEN", key), 1, 10.0)[1]


def _plain(nodes: TestCluster) -> str:
    return f"redis://127.0.0.1:{nodes.ports[0]}"


async def test_a_master_that_dies_is_replaced_by_its_replica() -> None:
    with cluster() as nodes:
        keys = [key_of_node(nodes, node) for node in range(3)]
        async with connect(nodes.url) as store:
            await store.run_many([push(key, b"before") for key in keys])
            nodes.ask(0, "WAIT", 1, 1000)
            nodes.processes[0].kill()
            async with asyncio.timeout(30):
                while True:
                    try:
                        reply = await store.run(push(keys[0], b"after"))
                    except StoreUnavailable:
                        await asyncio.sleep(0)
                        continue
                    break
            assert reply.length == 2
            replies = await store.run_many([push(key, b"after") for key in keys[1:]])
            assert [reply.length for reply in replies] == [2, 2]
            await store.ready()


async def push_second(store: AsyncStore, key: str) -> None:
    """Push the key's second element as soon as its node has a master."""
    while True:
        try:
            assert (await store.run(push(key, b"after"))).length == 2
        except StoreUnavailable:
            await asyncio.sleep(0)
            continue
        break


async def test_a_stopped_master_is_left_once_it_is_replaced() -> None:
    with cluster() as nodes:
        key = key_of_node(nodes, 0)
        async with (
            asyncio.timeout(30),
            await AsyncStore.connect(nodes.url, timeout_s=1000) as store,
        ):
            await store.run(push(key, b"before"))
            nodes.ask(0, "WAIT", 1, 1000)
            nodes.processes[0].send_signal(signal.SIGSTOP)
            with pytest.raises(StoreUnavailable, match="another node has become the master"):
                await store.run(push(key, b"unanswered"))
            await push_second(store, key)
            nodes.processes[0].send_signal(signal.SIGCONT)


@pytest.mark.processes
async def test_a_new_master_is_connected_to_while_another_is_blocked() -> None:
    with cluster() as nodes:
        key, slow = key_of_node(nodes, 0), key_of_node(nodes, 1)
        async with asyncio.timeout(30), connect(nodes.url) as store:
            await store.run(push(key, b"before"))
            nodes.ask(0, "WAIT", 1, 1000)
            for node in range(4):
                nodes.ask(node, "CONFIG", "SET", "cluster-node-timeout", 60_000)
            nodes.ask(3, "CLUSTER", "FAILOVER")
            await asyncio.to_thread(until, lambda: nodes.owner(key) == 3)
            script = "local t repeat t = redis.call('TIME') until t[1] + 0 >= ARGV[1] + 0"
            now = int(nodes.ask(1, "TIME")[0])  # type: ignore[index]
            await store.command("EVAL", script, 1, slow, now + 4)
            await push_second(store, key)


async def test_a_script_runs_whole_or_not_while_its_slot_moves(nodes: TestCluster) -> None:
    """In such a slot Redis ends a script that touches a key which it has removed."""
    with Korvet.connect(nodes.url) as log, SyncStore.connect(nodes.url) as sync:
        log.create_topic("moves", 1, {"offset.mode": "dense"})
        log.produce("moves", [Record(b"%d" % n, key=b"k") for n in range(3)])
        topic_id = sync.command("HGET", Keys().partition("moves", 0, "").log, "topic_id").decode()
        part = Keys().partition("moves", 0, topic_id)
        sync.command("ZADD", part.aborted_txns, 0, "1:0:1")
        assert sync.run(part.clean_begin(token="me", lag_ms=0, tombstone_ms=0, dirty=0)).due
        (newest, _), *_ = sync.command("XREVRANGE", part.stream, "+", "-")
        ids = newest.decode(), newest.decode()
        assert sync.run(part.clean_copy([ids], token="me", length=0)).copied == 1
        swap = part.clean_commit(
            token="me", length=1, start=0, limit=3, cleaned=3, cleaned_bytes=30, start_bytes=0,
            start_records=0, tombstones=0, tombstone_ms=0, at_most=100, rows=["0:-1:0:0"],
        )  # fmt: skip
        append = part.append([2, "value", "v"], count=1, size=9, max_timestamp=0)
        batches = [("moves", 0, topic_id, 0, [batch_of(append)] * 2)]
        node, slot, names = nodes.owner(part.log), key_slot(part.log.encode()), nodes.ids()
        other = (node + 1) % 3
        nodes.ask(other, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[node])
        nodes.ask(node, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[other])
        client: Any = redis.RedisCluster(host="127.0.0.1", port=nodes.ports[0])
        try:
            for call in (swap, append_many(Keys(), batches)):
                async with connect(nodes.url) as store:
                    with pytest.raises(StoreRefused, match="TRYAGAIN"):
                        await store.run(call)
                with pytest.raises(StoreRefused, match="TRYAGAIN"):
                    sync.run(call)
            with pytest.raises(redis.RedisError), client.pipeline() as pipe:
                log.publish(pipe, "moves", Record(b"p"))
                pipe.execute()
            assert sync.command("XLEN", part.stream) == 3
        finally:
            for each in (other, node):
                nodes.ask(each, "CLUSTER", "SETSLOT", slot, "STABLE")
        client.close()
        assert sync.run(swap).error == 0
        assert sync.command("XLEN", part.stream) == 1
        assert [each.base for each in sync.run(append_many(Keys(), batches)).answers] == [3, 4]
        # The key that is always absent is no second group.
        beats = sync.run(heartbeats_of(Keys(), [("g", "m", "", 1)]))
        assert (beats.errors, beats.waits) == ([ErrorCode.UNKNOWN_MEMBER_ID], [-1])


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_a_wait_for_replicas_continues_where_its_slot_was_moved(
    nodes: TestCluster, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only node 0 has a replica. What a former master redirects to may lack the write."""
    key, asked = key_of_node(nodes, 1), replica_wait.ask

    async def ask(pipeline: Any, *command: Any) -> Any:
        reply = await asked(pipeline, *command)
        if command[0] == "INFO":
            return reply.replace(b"role:master", f"role:{role}".encode())
        return reply

    monkeypatch.setattr(replica_wait, "ask", ask)
    async with connect(nodes.url) as store:
        copies, run = ReplicaWait(store), store.run_of(key)
        await store.run(push(key, b"x"))
        slot, ids = key_slot(key.encode()), nodes.ids()
        nodes.ask(0, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[1])
        nodes.ask(1, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[0])
        waiting = asyncio.create_task(copies.wait(key, run=run, required=(1, False), timeout_s=30))
        await asyncio.wait([waiting], timeout=0.01)
        await asyncio.to_thread(nodes.move, key, 1, 0)
        try:
            if role == "master":
                assert await waiting
            else:
                with pytest.raises(StoreError, match=r"EVAL: (ASK|MOVED)"):
                    await waiting
        finally:
            await copies.close()
            await asyncio.to_thread(nodes.move, key, 0, 1)
