"""Check that Redis groups follow the commits of Kafka groups."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import GroupDestroyReply, GroupSeekReply
from korvet.scripts.keys import Keys
from tests.lua.partition import ID, Part
from tests.support.store_runners import Runner

KEYS = Keys()
STREAM = KEYS.partition("orders", 0).stream


@pytest.fixture(params=["time", "dense"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def filled(runner: Runner, mode: str, count: int = 5) -> list[int]:
    """Create a partition with records; return their offsets."""
    Part(runner, "record", mode, topic="orders").create()
    return [
        runner.run(
            KEYS.partition("orders", 0, ID).append(
                count=1, size=1, max_timestamp=1, fields=(2, b"value", b"%d" % number)
            )
        ).base
        for number in range(count)
    ]


def filled_at_once(runner: Runner, count: int) -> None:
    """Create a partition in dense mode with `count` records."""
    filled(runner, "dense", 0)
    record = (-1, b"value", *[b"v"] * count)
    call = KEYS.partition("orders", 0, ID).append(
        count=count, size=1, max_timestamp=1, fields=record
    )
    assert runner.run(call).base == 0


def follow(runner: Runner, offset: int, *, topic_id: str = ID, move: int = 1) -> GroupSeekReply:
    return runner.run(
        KEYS.partition("orders", 0, topic_id).group_seek(group="readers", offset=offset, move=move)
    )


def read(runner: Runner, count: int = 10) -> list[bytes]:
    """Read as a worker of the Redis group; return the values."""
    found = runner.command(
        "XREADGROUP", "GROUP", "readers", "worker", "COUNT", count, "STREAMS", STREAM, ">"
    )
    rows = next(iter(found.values())) if isinstance(found, dict) else found and found[0][1]
    rows = rows[0] if rows and isinstance(rows[0][0], list) else rows
    return [fields[1] if isinstance(fields, list) else fields[b"value"] for _, fields in rows or ()]


def test_what_is_not_there_is_not_followed(runner: Runner) -> None:
    assert follow(runner, 0).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    filled(runner, "time", 0)
    assert follow(runner, 0, topic_id="2" * 32).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert runner.command("EXISTS", STREAM) == 0


def test_a_native_worker_continues_at_the_committed_offset(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode)
    assert follow(runner, offsets[2]).error == ErrorCode.NONE
    assert read(runner, 1) == [b"2"]
    follow(runner, offsets[1])
    assert read(runner) == [b"1", b"2", b"3", b"4"]
    follow(runner, offsets[-1] + 1)
    assert read(runner) == []
    follow(runner, 0)
    assert len(read(runner)) == 5


def test_a_group_can_stand_on_a_partition_without_records(runner: Runner, mode: str) -> None:
    filled(runner, mode, 0)
    follow(runner, 0)
    offset = runner.run(
        KEYS.partition("orders", 0, ID).append(
            count=1, size=1, max_timestamp=1, fields=(2, b"value", b"first")
        )
    ).base
    assert read(runner) == [b"first"]
    assert runner.run(KEYS.partition("orders", 0, ID).list_offsets()).first == offset


def test_entries_below_the_commit_are_acknowledged(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode, 250)
    follow(runner, offsets[0])
    read(runner, 250)
    assert follow(runner, offsets[220], move=0).acked == 220
    assert runner.command("XPENDING", STREAM, "readers")[0] == 30  # type: ignore[index]
    assert read(runner) == []


def test_a_group_can_be_taken_from_a_stream(runner: Runner, mode: str) -> None:
    filled(runner, mode)
    follow(runner, 0)
    call = KEYS.partition("orders", 0).group_destroy(group="readers")
    assert runner.run(call).removed == 1
    assert runner.run(call).removed == 0
    assert runner.run(KEYS.partition("absent", 0).group_destroy(group="readers")).removed == 0


def test_a_group_with_many_pending_entries_is_taken_from_a_stream_in_steps(
    runner: Runner,
) -> None:
    filled_at_once(runner, 2_100)
    follow(runner, 0)
    read(runner, 2_000)
    call = KEYS.partition("orders", 0).group_destroy(group="readers")
    assert (runner.run(call).removed, runner.run(call).more) == (0, 1)
    assert len(read(runner, 100)) == 100
    assert runner.run(call) == (GroupDestroyReply(0, 1, 0))
    assert runner.run(call) == (GroupDestroyReply(0, 0, 0))


def test_a_commit_of_very_much_says_that_more_is_to_be_acknowledged(runner: Runner) -> None:
    """Entries beyond the limit of a call stayed pending until later commits passed them."""
    filled_at_once(runner, 10_100)
    follow(runner, 0)
    read(runner, 10_100)
    reply = follow(runner, 10_050)
    assert (reply.acked, reply.more) == (10_000, 1)
    reply = follow(runner, 10_050)
    assert (reply.acked, reply.more) == (50, 0)
    assert follow(runner, 10_050).more == 0
