"""Check lua/topic and config.alter: topics and definitions are created, changed and deleted."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.base.errors import ErrorCode
from korvet.scripts.call import Call, Signal
from korvet.store.errors import ScriptFailed, StoreRefused
from korvet.testing import LuaRunner, ScriptError
from tests.lua.partition import ID, KEYS
from tests.support.redis_servers import TestServer
from tests.support.store_runners import Runner, StoreRunner

SHAPE: dict[str, Any] = {"topic_id": ID, "format": "record", "mode": "dense", "bits": 10}


def create(name: str = "t", partitions: int = 3, definition: bytes = b"one") -> Call[Any]:
    return KEYS.topic_create(
        KEYS.logs(name, range(partitions)), topic=name, definition=definition, **SHAPE
    )


def grow(expected: bytes, name: str = "t") -> Call[Any]:
    return KEYS.topic_add_partitions(
        KEYS.logs(name, range(3, 5)), topic=name, expected=expected, definition=b"two", **SHAPE
    )


def alter(expected: bytes, name: str = "t") -> Call[Any]:
    return KEYS.topic_alter(topic=name, expected=expected, definition=b"two")


def remove(expected: bytes, name: str = "t") -> Call[Any]:
    return KEYS.topic_delete_definition(topic=name, expected=expected, remote_id="")


def delete(
    expected: bytes, name: str = "t", version: bytes = b"", groups: tuple[str, ...] = ()
) -> Call[Any]:
    return KEYS.topic_delete(
        *KEYS.topic_parts(name, 3, groups),
        topic=name,
        expected=expected,
        registry_version=version,
        remote_id="",
        partitions=3,
    )


def reconfigure(expected: bytes, wanted: bytes) -> Call[Any]:
    return KEYS.config_alter(resource="r", expected=expected, wanted=wanted)


def definition(runner: Runner, name: str = "t") -> object:
    return runner.command("HGET", KEYS.topics(), name)


def dump(runner: Runner) -> dict[bytes, object]:
    """Return every key with its type, or with the content of a hash."""
    names: Any = runner.command("KEYS", "*")
    kinds = {name: runner.command("TYPE", name) for name in names}
    return {
        name: runner.command("HGETALL", name) if kind in (b"hash", "hash") else kind
        for name, kind in kinds.items()
    }


REFUSALS: list[tuple[Call[Any], int]] = [
    (create(), ErrorCode.TOPIC_ALREADY_EXISTS),
    (grow(b"other"), Signal.TOPIC_CHANGED),
    (grow(b"one", "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (alter(b"other"), Signal.TOPIC_CHANGED),
    (alter(b"one", "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (remove(b"other"), Signal.TOPIC_CHANGED),
    (remove(b"one", "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (delete(b"other"), Signal.TOPIC_CHANGED),
    (delete(b"one", version=b"9"), Signal.TOPIC_CHANGED),
    (delete(b"one", "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (
        KEYS.config_alter(resource="r", expected=b"x", wanted=b"y"),
        Signal.CONFIGS_CHANGED,
    ),
]


@pytest.mark.parametrize(
    ("call", "error"), REFUSALS, ids=lambda value: getattr(value, "name", "call")
)
def test_what_is_refused_changes_nothing(runner: Runner, call: Call[Any], error: int) -> None:
    runner.run(create())
    before = dump(runner)
    reply = runner.run(call)
    assert (reply.error, reply.version) == (error, -1)
    assert dump(runner) == before


def test_a_topic_exists_with_an_empty_log_for_each_partition(runner: Runner) -> None:
    assert runner.run(create()).error == ErrorCode.NONE
    assert definition(runner) == b"one"
    for number in range(3):
        bounds = runner.run(KEYS.partition("t", number, ID).list_offsets())
        assert (bounds.error, bounds.first, bounds.next) == (ErrorCode.NONE, 0, 0)
    missing = runner.run(KEYS.partition("t", 3, ID).list_offsets())
    assert missing.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("which", ["stream", "log"])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_no_part_of_a_topic_is_created_if_a_key_has_another_type(
    runner: Runner, which: str, mode: str
) -> None:
    shape = {**SHAPE, "mode": mode}
    for number, call in (
        (1, KEYS.topic_create(KEYS.logs("new", range(3)), topic="new", definition=b"one", **shape)),
        (
            4,
            KEYS.topic_add_partitions(
                KEYS.logs("t", range(3, 5)), topic="t", expected=b"", definition=b"", **shape
            ),
        ),
        (0, KEYS.partition("new", 0, ID).create(format="record", mode=mode, bits=10)),
    ):
        runner.command("FLUSHALL")
        runner.command("HSET", KEYS.topics(), "t", b"")
        name = "t" if call.script.name == "topic.add_partitions" else "new"
        runner.command("SET", getattr(KEYS.partition(name, number), which), "mine")
        before = dump(runner)
        with pytest.raises((ScriptFailed, ScriptError), match="WRONGTYPE"):
            runner.run(call)
        assert dump(runner) == before


def test_a_topic_that_grew_keeps_its_records(runner: Runner) -> None:
    made = runner.run(create()).version
    runner.command("XADD", KEYS.partition("t", 0).stream, "*", "value", "v")
    assert runner.run(grow(b"one")).version > made
    assert definition(runner) == b"two"
    assert runner.run(KEYS.partition("t", 0, ID).list_offsets()).next == 1
    assert runner.run(KEYS.partition("t", 4, ID).list_offsets()).error == ErrorCode.NONE


def test_each_change_raises_the_version_and_publishes_it(lua: LuaRunner) -> None:
    received = lua.redis.pubsub()
    received.subscribe(KEYS.topics_channel())
    replies = [lua.run(call) for call in (create(), alter(b"one"), grow(b"two"), remove(b"two"))]
    assert all(reply.error == ErrorCode.NONE for reply in replies)
    versions = [reply.version for reply in replies]
    assert versions == sorted(set(versions))
    reported = [received.get_message(timeout=0) for _ in range(5)]
    assert [int(message["data"]) for message in reported[1:] if message] == versions


@pytest.mark.parametrize("change", [alter(b"one"), grow(b"one"), remove(b"one"), delete(b"one")])
def test_a_change_that_redis_lost_lends_its_version_to_no_other(
    lua: LuaRunner, change: Call[Any]
) -> None:
    lua.run(create())
    kept: Any = lua.command("HGETALL", KEYS.topics())
    lost = lua.run(change).version
    lua.advance(5)
    lua.command("DEL", KEYS.topics())
    lua.command("HSET", KEYS.topics(), *kept)
    assert lua.run(alter(b"one")).version > lost
    lua.command("FLUSHALL")
    lua.advance(5)
    assert lua.run(create()).version > lost
    assert lua.run(reconfigure(b"", b"one")).version > lost


def test_a_version_is_a_moment_of_redis_or_one_more_than_the_last(runner: Runner) -> None:
    made = runner.run(create()).version
    assert made >= 1_700_000_000_000
    runner.command("HSET", KEYS.topics(), ":version", 2 * made)
    assert runner.run(alter(b"one")).version == 2 * made + 1
    assert runner.command("HGET", KEYS.topics(), ":version") == b"%d" % (2 * made + 1)


def test_a_group_forgets_a_topic_and_no_other(runner: Runner) -> None:
    offsets = KEYS.group_offsets("g")
    for name in ("t", "other"):
        for number in range(3):
            runner.command("HSET", offsets, KEYS.partition(name, number).stream, "5")
    assert (
        runner.run(KEYS.group("g").delete_topic_offsets(prefix="korvet:t:", partitions=3)).deleted
        == 3
    )
    assert (
        runner.run(KEYS.group("g").delete_topic_offsets(prefix="korvet:t:", partitions=3)).deleted
        == 0
    )
    kept: Any = runner.command("HKEYS", offsets)
    assert sorted(kept) == [b"korvet:other:%d" % n for n in range(3)]


def test_configs_are_set_replaced_and_taken_back(lua: LuaRunner) -> None:
    def alter(expected: bytes, wanted: bytes) -> tuple[int, int]:
        reply = lua.run(reconfigure(expected, wanted))
        return reply.error, reply.version

    received = lua.redis.pubsub()
    received.subscribe(KEYS.configs_channel())
    first = alter(b"", b"one")
    assert alter(b"", b"two") == (Signal.CONFIGS_CHANGED, -1)
    second = alter(b"one", b"two")
    assert lua.command("HGET", KEYS.configs(), "r") == b"two"
    third = alter(b"two", b"")
    assert lua.command("HEXISTS", KEYS.configs(), "r") == 0
    assert {error for error, _ in (first, second, third)} == {ErrorCode.NONE}
    assert first[1] < second[1] < third[1]
    reported = [received.get_message(timeout=0) for _ in range(4)]
    versions = [int(message["data"]) for message in reported[1:] if message]
    assert versions == [first[1], second[1], third[1]]


def test_a_full_redis_takes_what_makes_room(redis_server: TestServer) -> None:
    with redis_server.client() as client:
        client.flushall()
        runner = StoreRunner(client)
        runner.run(create())
        client.config_set("maxmemory", 1)
        try:
            assert runner.run(alter(b"one")).error == ErrorCode.NONE
            assert runner.run(reconfigure(b"", b"one")).error == ErrorCode.NONE
            assert runner.run(reconfigure(b"one", b"")).error == ErrorCode.NONE
            with pytest.raises(StoreRefused, match="OOM"):
                runner.run(create("another"))
            assert definition(runner) == b"two"
            assert runner.run(delete(b"two")).error == ErrorCode.NONE
        finally:
            client.config_set("maxmemory", 0)


GROUPS = ("readers", "wri:ters", "b{a}d%")


def test_a_deleted_topic_leaves_no_key_behind(runner: Runner) -> None:
    """Invariant 4, on every server: Redis groups and commits of live groups go too."""
    runner.run(create())
    runner.run(create("other"))
    for number in range(3):
        k = KEYS.partition("t", number)
        for n in range(5):
            runner.run(
                KEYS.partition("t", number, ID).append(
                    count=1,
                    size=70_000,
                    max_timestamp=1,
                    producer_id=4,
                    producer_epoch=0,
                    base_sequence=n,
                    fields=[2, b"value", b"v"],
                )
            )
        for group in GROUPS:
            runner.command("XGROUP", "CREATE", k.stream, group, "0")
            for name in ("t", "other"):
                field = KEYS.partition(name, number).stream
                runner.command("HSET", KEYS.group_offsets(group), field, "3")
        runner.command("XREADGROUP", "GROUP", "readers", "me", "COUNT", 2, "STREAMS", k.stream, ">")
    runner.command("HSET", KEYS.groups(), ":version", "7")
    before = set(dump(runner))
    reply = runner.run(delete(b"one", version=b"7", groups=GROUPS))
    assert reply.error == ErrorCode.NONE
    gone = before - set(dump(runner))
    assert gone == {key for key in before if b"korvet:t:" in key}
    for group in GROUPS:
        fields: Any = runner.command("HKEYS", KEYS.group_offsets(group))
        assert sorted(fields) == [b"korvet:other:%d" % n for n in range(3)]
    assert runner.run(delete(b"one")).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


NAMES = st.sampled_from(["t", "u"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "grow", "append", "commit", "group", "delete"]), NAMES),
    max_size=20,
)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(steps=STEPS)
def test_whatever_happened_to_a_topic_its_deletion_takes_everything(
    steps: list[tuple[str, str]],
) -> None:
    """Invariant 4: after any interleaving, only existing topics have keys."""
    runner = LuaRunner()
    partitions: dict[str, int] = {}
    version = 0
    for what, name in steps:
        there = name in partitions
        if what == "create":
            reply = runner.run(create(name, 2, b"2"))
            assert (reply.error == ErrorCode.NONE) != there
            partitions.setdefault(name, 2)
        elif not there:
            continue
        elif what == "grow":
            now = partitions[name]
            runner.run(
                KEYS.topic_add_partitions(
                    KEYS.logs(name, range(now, now + 1)),
                    topic=name,
                    expected=b"%d" % now,
                    definition=b"%d" % (now + 1),
                    **SHAPE,
                )
            )
            partitions[name] = now + 1
        elif what == "append":
            runner.command("XADD", KEYS.partition(name, partitions[name] - 1).stream, "*", "v", "")
        elif what == "commit":
            version += 1
            runner.command("HSET", KEYS.groups(), "g", "mark", ":version", version)
            runner.command("HSET", KEYS.group_offsets("g"), KEYS.partition(name, 0).stream, "1")
        elif what == "group":
            stream = KEYS.partition(name, 0).stream
            if not runner.command("XINFO", "GROUPS", stream):
                runner.command("XGROUP", "CREATE", stream, "g", "0")
        else:
            count = partitions.pop(name)
            reply = runner.run(
                KEYS.topic_delete(
                    *KEYS.topic_parts(name, count, ["g"]),
                    topic=name,
                    expected=b"%d" % count,
                    registry_version=b"%d" % version if version else b"",
                    remote_id="",
                    partitions=count,
                )
            )
            assert reply.error == ErrorCode.NONE
        _only_these(runner, set(partitions))


def _only_these(runner: LuaRunner, names: set[str]) -> None:
    keys = {key.decode() for key in runner.command("KEYS", "*")}
    fields = {f.decode() for f in runner.command("HKEYS", KEYS.group_offsets("g"))}
    for word in keys | fields:
        parts = word.strip("{").split(":")
        if len(parts) > 2 and parts[1] != "group":
            assert parts[1] in names, word


@pytest.mark.parametrize("partitions", [-1, 4, 2**53])
def test_a_topic_with_other_partitions_than_keys_is_not_deleted_by_half(
    runner: Runner, partitions: int
) -> None:
    runner.run(create())
    before = dump(runner)
    call = KEYS.topic_delete(
        *KEYS.topic_parts("t", 3, ()),
        topic="t",
        expected=b"one",
        registry_version=b"",
        remote_id="",
        partitions=3,
    )
    args = (*call.args[:4], partitions, *call.args[5:])
    with pytest.raises((ScriptFailed, ScriptError), match="not those of"):
        runner.run(Call(call.script, call.keys, args))
    assert dump(runner) == before
    assert runner.run(call).error == ErrorCode.NONE
