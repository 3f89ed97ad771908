"""Check that errors of an append, or of the creation of a log, precede the first write."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import append_many, batch_of
from korvet.store.errors import ScriptFailed
from korvet.testing import ScriptError
from tests.lua.partition import DENSE_MS, ID, KEYS, Part
from tests.support.store_runners import Runner

FAILED = (ScriptError, ScriptFailed)
SHAPE: dict[str, Any] = {"topic_id": ID, "format": "record", "bits": 10}


@pytest.mark.parametrize("form", ["record", "batch"])
def test_where_a_log_has_come_to_the_last_offset_nothing_is_appended(
    runner: Runner, form: str
) -> None:
    part = Part(runner, form, mode="dense").create()
    runner.command("HSET", part.keys.log, "next", 2**53 - 2)
    with pytest.raises(FAILED, match="exhausted"):
        part.append(3)
    assert (part.ids(), part.append(2).base) == ([], 2**53 - 2)


def test_what_stood_before_the_batch_that_failed_is_answered_and_counted(runner: Runner) -> None:
    part = Part(runner, mode="dense").create()
    batches = [batch_of(part.call(2, size=70_000)), batch_of(part.call(2))]
    part.append(1)
    runner.command("DEL", part.keys.index)
    runner.command("SET", part.keys.index, "foreign")
    runner.command("HSET", part.keys.log, "bytes", 0, "indexed_bytes", 0)
    reply = runner.run(append_many(KEYS, [("t", 0, ID, 0, [*batches, batches[0]])]))
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert [answer.error for answer in reply.answers] == [0, failed, failed]
    assert reply.reason.startswith(b"korvet:t:0: ")
    assert part.offsets() == [0, 1, 2]
    state = part.state()
    assert (state["next"], state["records"], state["bytes"]) == ("3", "3", "70000")


@pytest.mark.parametrize("made", ["create", "grow", "open"])
@pytest.mark.parametrize("mode", ["dense", "bytes"])
def test_no_log_is_made_over_entries_that_stand_where_its_offsets_will(
    runner: Runner, mode: str, made: str
) -> None:
    stream = KEYS.partition("t", 1).stream
    runner.command("XADD", stream, f"{DENSE_MS}-7", "value", "left behind")
    grown = {"topic": "t", "expected": b"{}", "definition": b"two"}
    calls = {
        "create": KEYS.topic_create(
            KEYS.logs("t", range(2)), topic="t", definition=b"{}", mode=mode, **SHAPE
        ),
        "grow": KEYS.topic_add_partitions(KEYS.logs("t", range(2)), mode=mode, **grown, **SHAPE),
        "open": KEYS.partition("t", 1, ID).create(mode=mode, format="record", bits=10),
    }
    if made == "grow":
        runner.command("HSET", KEYS.topics(), "t", "{}")
    before = runner.command("HGETALL", KEYS.topics())
    with pytest.raises(FAILED, match="stand where offsets will"):
        runner.run(calls[made])
    assert not any(runner.command("EXISTS", KEYS.partition("t", n).log) for n in range(2))
    assert runner.command("HGETALL", KEYS.topics()) == before


def test_a_redis_group_that_waited_for_the_topic_is_kept(runner: Runner) -> None:
    stream = KEYS.partition("t", 0).stream
    runner.command("XGROUP", "CREATE", stream, "korvet", "$", "MKSTREAM")
    part = Part(runner, mode="dense").create()
    assert part.append(1).base == 0
    read: Any = runner.command("XREADGROUP", "GROUP", "korvet", "me", "STREAMS", stream, ">")
    assert len(read) == 1
