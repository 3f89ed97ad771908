"""Check reads through a Redis group: uncommitted entries are delivered again, and first."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.stream_reads import ALL_CLAIMED, CLAIM_ALL
from korvet.scripts.calls.partition import GroupReadReply
from korvet.scripts.keys import Keys
from tests.lua.test_log_group_seek import ID, STREAM, filled, filled_at_once, follow, mode
from tests.support.store_runners import Runner

__all__ = ["mode"]

KEYS = Keys()


def deliver(
    runner: Runner,
    offset: int,
    *,
    consumer: str = "one",
    count: int = 10,
    claim: bytes = ALL_CLAIMED,
    topic_id: str = ID,
) -> GroupReadReply:
    return runner.run(
        KEYS.partition("orders", 0, topic_id).group_read(
            group="readers", consumer=consumer, offset=offset, count=count, claim=claim
        )
    )


def span(reply: GroupReadReply) -> tuple[int, int]:
    assert reply.error == ErrorCode.NONE
    return reply.first, reply.last


def test_what_is_not_there_is_not_delivered(runner: Runner) -> None:
    assert deliver(runner, 0).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    filled(runner, "time", 0)
    assert deliver(runner, 0, topic_id="2" * 32).error == ErrorCode.UNKNOWN_TOPIC_ID
    assert runner.command("EXISTS", STREAM) == 0


@pytest.mark.parametrize("claim", [ALL_CLAIMED, CLAIM_ALL])
def test_the_group_begins_at_the_first_fetch(runner: Runner, mode: str, claim: bytes) -> None:
    offsets = filled(runner, mode)
    assert span(deliver(runner, offsets[2], claim=claim)) == (offsets[2], offsets[4])
    assert span(deliver(runner, offsets[4] + 1)) == (-1, -1)


def test_a_reader_is_given_the_next_ones(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode)
    assert span(deliver(runner, offsets[0], count=2)) == (offsets[0], offsets[1])
    assert span(deliver(runner, offsets[2], count=2)) == (offsets[2], offsets[3])
    assert span(deliver(runner, offsets[4], count=2)) == (offsets[4], offsets[4])


def test_lost_deliveries_are_repeated(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode)
    deliver(runner, offsets[0], count=3)
    assert span(deliver(runner, offsets[1])) == (offsets[1], offsets[2])
    assert span(deliver(runner, offsets[3])) == (offsets[3], offsets[4])


def test_pending_entries_that_were_trimmed_do_not_block_the_reader(
    runner: Runner, mode: str
) -> None:
    """Each read returned the trimmed entries and no others."""
    offsets = filled(runner, mode)
    deliver(runner, offsets[0], count=3)
    for at, _ in runner.command("XRANGE", STREAM, "-", "+", "COUNT", 3):  # type: ignore[attr-defined]
        runner.command("XDEL", STREAM, at)
    assert span(deliver(runner, offsets[0], count=2)) == (offsets[3], offsets[4])
    assert runner.command("XPENDING", STREAM, "readers")[0] == 2  # type: ignore[index]
    runner.command("XDEL", STREAM, runner.command("XRANGE", STREAM, "-", "+")[0][0])  # type: ignore[index]
    assert span(deliver(runner, offsets[0])) == (offsets[4], offsets[4])


def test_a_new_owner_takes_over_what_was_left(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode)
    deliver(runner, offsets[0], count=3)
    follow(runner, offsets[1], move=0)
    reply = deliver(runner, offsets[1], consumer="two", claim=CLAIM_ALL)
    assert span(reply) == (offsets[1], offsets[2])
    assert span(deliver(runner, offsets[3], consumer="two")) == (offsets[3], offsets[4])
    follow(runner, offsets[4] + 1, move=0)
    assert runner.command("XPENDING", STREAM, "readers")[0] == 0  # type: ignore[index]


def test_of_very_much_that_was_left_nothing_is_passed_over(runner: Runner) -> None:
    """After 10,000 entries the reader got new ones, and the rest was never delivered."""
    filled_at_once(runner, 2_600)
    deliver(runner, 0, consumer="two", count=300)
    deliver(runner, 0, count=2_600)
    runner.command(
        "XCLAIM", STREAM, "readers", "two", 0, *(f"{(2**63 - 1)}-{n}" for n in (2_000, 2_400))
    )
    claim, at, calls = CLAIM_ALL, 0, 0
    while at < 2_600:
        reply = deliver(runner, at, consumer="two", count=500, claim=claim)
        claim, calls = reply.claim, calls + 1
        assert reply.first == at
        at = reply.last + 1
    assert claim == ALL_CLAIMED
    assert calls < 12


def test_what_is_pending_below_the_readers_place_is_claimed_by_parts(runner: Runner) -> None:
    filled_at_once(runner, 1_500)
    deliver(runner, 0, count=1_500)
    reply = deliver(runner, 1_400, consumer="two", claim=CLAIM_ALL)
    assert span(reply) == (-1, -1)
    assert reply.claim == b"%d-1000" % (2**63 - 1)
    reply = deliver(runner, 1_400, consumer="two", claim=reply.claim)
    assert (*span(reply), reply.claim) == (1_400, 1_409, ALL_CLAIMED)


def test_a_commit_never_takes_the_group_back_but_may_take_it_on(runner: Runner, mode: str) -> None:
    offsets = filled(runner, mode)
    deliver(runner, offsets[0], count=3)
    follow(runner, offsets[1], move=0)
    assert span(deliver(runner, offsets[3], count=1)) == (offsets[3], offsets[3])
    follow(runner, offsets[4] + 1, move=0)
    assert span(deliver(runner, offsets[4] + 1)) == (-1, -1)
