"""Check log.append_many: each batch gets the result that log.append would give it."""

import random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts import append_call
from korvet.scripts.append_call import batch_of
from korvet.scripts.calls.namespace import LogAppendManyReply
from korvet.scripts.calls.partition import AppendReply
from korvet.testing import LuaRunner
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.support.store_runners import Runner

SHAPES = [("record", "time"), ("record", "dense"), ("batch", "time"), ("batch", "dense")]


def alone_and_together(form: str, mode: str) -> tuple[Part, Part]:
    """Return two empty partitions with separate clocks."""
    first, second = (Part(LuaRunner(), form, mode).create() for _ in range(2))
    return first, second


def append_many(
    part: Part, calls: list[Any], topic_id: str = ID, stamp: int = 0
) -> LogAppendManyReply:
    """Send the appends in one call; return the reply."""
    batches = [batch_of(call) for call in calls]
    return part.runner.run(append_call.append_many(KEYS, [("t", 0, topic_id, stamp, batches)]))


def seen(part: Part) -> tuple[object, ...]:
    """Return the partition's whole content."""
    k = part.keys
    return (
        part.runner.command("XRANGE", k.stream, "-", "+"),
        part.state(),
        dict(zip(*[iter(part.runner.command("HGETALL", k.producers))] * 2, strict=True)),
        part.runner.command("ZRANGE", k.index, 0, -1, "WITHSCORES"),
        part.runner.command("ZRANGE", k.open_txns, 0, -1, "WITHSCORES"),
    )


@pytest.mark.parametrize(
    ("there", "topic_id", "error"),
    [
        (False, ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_log_that_is_not_the_callers_refuses_all_batches(
    runner: Runner, there: bool, topic_id: str, error: ErrorCode
) -> None:
    part = Part(runner)
    if there:
        part.create()
    reply = append_many(part, [part.call(), part.call()], topic_id)
    assert reply.answers == [AppendReply(error, -1, -1, -1, -1, 0)] * 2
    assert part.ids() == []


@pytest.mark.parametrize(("form", "mode"), [*SHAPES, ("record", "bytes")])
@pytest.mark.parametrize("stamp", [0, 1])
def test_batches_in_one_call_get_the_results_of_single_appends(
    form: str, mode: str, stamp: int
) -> None:
    """The random appends of three producers include repeats and sequence gaps."""
    chance = random.Random(f"{form} {mode} {stamp}")
    for _ in range(12):
        alone, together = alone_and_together(form, mode)
        sequences = {1: 0, 2: 0, 3: 0}
        for _ in range(4):
            words: list[dict[str, int]] = []
            for _ in range(chance.randrange(1, 6)):
                count, producer = chance.randrange(1, 4), chance.choice([-1, 1, 2, 3])
                row = {"count": count, "stamp": stamp, "max_timestamp": chance.randrange(10**6)}
                if producer > 0:
                    sequence = sequences[producer] + chance.choice([0, 0, 0, 0, -count, 1])
                    if sequence == sequences[producer]:
                        sequences[producer] += count
                    row |= {"producer_id": producer, "producer_epoch": 0}
                    row |= {"base_sequence": max(sequence, 0)}
                words.append(row)
            one_by_one = [alone.append(**row) for row in words]
            reply = append_many(together, [together.call(**row) for row in words], stamp=stamp)
            assert reply.answers == one_by_one
            passed = chance.randrange(3)
            for part in (alone, together):
                part.runner.advance(passed)
        assert seen(together) == seen(alone)


def test_a_foreign_entry_between_calls_is_skipped(runner: Runner) -> None:
    part = Part(runner, "record", "dense").create()
    part.append(2)
    part.native()
    part.native()
    reply = append_many(part, [part.call(2), part.call(1)])
    assert [(row.base, row.previous) for row in reply.answers] == [(4, 4), (6, 6)]
    assert part.bounds().next == 7


def test_a_rejected_batch_does_not_affect_the_next_one(runner: Runner) -> None:
    part = Part(runner, "batch", "dense").create()
    producer = {"producer_id": 9, "producer_epoch": 0}
    reply = append_many(
        part,
        [
            part.call(2, base_sequence=0, **producer),
            part.call(1, base_sequence=7, **producer),
            part.call(1, base_sequence=2, **producer),
            part.call(1, base_sequence=2, **producer),
        ],
    )
    assert [(row.error, row.base, row.stored) for row in reply.answers] == [
        (0, 0, 1),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 0),
        (0, 2, 1),
        (0, 2, 0),
    ]
    assert part.bounds().next == 3


def test_partitions_in_one_call_are_independent(runner: Runner) -> None:
    here = Part(runner, "batch", "dense").create()
    gone = batch_of(here.call(2))
    other = Part(runner, "record", "dense", topic="u").create()
    reply = runner.run(
        append_call.append_many(
            KEYS,
            [
                ("t", 0, ID, 0, [batch_of(here.call(2)), batch_of(here.call(1))]),
                ("v", 0, ID, 0, [gone]),
                ("u", 0, OTHER_ID, 0, [gone, gone]),
                ("u", 0, ID, 1, [batch_of(other.call(3))]),
            ],
        )
    )
    assert [(row.error, row.base, row.stored) for row in reply.answers] == [
        (0, 0, 1),
        (0, 2, 1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0),
        (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0),
        (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0),
        (0, 0, 1),
    ]
    assert [row.append_time < 0 for row in reply.answers] == [True] * 5 + [False]
    assert (here.bounds().next, other.bounds().next) == (3, 3)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("key", ["stream", "log", "state"])
def test_a_partition_whose_keys_are_broken_fails_alone(
    runner: Runner, key: str, *, first: bool
) -> None:
    good = Part(runner, "batch", "dense").create()
    bad = Part(runner, "batch", "dense", topic="bad").create()
    if key == "state":
        runner.command("HDEL", bad.keys.log, "next")
    else:
        name = getattr(bad.keys, key)
        runner.command("DEL", name)
        runner.command("SET", name, "nonsense")
    logs = [
        ("bad", 0, ID, 0, [batch_of(bad.call(2)), batch_of(bad.call(1))]),
        ("t", 0, ID, 0, [batch_of(good.call(3))]),
    ]
    reply = runner.run(append_call.append_many(KEYS, logs if first else logs[::-1]))
    broken = [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 2
    assert [(row.error, row.base) for row in reply.answers] == (
        [*broken, (0, 0)] if first else [(0, 0), *broken]
    )
    assert reply.reason.startswith(bad.keys.stream.encode() + b": ")
    assert good.bounds().next == 3
