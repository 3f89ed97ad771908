"""Check topics created, grown and deleted on a real cluster by brokers that die at any step."""

from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any, cast

import pytest

from korvet.base.errors import ErrorCode
from korvet.broker.background.tasks import finish_topics
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.scripts.call import Call
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreUnavailable
from korvet.topics import stepwise
from korvet.topics.lifecycle import add_partitions, create_topic, delete_topic, plan_topic
from korvet.topics.table import Definition, Topic, TopicTable
from tests.store.cluster_topology import TestCluster, cluster

KEYS = Keys()
CONFIGS = TopicConfigs(Settings())
PARTITIONS = 5


@pytest.fixture(scope="module")
def running() -> Iterator[TestCluster]:
    with cluster() as made:
        yield made


@pytest.fixture
async def store(running: TestCluster) -> AsyncIterator[AsyncStore]:
    for node in range(3):
        running.ask(node, "FLUSHALL")
    async with await AsyncStore.connect(running.url) as opened:
        await opened.command("HSET", KEYS.cluster(), "epoch", 1)
        yield opened


class Died(Exception):
    """The broker is killed."""


class Dying:
    """A store whose broker dies before its `steps`-th call of a script."""

    def __init__(self, store: AsyncStore, steps: int) -> None:
        self._store = store
        self._left = steps
        self.is_cluster = True

    async def run(self, call: Call[Any]) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Died
        return await self._store.run(call)

    async def run_many(self, calls: Any) -> list[Any]:
        return [await self.run(call) for call in calls]

    async def command(self, *command: Any) -> Any:
        return await self._store.command(*command)

    def run_of(self, key: str) -> str:
        return self._store.run_of(key)

    async def until_durable(
        self, key: str, run: str, topics: Collection[str] | None = None
    ) -> None:
        await self._store.until_durable(key, run, topics)

    async def info(self, section: str) -> Any:
        return await self._store.info(section)


def planned(name: str, mode: str = "time") -> Definition:
    return plan_topic(name, PARTITIONS, {"offset.mode": mode}, CONFIGS)


async def look(store: AsyncStore, name: str) -> Topic | None:
    return await TopicTable(store, KEYS, CONFIGS).get(name)


def keys_left(running: TestCluster) -> set[bytes]:
    """Return every key of the cluster, except the registries and the cluster's hash."""
    found: set[bytes] = set()
    for node in range(3):
        found |= set(running.ask(node, "KEYS", "*"))  # type: ignore[call-overload]
    return found - {b"korvet:topics", b"korvet:groups", b"korvet:cluster"}


async def commit_to(store: AsyncStore, topic: str, groups: int = 3) -> None:
    """Create groups with commits of the topic, and of another topic that stays."""
    for number in range(groups):
        group = f"group-{number}"
        await store.command("HSET", KEYS.groups(), group, "classic")
        for name in (topic, "other"):
            for partition in range(PARTITIONS):
                field = KEYS.partition(name, partition).stream
                await store.command("HSET", KEYS.group_offsets(group), field, "7")
    await store.command("HINCRBY", KEYS.groups(), ":version", groups)


async def finish_all(store: AsyncStore) -> None:
    """Complete abandoned changes, as the background task does: those that it has seen twice."""
    table = TopicTable(store, KEYS, CONFIGS)
    known = await finish_topics(store, KEYS, table, {})
    assert await finish_topics(store, KEYS, table, known) == {}


@pytest.mark.parametrize("mode", ["time", "dense"])
async def test_a_topic_is_made_grown_and_leaves_no_key_behind(
    running: TestCluster, store: AsyncStore, mode: str
) -> None:
    assert await create_topic(store, KEYS, "t", planned("t", mode)) == ErrorCode.NONE
    again = await create_topic(store, KEYS, "t", planned("t", mode))
    assert again == ErrorCode.TOPIC_ALREADY_EXISTS
    topic = await look(store, "t")
    assert topic is not None
    assert await add_partitions(store, KEYS, topic, PARTITIONS + 3)
    assert not await add_partitions(store, KEYS, topic, PARTITIONS + 4), (
        "the topic was read before it grew"
    )
    topic = await look(store, "t")
    assert topic is not None and topic.partitions == PARTITIONS + 3
    for number in range(topic.partitions):
        state = KEYS.partition("t", number).log
        assert await store.command("HGET", state, "topic_id") == topic.id.encode()
    await commit_to(store, "t")
    assert await delete_topic(store, KEYS, topic) == ErrorCode.NONE
    assert await delete_topic(store, KEYS, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await look(store, "t") is None
    assert keys_left(running) == {KEYS.group_offsets(f"group-{n}").encode() for n in range(3)}
    for number in range(3):
        fields = await store.command("HKEYS", KEYS.group_offsets(f"group-{number}"))
        assert sorted(fields) == [b"korvet:other:%d" % n for n in range(PARTITIONS)]


@pytest.mark.parametrize("steps", range(PARTITIONS + 3))
async def test_a_topic_half_made_is_unknown_and_is_made_by_another(
    running: TestCluster, store: AsyncStore, steps: int
) -> None:
    dying = Dying(store, steps)
    try:
        await create_topic(dying, KEYS, "t", planned("t"))
    except Died:
        assert await look(store, "t") is None
    await finish_all(store)
    topic = await look(store, "t")
    if steps == 0:
        assert topic is None
        return
    assert topic is not None and topic.partitions == PARTITIONS
    assert len(keys_left(running)) == PARTITIONS
    assert await delete_topic(store, KEYS, topic) == ErrorCode.NONE
    assert keys_left(running) == set()


@pytest.mark.parametrize("steps", range(6))
async def test_a_topic_half_grown_serves_what_it_had_and_is_grown_by_another(
    running: TestCluster, store: AsyncStore, steps: int
) -> None:
    await create_topic(store, KEYS, "t", planned("t"))
    before = await look(store, "t")
    assert before is not None
    try:
        await add_partitions(Dying(store, steps), KEYS, before, PARTITIONS + 3)
    except Died:
        half = await look(store, "t")
        assert half is not None and half.partitions == PARTITIONS
    if steps == 2:
        half = await look(store, "t")
        assert half is not None
        assert await delete_topic(store, KEYS, half) == ErrorCode.NONE
        assert keys_left(running) == set(), "deleting takes the planned partitions too"
        return
    await finish_all(store)
    after = await look(store, "t")
    assert after is not None and after.partitions == PARTITIONS + 3 * (steps > 0)


@pytest.mark.parametrize("steps", range(PARTITIONS + 6))
async def test_a_topic_half_deleted_is_unknown_and_is_deleted_by_another(
    running: TestCluster, store: AsyncStore, steps: int
) -> None:
    await create_topic(store, KEYS, "t", planned("t"))
    await commit_to(store, "t")
    topic = await look(store, "t")
    assert topic is not None
    try:
        await delete_topic(Dying(store, steps), KEYS, topic)
    except Died:
        assert (await look(store, "t") is None) == (steps > 0)
        if steps:
            refused = await create_topic(store, KEYS, "t", planned("t"))
            assert refused == ErrorCode.TOPIC_ALREADY_EXISTS
    await finish_all(store)
    assert (await look(store, "t") is None) == (steps > 0)
    if steps:
        assert keys_left(running) == {KEYS.group_offsets(f"group-{n}").encode() for n in range(3)}
        assert await create_topic(store, KEYS, "t", planned("t")) == ErrorCode.NONE


async def test_no_log_is_deleted_before_the_deletion_is_durable(
    running: TestCluster, store: AsyncStore
) -> None:
    await create_topic(store, KEYS, "t", planned("t"))
    topic = await look(store, "t")
    assert topic is not None
    logs = {KEYS.partition("t", number).log for number in range(PARTITIONS)}
    lacking = {KEYS.topics()}

    async def wait(key: str, run: str, topics: Collection[str] | None) -> None:
        if key in lacking:
            raise StoreUnavailable("the replicas do not have it")

    store.decision_wait = wait
    with pytest.raises(StoreUnavailable):
        await delete_topic(store, KEYS, topic)
    assert await look(store, "t") is None
    assert keys_left(running) >= {key.encode() for key in logs}
    lacking = logs
    tombstone = await store.command("HGET", KEYS.topics(), "t")
    with pytest.raises(StoreUnavailable):
        await stepwise.finish(store, KEYS, "t", tombstone)
    assert await store.command("HGET", KEYS.topics(), "t") == tombstone
    lacking = set()
    await finish_all(store)
    assert keys_left(running) == set()
    assert await store.command("HGET", KEYS.topics(), "t") is None


async def test_logs_opened_after_the_topic_is_gone_are_withdrawn(
    running: TestCluster, store: AsyncStore
) -> None:
    definition = planned("t")
    with pytest.raises(Died):
        await create_topic(Dying(store, 3), KEYS, "t", definition)
    raw = await store.command("HGET", KEYS.topics(), "t")
    await finish_all(store)
    topic = await look(store, "t")
    assert topic is not None
    await delete_topic(store, KEYS, topic)
    await stepwise.finish(store, KEYS, "t", raw)  # the first broker was only slow
    assert keys_left(running) == set()


async def test_a_slow_deleter_does_not_touch_the_topic_that_came_back(
    running: TestCluster, store: AsyncStore
) -> None:
    await create_topic(store, KEYS, "t", planned("t"))
    first = await look(store, "t")
    assert first is not None
    with pytest.raises(Died):
        await delete_topic(Dying(store, 2), KEYS, first)
    tombstone = await store.command("HGET", KEYS.topics(), "t")
    await finish_all(store)
    await create_topic(store, KEYS, "t", planned("t"))
    await commit_to(store, "t")
    await stepwise.finish(store, KEYS, "t", tombstone)
    second = await look(store, "t")
    assert second is not None and second.id != first.id
    fields = await store.command("HKEYS", KEYS.group_offsets("group-0"))
    assert len(fields) == 2 * PARTITIONS
    for number in range(PARTITIONS):
        state = KEYS.partition("t", number).log
        assert await store.command("HGET", state, "topic_id") == second.id.encode()


async def test_a_log_whose_definition_was_lost_makes_way_for_the_topic_that_is_made(
    running: TestCluster, store: AsyncStore
) -> None:
    lost = planned("t", "dense")
    for number in (2, PARTITIONS + 1):
        await store.run(KEYS.partition("t", number, lost.id).create(**lost.shape))
        await store.command("XADD", KEYS.partition("t", number).stream, "*", "value", "old")
    assert await create_topic(store, KEYS, "t", planned("t")) == ErrorCode.NONE
    topic = await look(store, "t")
    assert topic is not None
    assert await add_partitions(store, KEYS, topic, PARTITIONS + 3)
    for number in range(PARTITIONS + 3):
        reply = await store.run(KEYS.partition("t", number, topic.id).list_offsets())
        assert (reply.error, reply.first, reply.next) == (ErrorCode.NONE, 0, 0), number
        assert not await store.command("EXISTS", KEYS.partition("t", number).stream)


async def test_a_slow_maker_does_not_touch_the_topic_that_came_back(
    running: TestCluster, store: AsyncStore
) -> None:
    with pytest.raises(Died):
        await create_topic(Dying(store, 3), KEYS, "t", planned("t"))
    begun = await store.command("HGET", KEYS.topics(), "t")
    await finish_all(store)
    first = await look(store, "t")
    assert first is not None
    await delete_topic(store, KEYS, first)
    await create_topic(store, KEYS, "t", planned("t"))
    await stepwise.finish(store, KEYS, "t", begun)
    second = await look(store, "t")
    assert second is not None and second.id != first.id
    for number in range(PARTITIONS):
        reply = await store.run(KEYS.partition("t", number, second.id).list_offsets())
        assert reply.error == ErrorCode.NONE


async def test_the_logs_of_a_large_topic_are_named_a_part_at_a_time(store: AsyncStore) -> None:
    """Naming all of them in one turn of the event loop makes other clients wait."""
    named: list[int] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def run_many(self, calls: Any) -> list[Any]:
            named.append(len(calls))
            return await store.run_many(calls)

    definition = plan_topic("t", 600, {}, CONFIGS)
    await create_topic(cast(AsyncStore, Counted()), KEYS, "t", definition)
    assert named == [256, 256, 88]
