"""Groups of the newer protocol: refusals, and no partition in two hands, whoever comes and goes."""

from random import Random
from typing import Any

import pytest

from korvet.consuming import pack
from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.scripts import group as scripts
from korvet.scripts.group import ConsumeReply
from tests.lua.harness import LuaRunner
from tests.runners import Runner

KEYS = Keys()
TOPIC = "a" * 32
SESSION_MS = 45_000


class Group:
    """One group that reads topic `t`."""

    def __init__(self, runner: Runner, partitions: int = 6) -> None:
        self.runner = runner
        self.partitions = partitions
        self.version = 1

    def beat(self, member: str, epoch: int, owned: Any = None, **changes: Any) -> ConsumeReply:
        """A heartbeat, with the topics where they are asked for."""
        words: dict[str, Any] = {
            "instance": "",
            "rack": "",
            "client_id": "c",
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "rebalance_ms": 60_000 if epoch == 0 else -1,
            "assignor": "",
            "max_size": 100,
            "registered": 1,
            "subscribes": int(epoch == 0),
            "names": pack(["t"]) if epoch == 0 else b"",
            "regex": "",
            "owns": int(owned is not None),
            "owned": pack(sorted(owned or ())),
            "version": b"%d" % self.version,
            "known": 0,
            "rows": (),
        }
        words |= changes
        reply = self._run(member, epoch, words)
        if reply.ask:
            rows = [("t", "t", f"{TOPIC}:{self.partitions}")]
            reply = self._run(member, epoch, {**words, "known": 1, "rows": rows})
        return reply

    def _run(self, member: str, epoch: int, words: dict[str, Any]) -> ConsumeReply:
        return self.runner.run(scripts.consume(KEYS, "g", member=member, epoch=epoch, **words))


class Member:
    """A client that does as it is told, a heartbeat late or not."""

    def __init__(self, group: Group, name: str, **joining: Any) -> None:
        self.group, self.name = group, name
        self.held: set[str] = set()
        self.epoch = 0
        self.joining = joining

    def step(self) -> ErrorCode:
        """One heartbeat; what it must give up it gives up at once."""
        joining = self.joining if self.epoch == 0 else {}
        reply = self.group.beat(self.name, self.epoch, self.held, **joining)
        if reply.error:
            self.epoch, self.held = 0, set()
            return ErrorCode(reply.error)
        self.epoch = reply.epoch
        if reply.told:
            self.held = {partition.decode() for partition in reply.assignment}
        return ErrorCode.NONE


def settle(members: list[Member]) -> None:
    """Everybody has heard of everything."""
    for _ in range(6):
        for member in members:
            member.step()


@pytest.fixture
def group(runner: Runner) -> Group:
    """A group nobody is in."""
    return Group(runner)


def test_strangers_and_zombies_are_refused(group: Group) -> None:
    assert group.beat("m", 3).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("m", 0).error == 0
    assert group.beat("m", 7).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 0, max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_has_to_be_registered_first(group: Group) -> None:
    assert group.beat("m", 0, registered=0).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.beat("m", 0).error == 0


def test_a_static_member_is_one_at_a_time_and_comes_back_to_its_own(group: Group) -> None:
    one = Member(group, "m1", instance="i")
    two = Member(group, "m2", instance="j")
    settle([one, two])
    before = set(one.held)
    assert group.beat("m3", 0, instance="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.beat("m1", -2).epoch == -2
    again = Member(group, "m3", instance="i")
    settle([again, two])
    assert again.held == before
    assert group.beat("m1", 1, instance="i").error == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_everybody_gets_a_share_and_more_partitions_are_noticed(
    group: Group, assignor: str
) -> None:
    members = [Member(group, f"m{n}", assignor=assignor) for n in range(4)]
    settle(members)
    assert sorted(len(member.held) for member in members) == [1, 1, 2, 2]
    group.partitions, group.version = 8, 2
    settle(members)
    assert [len(member.held) for member in members] == [2, 2, 2, 2]


def test_a_commit_of_an_old_epoch_is_stale(group: Group) -> None:
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])

    def commit(member: str, epoch: int) -> int:
        rows = [("t", 0, 5, -1, TOPIC, "")]
        call = scripts.keep(KEYS, "g", rows, member=member, epoch=epoch)
        return group.runner.run(call).error

    assert commit("m1", one.epoch) == 0
    assert commit("m1", one.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    described = group.runner.run(scripts.consumers(KEYS, "g"))
    assert (described.state, len(described.members)) == (b"Stable", 20)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("seed", range(6))
def test_no_partition_is_in_two_hands(  # noqa: C901
    lua: LuaRunner, seed: int, assignor: str
) -> None:
    random, group = Random(seed), Group(lua, 7)
    members: list[Member] = []
    for turn in range(150):
        kind = random.random()
        if kind < 0.12 and len(members) < 6:
            members.append(Member(group, f"m{turn}", assignor=assignor))
        elif kind < 0.18 and members:
            gone = members.pop(random.randrange(len(members)))
            if gone.epoch:
                group.beat(gone.name, -1)
        elif kind < 0.21 and members:
            # It dies without a word: others get what it had once its session is over.
            members.pop(random.randrange(len(members)))
            for member in members:
                lua.advance(SESSION_MS // 40)
                member.step()
        elif kind < 0.25:
            group.partitions, group.version = random.randrange(1, 10), group.version + 1
        elif members:
            random.choice(members).step()
        held = [partition for member in members for partition in member.held]
        assert len(held) == len(set(held))
    if not members:
        members.append(Member(group, "last", assignor=assignor))
    for _ in range(3):
        settle(members)
        lua.advance(SESSION_MS // 2)
    settle(members)
    held = sorted(partition for member in members for partition in member.held)
    assert held == [f"{TOPIC}:{number}" for number in range(group.partitions)]
    shares = [len(member.held) for member in members]
    assert max(shares) - min(shares) <= 1
