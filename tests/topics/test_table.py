"""Check the table of topics: names, definitions, and how current they are."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from korvet.config.topic_policy import Pattern, TopicConfigs
from korvet.config.values import Settings
from korvet.scripts.keys import Keys
from korvet.topics.lifecycle import check_topic_name
from korvet.topics.table import (
    DELETING,
    Definition,
    TopicTable,
    decode_definition,
    encode_definition,
    read_topic,
)

KEYS = Keys()
CONFIGS = TopicConfigs(Settings())
FIXED = {"storage.format": "record", "offset.mode": "time", "offset.bits": "10"}


def defined(number: int = 1, **changes: Any) -> Definition:
    words: dict[str, Any] = {"id": f"{number:032x}", "partitions": 2, "configs": FIXED}
    return Definition(**{**words, **changes})


class Redis:
    """A topics hash that records its commands."""

    def __init__(self, **topics: Definition) -> None:
        self.asked: list[str] = []
        self.rows: dict[bytes, bytes] = {}
        self.changes = 0
        self.put(**topics)

    def put(self, **topics: Definition | None) -> None:
        for name, definition in topics.items():
            if definition is None:
                del self.rows[name.encode()]
            else:
                self.rows[name.encode()] = encode_definition(definition)
        self.changes += 1
        self.rows[b":version"] = b"%d" % self.changes

    async def command(self, *command: Any) -> Any:
        self.asked.append(command[0])
        await asyncio.sleep(0)
        if command[0] == "HGET":
            return self.rows.get(command[2].encode())
        return [word for row in self.rows.items() for word in row]


def table(redis: Redis) -> TopicTable:
    return TopicTable(redis, KEYS, CONFIGS)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "0"])
def test_a_name_that_may_be(name: str) -> None:
    assert check_topic_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "a:b", "a{b}", "ä", "a\n"]
)
def test_a_name_that_may_not_be_gets_a_sentence(name: str) -> None:
    assert (check_topic_name(name) or "").endswith(".")
    assert (check_topic_name(name, reserved=True) or "").endswith(".")


def test_names_that_begin_with_two_underscores_are_internal() -> None:
    assert check_topic_name("__offsets") is not None
    assert check_topic_name("__offsets", reserved=True) is None


def test_a_definition_is_read_as_it_was_written() -> None:
    definition = defined(partitions=7)
    assert decode_definition(encode_definition(definition)) == definition


def test_a_definition_of_an_older_version_is_read() -> None:
    raw = b'{"id":"%s","partitions":1,"configs":{},"state":"live","unknown":1}' % (b"0" * 32)
    definition = decode_definition(raw)
    assert (definition.planned, definition.is_unfinished) == (0, False)


@pytest.mark.parametrize("state", ["creating", "deleting"])
def test_a_topic_that_is_created_or_deleted_halfway_is_not_served(state: str) -> None:
    half = defined(state=state)
    assert half.is_unfinished
    assert read_topic(Keys(), "t", encode_definition(half), CONFIGS) is None


def test_a_growing_topic_serves_what_it_has() -> None:
    growing = defined(planned=5)
    assert growing.is_unfinished
    topic = read_topic(Keys(), "t", encode_definition(growing), CONFIGS)
    assert topic is not None and topic.partitions == 2


async def test_topics_are_found_by_name_and_by_id() -> None:
    topics = table(Redis(a=defined(1), b=defined(2)))
    a, b = await topics.get("a"), await topics.get_id(UUID(int=2))
    assert a is not None and a.uuid == UUID(int=1)
    assert b is not None and b.name == "b"
    assert await topics.get("c") is None
    assert await topics.get_id(UUID(int=3)) is None
    assert [topic.name for topic in await topics.all()] == ["a", "b"]


async def test_a_fresh_table_sends_no_command() -> None:
    redis = Redis(a=defined(1))
    topics = table(redis)
    assert topics.peek("a") is None, "nothing was read yet"
    await topics.get("a")
    asked = len(redis.asked)
    for _ in range(5):
        assert await topics.get("a") is topics.peek("a")
    assert len(redis.asked) == asked


async def test_a_missing_name_is_read_again() -> None:
    redis = Redis(a=defined(1))
    topics = table(redis)
    assert await topics.get("b") is None
    redis.put(b=defined(2))
    assert await topics.get("b") is not None


async def test_a_notification_reloads_the_table_and_keeps_unchanged_topics() -> None:
    redis = Redis(a=defined(1), b=defined(2))
    topics = table(redis)
    a, b = await topics.get("a"), await topics.get("b")
    redis.put(b=defined(2, partitions=9))
    assert await topics.get("b") is b, "no notification yet"
    topics.invalidate()
    assert topics.peek("b") is None
    newer = await topics.get("b")
    assert newer is not None and newer.partitions == 9
    assert await topics.get("a") is a
    redis.put(a=None)
    topics.invalidate()
    assert await topics.get("a") is None


async def test_a_notification_during_a_read_of_the_table_repeats_the_read() -> None:
    redis = Redis(a=defined(1), b=defined(2))
    topics = table(redis)
    answered, proceed = asyncio.Event(), asyncio.Event()

    class Late(Redis):
        async def command(self, *command: Any) -> Any:
            answer = await redis.command(*command)
            if command[0] == "HGETALL":
                answered.set()
                await proceed.wait()
            return answer

    topics._store = Late()
    reading = asyncio.create_task(topics.refresh())
    await answered.wait()
    redis.put(a=None, b=defined(2, partitions=9))
    topics.invalidate()
    proceed.set()
    await reading
    assert topics.peek("b") is None, "the rows that were read are older"
    assert await topics.get("a") is None
    b = await topics.get("b")
    assert b is not None and b.partitions == 9


async def test_the_table_is_not_read_whole_when_its_version_is_the_same() -> None:
    redis = Redis(a=defined(1))
    topics = table(redis)
    await topics.get("a")
    redis.asked.clear()
    topics.invalidate()
    await topics.get("a")
    assert redis.asked == ["HGET"]


async def test_concurrent_callers_share_a_read() -> None:
    redis = Redis(a=defined(1))
    topics = table(redis)
    found = await asyncio.gather(*(topics.get("a") for _ in range(50)))
    assert len(set(map(id, found))) == 1
    assert redis.asked.count("HGETALL") <= 2


async def test_a_topic_deleted_and_made_again_is_another() -> None:
    redis = Redis(a=defined(1))
    topics = table(redis)
    first = await topics.get("a")
    redis.put(a=defined(1, state=DELETING))
    topics.invalidate()
    assert await topics.get("a") is None
    redis.put(a=defined(5))
    topics.invalidate()
    second = await topics.get("a")
    assert first is not None and second is not None and first.uuid != second.uuid
    assert await topics.get_id(first.uuid) is None


async def test_changed_defaults_are_in_effect_at_once() -> None:
    topics = table(Redis(a=defined(1), b=defined(2)))
    a = await topics.get("a")
    assert a is not None and a.policy.retention_ms == 604_800_000
    settings = Settings().with_dynamic({"log.retention.ms": "5"})
    topics.use_configs(TopicConfigs(settings, [Pattern("b*", {"retention.ms": "7"})]))
    a, b = await topics.get("a"), await topics.get("b")
    assert a is not None and a.policy.retention_ms == 5
    assert b is not None and b.policy.retention_ms == 7


async def test_unfinished_topics_are_found_for_the_background_task() -> None:
    redis = Redis(a=defined(1), b=defined(2, state=DELETING), c=defined(3, planned=4))
    assert set(await table(redis).find_unfinished()) == {"b", "c"}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage",
        b"[]",
        b'{"id":"x","partitions":1,"configs":{}}',
        b'{"partitions":"many"}',
        encode_definition(defined(configs={**FIXED, "retention.ms": "soon"})),
    ],
)
async def test_a_definition_that_makes_no_sense_hides_only_its_topic(raw: bytes) -> None:
    redis = Redis(a=defined(1))
    redis.rows[b"broken"] = raw
    topics = table(redis)
    assert await topics.get("broken") is None
    assert await topics.get("a") is not None
    assert await topics.find_unfinished() == {}


def test_offset_syncs_of_mirrormaker_keep_their_history_by_default() -> None:
    name, config = "mm2-offset-syncs.b.internal", {"cleanup.policy": "compact"}
    assert CONFIGS.policy(name, config).min_compaction_lag_ms == 7 * 86_400_000
    assert CONFIGS.policy("orders", config).min_compaction_lag_ms == 0
    lag = {"min.compaction.lag.ms": "5"}
    assert CONFIGS.policy(name, {**config, **lag}).min_compaction_lag_ms == 5
    ours = TopicConfigs(Settings(), [Pattern("mm2*", lag)])
    assert ours.policy(name, config).min_compaction_lag_ms == 5


def test_changelogs_have_dense_offsets_by_default() -> None:
    name, made = "app-counts-changelog", {"cleanup.policy": "compact"}
    assert CONFIGS.pinned(name, made)["offset.mode"] == "dense"
    assert CONFIGS.pinned("changelogs", made)["offset.mode"] == "time"
    time = {"offset.mode": "time"}
    assert CONFIGS.pinned(name, {**made, **time})["offset.mode"] == "time"
    ours = TopicConfigs(Settings(), [Pattern("app-*", time)])
    assert ours.pinned(name, made)["offset.mode"] == "time"
