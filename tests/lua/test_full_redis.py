"""A Redis at maxmemory: what reads, commits, ends or removes is written, what adds is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts import bundle
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreRefused
from korvet.store.replica_wait import ReplicaWait
from korvet.store.sync_store import SyncStore
from tests.log.test_cleaner import Log
from tests.lua.groups import Group as ClassicGroup
from tests.lua.groups import commit_call
from tests.lua.partition import DENSE_MS, ID, KEYS, Part
from tests.lua.share import Group as ShareState
from tests.lua.streams import Group as StreamsGroup
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.lua.test_group_share_heartbeat import Group as ShareGroup
from tests.lua.test_schedule import add, move, row
from tests.lua.test_tables import Producer as TableProducer
from tests.lua.transactions import Coordinator, Logs
from tests.support.redis_servers import TestServer
from tests.support.store_runners import StoreRunner

ADDING = """
    acl.create log.append log.append_many log.create log.fill_table log.load log.rebuild log.restore
    schedule.add topic.add_partitions topic.create writer.claim_producer_id writer.pin_partitions
    writer.pin_plan
"""
"""What adds as much as clients send or a log has, or what a client does before it produces."""
ONCE = {"broker.init_cluster_id", "broker.init_lineage", "user.init_decoy_key"}
"""What writes to an empty Redis only."""
REMOVING = {"log.forget_segments", "log.group_destroy", "topic.forget_deleted"}
"""What only deletes: Redis allows that anyway."""

Full = Callable[[], None]


@pytest.fixture
def runner(redis_server: TestServer) -> Iterator[StoreRunner]:
    """Each real server in turn."""
    with redis_server.client() as client:
        yield StoreRunner(client)
        client.config_set("maxmemory", 0)


@pytest.fixture
def full(runner: StoreRunner) -> Full:
    """Return a function that fills the server."""
    return lambda: runner.command("CONFIG", "SET", "maxmemory", 1) and None


def test_a_script_that_a_full_redis_refuses_adds_what_clients_send() -> None:
    contracts = [bundle.load(name).contract for name in bundle.names()]
    refused = {each.name for each in contracts if each.writes and not each.full}
    assert refused == {*ADDING.split()} | ONCE | REMOVING


@pytest.mark.parametrize("name", [n for n in bundle.names() if bundle.load(n).contract.full])
def test_a_script_for_a_full_redis_writes_what_opens_it_first(name: str) -> None:
    found, text = bundle.load(name), bundle.load(name).text
    when = found.contract.full
    line = 'redis.call("PERSIST", KEYS[1])'
    wanted = line if when == "always" else f"if {when} then {line} end"
    assert wanted in text
    if when != "always":
        assert f"local {when} = " in text[: text.index(wanted)]


def test_offsets_are_listed_while_redis_refuses_all_writes(runner: StoreRunner) -> None:
    part = Part(runner).create()
    part.append(3)
    runner.command("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        assert part.bounds().records == 3
    finally:
        runner.command("CONFIG", "SET", "min-replicas-to-write", 0)


def test_a_classic_member_stays_while_redis_is_full(runner: StoreRunner, full: Full) -> None:
    group = ClassicGroup(runner)
    (leader, follower), generation = group.stable(2)
    full()
    for member in (leader, follower):
        assert group.heartbeat(member, generation) == ErrorCode.NONE
        assert group.commit(5, member=member, generation=generation) == ErrorCode.NONE
    assert group.committed() == 5
    assert not group.join(leader).error
    again = group.join(follower)
    generation = group.poll_join(follower).generation
    assert not again.error and generation > 0
    for member in (leader, follower):
        assert group.sync(member, generation, ((leader, b"a"), (follower, b"b"))).error in (0, 27)
    assert group.join().error == 0, "a new member of a small group"
    assert group.leave((follower, "")).error == 0
    assert group.tick().error == 0


def test_members_of_all_newer_types_stay_while_redis_is_full(
    runner: StoreRunner, full: Full
) -> None:
    groups: tuple[Any, ...] = (ConsumerGroup(runner), ShareGroup(runner))
    for group in groups:
        runner.command("FLUSHALL")
        epoch = group.beat("a", 0).epoch
        full()
        assert group.beat("a", epoch).error == 0
        assert group.beat("b", 0).error == 0
        assert group.beat("a", epoch).error == 0
        assert group.beat("b", -1).error == 0
        runner.command("CONFIG", "SET", "maxmemory", 0)
    runner.command("FLUSHALL")
    streams = StreamsGroup(runner)
    streams.beat("a", 0)
    full()
    epoch = streams.beat("a", 0).epoch
    assert streams.beat("a", epoch).error == 0 and streams.beat("b", 0).error == 0


def test_a_member_of_a_consumer_group_commits_while_redis_is_full(
    runner: StoreRunner, full: Full
) -> None:
    group = ConsumerGroup(runner)
    epoch = group.beat("a", 0).epoch
    full()
    rows = [("t", 0, 7, 0, "a" * 32, "")]
    assert runner.run(commit_call(rows, "a", epoch)).error == ErrorCode.NONE


def test_new_groups_and_members_are_refused_above_a_bound(runner: StoreRunner, full: Full) -> None:
    fields = [word for n in range(200) for word in (f"g{n}", "1")]
    runner.command("HSET", KEYS.groups(), *fields)
    full()
    with pytest.raises(StoreRefused, match="OOM"):
        runner.run(KEYS.group_register(group="one more"))
    assert runner.run(KEYS.group_register(group="g7")).added == 0
    runner.command("HDEL", KEYS.groups(), "g1")
    assert runner.run(KEYS.group_register(group="one more")).added == 1


def test_a_large_group_takes_no_member_while_redis_is_full(runner: StoreRunner, full: Full) -> None:
    group = ShareGroup(runner)
    epoch = 0
    for number in range(100):
        epoch = group.beat(f"m{number}", 0).epoch
    full()
    with pytest.raises(StoreRefused, match="OOM"):
        group.beat("one more", 0, max_size=1000)
    assert group.beat("m99", epoch).error == 0
    assert group.beat("m0", -1).error == 0
    assert group.beat("one more", 0).error == 0


def test_a_large_classic_group_keeps_its_own_members_while_redis_is_full(
    runner: StoreRunner, full: Full
) -> None:
    group = ClassicGroup(runner)
    pending = group.join(require_member_id=1).member.decode()
    static = group.join(instance="i").member.decode()
    for _ in range(100):
        assert group.join().error == 0
    full()
    with pytest.raises(StoreRefused, match="OOM"):
        group.join()
    assert [group.join(id).error for id in (pending, static)] == [0, 0]
    assert group.join(instance="i").error == 0


def test_records_are_consumed_and_removed_while_redis_is_full(
    runner: StoreRunner, full: Full
) -> None:
    part = Part(runner, "record", "dense").create()
    for _ in range(4):
        part.append()
    share = ShareState(part)
    share.probe()
    full()
    with pytest.raises(StoreRefused, match="OOM"):
        part.append()
    assert share.acquire("m", (0, 1)) == [(0, 1, 1)]
    assert share.accept("m", 0, 0) == ErrorCode.NONE
    assert share.release("m") == 1
    assert part.truncate(2).error == 0
    assert part.retain(0).error == 0
    assert part.truncate(-1).error == 0
    assert part.offsets() == []
    runner.command("CONFIG", "SET", "maxmemory", 0)
    assert part.append().base == 4, "no restart is needed"


def test_a_transaction_ends_while_redis_is_full(runner: StoreRunner, full: Full) -> None:
    logs = Logs(runner).create()
    tx = Coordinator(logs)
    producer = tx.init().producer_id
    number = tx.add(producer, 0, [0]).transaction
    assert logs.begin(0, producer, 0, number) == ErrorCode.NONE
    logs.append(0, b"v", (producer, 0, 0), number)
    full()
    assert tx.finish(producer, 0, True, False).error == 0
    assert logs.mark(0, producer, 0, number, True).error == 0
    assert logs.committed(0) == [b"v"]
    assert tx.init().error in (0, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_a_transaction_is_in_the_table_once_a_full_redis_has_memory(
    runner: StoreRunner, full: Full
) -> None:
    part = Part(runner, mode="dense", table=1).create()
    producer = TableProducer(part, 1)
    producer.put((b"a", b"1"))
    full()
    producer.end(committed=True)
    with pytest.raises(StoreRefused):
        runner.run(part.keys.fill_table((), at_most=10))
    assert part.state()["table"] == "0"
    runner.command("CONFIG", "SET", "maxmemory", 0)
    assert runner.run(part.keys.fill_table((), at_most=10)).folded == 2
    assert runner.command("HGET", part.keys.table, b"a") == b"1"


def test_scheduled_records_leave_a_full_redis(runner: StoreRunner, full: Full) -> None:
    part = Part(runner, "record", "dense").create()
    add(part, row(part, b"due", "at", 1))
    full()
    assert move(part).records == 1
    assert part.offsets() == [0]


def test_a_full_redis_answers_lag_and_offsets(runner: StoreRunner, full: Full) -> None:
    part = Part(runner, "record", "dense").create()
    part.append(3)
    part.native()
    full()
    assert runner.run(KEYS.partition("t", 0, ID).lag(offset=1)).records == 3
    assert part.bounds().next == 4


async def test_a_full_redis_is_compacted(runner: StoreRunner, full: Full) -> None:
    """Only compaction frees memory of a topic that has no other limit."""
    one = Log("record", "dense", runner)
    for _ in range(10):
        one.append([(b"k%d" % n, b"v" * 100) for n in range(100)])
    stream = KEYS.partition("t", 0).stream
    before = runner.command("MEMORY", "USAGE", stream)
    full()
    assert (await one.compact()).removed == 900
    assert [row[2] for row in await one.read()] == [b"k%d" % n for n in range(100)]
    assert runner.command("MEMORY", "USAGE", stream) < before / 5


def test_a_full_redis_refuses_a_large_copy(runner: StoreRunner, full: Full) -> None:
    part = Part(runner, "record", "dense").create()
    first, second = (part.append().base for _ in range(2))
    runner.command("HSET", part.keys.log, "bytes", 2**27)
    plan: dict[str, Any] = {"lag_ms": 0, "tombstone_ms": 0, "dirty": 0}
    full()
    assert runner.run(KEYS.partition("t", 0, ID).clean_begin(token="p", **plan)).due == 1
    for length, offset in enumerate((first, second)):
        at = f"{DENSE_MS}-{offset}"
        call = KEYS.partition("t", 0).clean_copy([(at, at)], token="p", length=length)
        if not length:
            assert runner.run(call).copied == 1
            continue
        with pytest.raises(StoreRefused, match="OOM"):
            runner.run(call)


async def test_a_full_redis_has_replicas_waited_for(redis_server: TestServer, full: Full) -> None:
    full()
    async with await AsyncStore.connect(redis_server.url) as store:
        copies = ReplicaWait(store)
        run = store.run_of("k")
        assert await copies.wait("k", run=run, required=(0, False), timeout_s=1.0)
        await copies.close()
    with SyncStore.connect(redis_server.url) as patient:
        assert patient.ask_copied(("EXISTS", "k"), 0, 0.1) == (0, True)
