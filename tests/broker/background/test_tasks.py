"""Background tasks: an error of one does not affect the others."""

import asyncio
from typing import Any

import anyio
import pytest

from korvet.broker.background import runner as task_runner
from korvet.broker.background import tasks as background
from korvet.broker.background.compaction import Compaction
from korvet.broker.background.gauges import ConsumedGauges
from korvet.broker.background.runner import TaskRunner
from korvet.broker.background.tasks import BackgroundTasks
from korvet.cluster.registration import Endpoint
from korvet.cluster.registration import LiveBroker as Member
from korvet.log.cleaner import LogCleaner
from korvet.store.errors import RedisUnreachable, ScriptFailed, StoreRefused
from tests.admin.test_incremental_alter_configs import TOPIC, replace
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("unexpected"),
        ScriptFailed("log.clean_begin", 1, "WRONGTYPE"),
        StoreRefused("OOM command not allowed when used memory > 'maxmemory'."),
    ],
)
async def test_a_compaction_that_fails_leaves_the_other_partitions_theirs(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    await broker.create("t", partitions=3, cleanup_policy="compact")
    seen: list[int] = []

    async def run(self: Any) -> None:
        seen.append(self._partition)
        if self._partition == 0:
            raise failure

    monkeypatch.setattr(LogCleaner, "run", run)
    await BackgroundTasks(broker.services).compaction.compact_all()
    assert seen == [0, 1, 2]
    assert "partition compaction failed" in caplog.text


async def test_a_topic_that_is_compacted_no_more_keeps_no_half_of_a_copy(broker: Broker) -> None:
    await broker.create("t", partitions=2, cleanup_policy="compact")
    store, tasks = broker.services.store, BackgroundTasks(broker.services)
    copies = [broker.services.keys.partition("t", number).compacted for number in range(2)]

    async def left(policy: str) -> int:
        await store.command("XADD", copies[1], "*", "a pass", "that died")
        answer = await replace(broker, TOPIC, "t", cleanup_policy=policy)
        assert answer.error_code == 0
        await tasks.compaction.compact_all()
        return int(await store.command("EXISTS", *copies))

    # While a topic is compacted, a copy stays for the next pass, as soon as a pass is worthwhile.
    assert [await left(policy) for policy in ("compact", "delete", "compact", "delete")] == [
        1,
        0,
        1,
        0,
    ]


async def test_a_server_of_several_that_is_away_keeps_no_other_from_compaction_and_retention(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions of a server of the cluster that is away wait; all others are processed."""
    store, keys = broker.services.store, broker.services.keys
    await broker.create("a", partitions=1, retention_ms="0")
    await broker.create("b", partitions=1, cleanup_policy="compact")
    await broker.create("c", partitions=200, retention_ms="0")
    await broker.create("d", partitions=1, cleanup_policy="compact")
    tasks, away = BackgroundTasks(broker.services), RedisUnreachable("one of several is away")
    for name in ("a", "c"):
        await store.command("XADD", keys.partition(name, 0).stream, "1-0", "value", "v")
        await store.command("XADD", keys.partition(name, 0).compacted, "*", "a pass", "that died")
    command, submit = store.submit_command, store.submit

    def failed() -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(away)
        return future

    def commanded(*words: Any) -> Any:
        return failed() if ":a:" in words[1] else command(*words)

    def submitted(call: Any, *rest: Any) -> Any:
        return failed() if any(":a:" in str(key) for key in call.keys) else submit(call, *rest)

    compacted: list[str] = []

    async def run(self: Any) -> None:
        compacted.append(self._topic.name)
        if self._topic.name == "b":
            raise away

    with monkeypatch.context() as patch:
        patch.setattr(store, "submit_command", commanded)
        patch.setattr(store, "submit", submitted)
        patch.setattr(LogCleaner, "run", run)
        await tasks.compaction.compact_all()
        assert compacted == ["b", "d"]
        await tasks.retention.retain_all()
    assert await store.command("XLEN", keys.partition("c", 0).stream) == 0
    await tasks.compaction.compact_all()
    for name in ("a", "c"):
        assert not await store.command("EXISTS", keys.partition(name, 0).compacted)


async def test_a_server_of_several_that_is_away_keeps_no_other_partition_from_retention(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", partitions=200, retention_ms="0")
    store, keys = broker.services.store, broker.services.keys
    for number in (1, 199):
        await store.command("XADD", keys.partition("t", number).stream, "1-0", "value", "v")
    submit, asked = store.submit, 0

    def submitted(call: Any, *rest: Any) -> Any:
        nonlocal asked
        asked += any(":t:" in str(key) for key in call.keys)
        if not any(":t:0" in str(key) for key in call.keys):
            return submit(call, *rest)
        future = asyncio.get_running_loop().create_future()
        future.set_exception(RedisUnreachable("one of several is away"))
        return future

    monkeypatch.setattr(store, "submit", submitted)
    await BackgroundTasks(broker.services).retention.retain_all()
    for number in (1, 199):
        assert await store.command("XLEN", keys.partition("t", number).stream) == 0
    # The two foreign entries are counted, then retention is applied again.
    assert asked == 204, "the next round sends requests to it again"
    await BackgroundTasks(broker.services).retention.expire_producers()
    assert asked == 404


async def test_invalid_keys_of_a_partition_stop_no_other_partitions_retention(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    store, keys = broker.services.store, broker.services.keys
    for name in ("a", "b"):
        await broker.create(name, retention_ms="0")
        for number in range(2):
            await store.command("XADD", keys.partition(name, number).stream, "1-0", "value", "v")
    for key in (keys.partition("a", 0).stream, keys.partition("a", 0).producers):
        await store.command("SET", key, "a foreign value")
    await BackgroundTasks(broker.services).retention.retain_all()
    left = [
        await store.command("XLEN", keys.partition(name, number).stream)
        for name, number in (("a", 1), ("b", 0), ("b", 1))
    ]
    assert left == [0, 0, 0]
    assert "background task failed" in caplog.text
    await BackgroundTasks(broker.services).retention.expire_producers()


async def test_a_background_task_that_fails_is_restarted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_runner, "RESTART_S", 0)
    again = anyio.Event()
    tries: list[int] = []

    async def compact(self: Any) -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ValueError("unexpected")
        again.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(Compaction, "run", compact)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(BackgroundTasks(broker.services).run)
            await again.wait()
            tasks.cancel_scope.cancel()
    assert tries == [0, 1, 2]
    assert "background task failed" in caplog.text


async def test_a_broker_with_a_duplicate_node_id_pauses_between_heartbeats_and_logs_why(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    membership = broker.services.registration
    mine = membership.me
    membership.me = Member(mine.id, (Endpoint("PLAINTEXT", "elsewhere", 9092),))
    await membership.heartbeat()
    membership.me = mine
    rests: list[float] = []
    rested = anyio.Event()

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        rested.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(background, "HEARTBEAT_S", 0)
    monkeypatch.setattr("korvet.broker.background.tasks.anyio.sleep", rest)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(BackgroundTasks(broker.services)._heartbeats)
            await rested.wait()
            tasks.cancel_scope.cancel()
    assert rests == [background.MIN_RENEWAL_GAP_S]
    assert "another broker has this node id" in caplog.text


async def test_only_a_process_that_is_scraped_shows_what_retention_holds(broker: Broker) -> None:
    seen: list[str] = []

    class Gauges(ConsumedGauges):
        async def update(self) -> None:
            seen.append("update")

        def clear(self) -> None:
            seen.append("clear")

    services = broker.services
    gauges = Gauges(services.node)
    action = BackgroundTasks(services)._gauges("held-gauge", gauges)
    await action()
    services.metrics.scraped()
    await action()
    assert seen == ["clear", "update"]


async def test_runs_of_a_background_task_are_counted(broker: Broker) -> None:
    metrics = broker.services.metrics
    runner = TaskRunner(broker.services.notifier, metrics)

    async def succeed() -> None:
        return

    async def fail() -> None:
        raise RedisUnreachable("away")

    await runner.run_once("retention", succeed)
    await runner.run_once("retention", fail)
    assert sum(metrics.task_seconds.of("retention").counts) == 1
    assert metrics.task_errors.values[("retention",)] == 1
    assert metrics.task_times.ask is not None
    assert metrics.task_times.ask().keys() == {("retention",)}
