"""Consumer groups (KIP-848): refusals, and no partition has two owners as members change."""

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.modern import encode_subscription, pack
from korvet.groups.offset_commit import parse_commit
from korvet.scripts.call import Signal
from korvet.scripts.calls.group import ConsumerHeartbeatReply
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from tests.lua.groups import RETENTION_MS, TICK_MS, ModernGroup, commit_call
from tests.lua.groups import Group as ClassicGroup
from tests.selection import seeds
from tests.support.store_runners import Runner

KEYS = Keys()
TOPIC = "a" * 32
SESSION_MS = ModernGroup.session_ms


class Group(ModernGroup):
    """A group whose members subscribe to topic `t`."""

    def __init__(self, runner: Runner, partitions: int = 6) -> None:
        super().__init__(runner)
        self.partitions = partitions
        self.topics: dict[str, tuple[str, int]] = {}
        self.between: Callable[[], object] | None = None
        """Called between a heartbeat and its repetition with topics."""

    def beat(
        self, member: str, epoch: int, owned: Any = None, **changes: Any
    ) -> ConsumerHeartbeatReply:
        """Send a heartbeat, repeated with topics if they are needed."""
        words: dict[str, Any] = {
            "instance": "",
            "rack": "",
            "client_id": "c",
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "rebalance_ms": 60_000 if epoch == 0 else -1,
            "assignor": "",
            "max_size": 100,
            "max_bytes": 1_000_000,
            "max_topics": 100,
            "is_registered": 1,
            "subscription_mask": int(epoch == 0),
            "names": pack(["t"]) if epoch == 0 else b"",
            "regex": "",
            "has_owned": int(owned is not None),
            "owned": ";".join(sorted(owned or ())),
            "topics_version": b"%d" % self.version,
            "resolved": b"",
            "rows": (),
        }
        words |= changes
        reply = self._send(member, epoch, words)
        while reply.need_topics:
            topics = self.topics or {"t": (TOPIC, self.partitions)}
            wanted = {name.decode() for name in reply.names}
            rows = [("t", t, f"{id}:{n}") for t, (id, n) in topics.items() if t in wanted]
            between, self.between = self.between, None
            if between:
                between()
            resolved = encode_subscription(reply.names, reply.regexes)
            reply = self._send(member, epoch, {**words, "resolved": resolved, "rows": rows})
        return reply

    def _send(self, member: str, epoch: int, words: dict[str, Any]) -> ConsumerHeartbeatReply:
        return self.send(self.keys.consumer_heartbeat(member=member, epoch=epoch, **words))


class Member:
    """A client that follows its assignment, one heartbeat late or not."""

    def __init__(self, group: Group, name: str, **joining: Any) -> None:
        self.group, self.name = group, name
        self.held: set[str] = set()
        self.epoch = 0
        self.joining = joining

    def step(self) -> ErrorCode:
        """Send one heartbeat, and revoke partitions at once."""
        joining = self.joining if self.epoch == 0 else {}
        reply = self.group.beat(self.name, self.epoch, self.held, **joining)
        if reply.error:
            self.epoch, self.held = 0, set()
            return ErrorCode(reply.error)
        self.epoch = reply.epoch
        if reply.has_assignment:
            self.held = {
                f"{topic}:{number}"
                for topic, numbers in decode_assignment(reply.assignment).items()
                for number in numbers
            }
        return ErrorCode.NONE


def settle(members: list[Member]) -> None:
    """Send heartbeats until all members have converged."""
    for _ in range(6):
        for member in members:
            member.step()


@pytest.fixture
def group(runner: Runner) -> Group:
    """A group without members."""
    return Group(runner)


def test_unknown_and_fenced_members_are_refused(group: Group) -> None:
    assert group.beat("m", 3).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.beat("m", 0).error == 0
    assert group.beat("n", 3).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("m", 7).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 0, max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_has_to_be_registered_first(group: Group) -> None:
    assert group.beat("m", 0, is_registered=0).error == Signal.REGISTER_FIRST
    assert group.beat("m", 0).error == 0


def test_a_static_member_keeps_its_partitions_under_a_new_id(group: Group) -> None:
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


def test_a_member_that_joins_as_another_instance_releases_the_first(group: Group) -> None:
    one, two = Member(group, "m1", instance="i"), Member(group, "m2", instance="j")
    settle([one, two])
    group.beat("m2", -2, instance="j")
    other = Member(group, "m1", instance="j")
    third = Member(group, "m3", instance="i")
    settle([other, third])
    assert len(other.held) == len(third.held) == 3 and not other.held & third.held
    described = group.runner.run(KEYS.group("g").modern_describe(type="consumer"))
    assert (described.state, len(described.members)) == (b"Stable", 28)
    for member in (other, third):
        group.beat(member.name, -1)
    assert group.runner.run(KEYS.group("g").modern_describe(type="consumer")).state == b"Empty"


def test_partitions_of_a_former_instance_are_assigned_again(
    group: Group,
) -> None:
    settle([Member(group, "m1", instance="i"), Member(group, "m2", instance="j")])
    group.beat("m2", -2, instance="j")
    other = Member(group, "m1", instance="j")
    settle([other])
    assert len(other.held) == group.partitions


def test_a_member_that_joins_again_without_its_instance_keeps_it(group: Group) -> None:
    one = Member(group, "m1", instance="i")
    settle([one])
    assert group.beat("m1", 0).error == 0
    assert group.beat("m2", 0, instance="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
    group.beat("m1", -1)
    assert group.beat("m2", 0, instance="i").error == 0


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_have_equal_shares_also_of_new_partitions(group: Group, assignor: str) -> None:
    members = [Member(group, f"m{n}", assignor=assignor) for n in range(4)]
    settle(members)
    assert sorted(len(member.held) for member in members) == [1, 1, 2, 2]
    group.partitions, group.version = 8, 2
    settle(members)
    assert [len(member.held) for member in members] == [2, 2, 2, 2]


def test_a_commit_of_an_old_epoch_is_stale(group: Group) -> None:
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])

    def commit(member: str, epoch: int, partition: int = 0) -> int:
        rows = [("t", partition, 5, -1, TOPIC, "")]
        call = commit_call(rows, member, epoch)
        return group.runner.run(call).error

    mine = int(min(one.held).partition(":")[2])
    other = int(min(two.held).partition(":")[2])
    assert commit("m1", one.epoch) == 0
    assert commit("m1", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    # Its epoch grew after the commit was sent: valid for partitions owned since then (KIP-1251).
    assert commit("m1", one.epoch - 1, mine) == 0
    assert commit("m1", one.epoch - 1, other) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m2", two.epoch - 1, other) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    described = group.runner.run(KEYS.group("g").modern_describe(type="consumer"))
    assert (described.state, len(described.members)) == (b"Stable", 28)


def test_a_member_commits_what_it_owns_from_where_it_began(group: Group) -> None:
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])
    mine = int(min(one.held).partition(":")[2])
    other = int(min(two.held).partition(":")[2])
    fenced, stale, moved = (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_RECORD_STATE,
    )
    for member, ahead, rows, error in (
        ("m1", 0, [(mine, "-1", 5)], 0),
        ("m1", 0, [(mine, "-1", 6)], moved),  # repeated
        ("m1", 0, [(mine, "4", 6)], moved),
        ("m1", 0, [(mine, "5", 6)], 0),
        ("m1", 0, [(mine, "", 7)], 0),
        ("m1", 0, [(mine, "7", 8), (other, "-1", 8)], stale),  # all or nothing
        ("m1", 1, [(mine, "7", 8)], stale),
        ("m1", -1, [(mine, "7", 8)], 0),  # owned since then (KIP-1251)
        ("m2", -1, [(other, "-1", 8)], stale),
        ("m3", 0, [(mine, "8", 9)], fenced),
        ("m1", 0, [], 0),
        ("m1", -1, [], stale),
        ("m3", 0, [], fenced),
    ):
        cells = [(f"korvet:t:{n}", since, offset, TOPIC, "") for n, since, offset in rows]
        call = KEYS.group("g").commit_owned(cells, member=member, epoch=one.epoch + ahead)
        assert group.runner.run(call).error == error, (member, ahead, rows)
    stored = group.runner.command("HGETALL", KEYS.group_offsets("g"))
    offsets = stored if isinstance(stored, list) else next(iter(stored.items()))
    commit = parse_commit(offsets[1])
    assert len(offsets) == 2 and commit is not None
    assert (commit.offset, commit.topic_id, commit.epoch) == (8, TOPIC, -1)
    again = KEYS.group("g").commit_owned(
        [(f"korvet:t:{mine}", "-1", 1, "b" * 32, "")], member="m1", epoch=one.epoch
    )
    assert group.runner.run(again).error == stale  # a topic that was created again
    group.runner.command("HSET", KEYS.group_offsets("g"), f"korvet:t:{mine}", "17")
    by_hand = [(f"korvet:t:{mine}", "17", 18, TOPIC, "")]
    call = KEYS.group("g").commit_owned(by_hand, member="m1", epoch=one.epoch)
    assert group.runner.run(call).error == 0


def test_only_a_member_at_its_epoch_may_fetch_offsets(group: Group) -> None:
    one = Member(group, "m1")
    settle([one])

    def check(member: str, epoch: int, name: str = "g") -> int:
        return group.runner.run(KEYS.group(name).check_epoch(member=member, epoch=epoch)).error

    assert check("m1", one.epoch) == ErrorCode.NONE
    assert check("m1", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert check("m1", one.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert check("unknown", one.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert check("m1", one.epoch, "no group") == ErrorCode.NONE


def test_an_old_version_commits_nothing_for_a_consumer_group_member(group: Group) -> None:
    one = Member(group, "m1")
    settle([one])
    rows = [("t", 0, 5, -1, TOPIC, "")]
    for epoch in (one.epoch, one.epoch + 1):
        call = commit_call(rows, "m1", epoch, allowed=0)
        assert group.runner.run(call).error == ErrorCode.UNSUPPORTED_VERSION
    unknown = group.runner.run(commit_call(rows, "unknown", one.epoch, allowed=0))
    assert unknown.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_transactional_offsets_are_checked_by_the_script_that_stores_them(group: Group) -> None:
    """Between a check and a later write the member could lose the partitions it commits."""
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])

    def txn_commit(member: str, epoch: int, partition: int = 0) -> int:
        call = KEYS.group("g").txn_commit(
            KEYS.commit_rows([("t", partition, 5, -1, TOPIC, "")]),
            member=member,
            instance="",
            generation=epoch,
            is_registered=1,
            producer_id=9,
            producer_epoch=0,
            transaction=1,
        )
        return group.runner.run(call).error

    mine = int(min(one.held).partition(":")[2])
    other = int(min(two.held).partition(":")[2])
    assert txn_commit("m1", one.epoch - 1, other) == ErrorCode.STALE_MEMBER_EPOCH
    assert txn_commit("m1", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert txn_commit("m1", -1) == ErrorCode.STALE_MEMBER_EPOCH
    assert txn_commit("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.runner.command("EXISTS", KEYS.group("g").txn_offsets) == 0
    assert txn_commit("m1", one.epoch - 1, mine) == 0
    assert txn_commit("m1", one.epoch, mine) == 0
    assert txn_commit("", -1) == 0
    assert one.step() == two.step() == ErrorCode.NONE


@pytest.mark.parametrize(("assignor", "width"), [("uniform", 1), ("range", 1), ("uniform", 40)])
@pytest.mark.parametrize(
    "seed", seeds(range(int(os.environ.get("KORVET_GROUP_SEEDS", "3"))), quick=1)
)
def test_no_partition_has_two_owners(  # noqa: C901
    lua: LuaRunner, seed: int, assignor: str, width: int
) -> None:
    random, group = Random(seed), Group(lua, 7 * width)
    members: list[Member] = []
    for turn in range(150):
        kind = random.random()
        if kind < 0.12 and len(members) < 6:
            static = {"instance": f"i{turn}"} if turn % 2 else {}
            members.append(Member(group, f"m{turn}", assignor=assignor, **static))
        elif kind < 0.16 and members:
            gone = members.pop(random.randrange(len(members)))
            if gone.epoch:
                group.beat(gone.name, -1)
        elif kind < 0.2 and members:
            # A static member leaves and rejoins with another id.
            place = random.randrange(len(members))
            gone = members[place]
            if gone.epoch and "instance" in gone.joining:
                reply = group.beat(gone.name, -2, instance=gone.joining["instance"])
                assert reply.error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
                members[place] = Member(group, f"m{turn}", **gone.joining)
        elif kind < 0.23 and members:
            # It stops without leaving: its partitions are released once its session has expired.
            members.pop(random.randrange(len(members)))
            for member in members:
                lua.advance(TICK_MS)
                member.step()
        elif kind < 0.27:
            group.partitions, group.version = random.randrange(1, 10) * width, group.version + 1
        elif members:
            lua.advance(random.randrange(30))
            random.choice(members).step()
        held = [partition for member in members for partition in member.held]
        assert len(held) == len(set(held))
    if not members:
        members.append(Member(group, "last", assignor=assignor))
    # The deadline of a heartbeat without news is up to a tenth of the session later.
    for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 1):
        lua.advance(TICK_MS)
        for member in members:
            member.step()
    settle(members)
    held = sorted(partition for member in members for partition in member.held)
    assert held == sorted(f"{TOPIC}:{number}" for number in range(group.partitions))
    shares = [len(member.held) for member in members]
    assert max(shares) - min(shares) <= 1
    described = lua.run(KEYS.group("g").modern_describe(type="consumer"))
    assert (described.state, described.epoch) == (b"Stable", described.assignment_epoch)
    # No removed member has left rows.
    k = KEYS.group("g")
    counts = [
        lua.command("HLEN", key)
        for key in (k.consumer_members, k.target_assignment, k.partition_owners)
    ]
    assert counts[::2] == [len(members), group.partitions]
    assert counts[1] <= len(members)


def test_expired_consumer_group_members_are_removed_without_a_heartbeat(lua: LuaRunner) -> None:
    group = Group(lua)
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])
    for _ in range(SESSION_MS // TICK_MS + 1):
        lua.advance(TICK_MS)
        one.step()
        reply = group.tick()
    assert two.step() == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(SESSION_MS // TICK_MS + 1):
        lua.advance(TICK_MS)
        reply = group.tick()
    assert reply.wait_ms > 0
    assert lua.command("HGET", KEYS.group("g").group, "state") == b"Empty"


def test_a_member_that_does_not_revoke_in_time_is_removed(lua: LuaRunner) -> None:
    group = Group(lua, 2)
    slow, other = Member(group, "m1", rebalance_ms=10_000), Member(group, "m2")
    slow.step()
    other.step()
    held, epoch = set(slow.held), slow.epoch
    for _ in range(4):
        lua.advance(TICK_MS)
        last = group.beat("m1", epoch, held).error
        other.step()
    assert last == ErrorCode.UNKNOWN_MEMBER_ID
    other.step()
    assert len(other.held) == 2


def test_no_member_is_removed_after_brokers_were_absent(lua: LuaRunner) -> None:
    group = Group(lua)
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one, two])
    epoch = one.epoch
    lua.advance(SESSION_MS * 10)
    group.tick()
    settle([one, two])
    assert (one.epoch, two.epoch, len(one.held), len(two.held)) == (epoch, epoch, 3, 3)


def test_old_offsets_expire_and_then_the_group(lua: LuaRunner) -> None:
    group = Group(lua)
    one = Member(group, "m1")
    one.step()
    rows = [("t", 0, 5, -1, TOPIC, "")]
    kept = commit_call(rows, "m1", one.epoch)
    assert not lua.run(kept).error
    lua.advance(TICK_MS * 20)
    one.step()
    assert group.beat("m1", -1).wait_ms > 0
    lua.advance(RETENTION_MS - 1000)
    assert group.tick().gone == 0
    lua.advance(1000)
    reply = group.tick()
    assert (reply.expired, reply.gone) == ([KEYS.partition("t", 0).stream.encode()], 1)
    assert lua.command("KEYS", "*") == []


def test_a_pending_id_of_a_former_classic_group_delays_no_member(lua: LuaRunner) -> None:
    classic, group = ClassicGroup(lua, "g"), Group(lua)
    assert classic.join(require_member_id=1).error == ErrorCode.MEMBER_ID_REQUIRED
    one = Member(group, "one")
    settle([one])
    lua.advance(TICK_MS)
    one.step()
    lua.advance(TICK_MS)
    one.step()
    lua.advance(TICK_MS)
    group.beat("one", -1)
    assert group.tick().wait_ms > 0
    (member,), _ = classic.stable()
    assert not classic.join(member).waiting, "no other member is expected"


def test_a_deleted_group_leaves_no_key(lua: LuaRunner) -> None:
    group = Group(lua)
    one = Member(group, "m1", instance="i")
    one.step()
    assert lua.run(KEYS.group("g").delete(commits=0)).error == ErrorCode.NON_EMPTY_GROUP
    group.beat("m1", -1, instance="i")
    assert not lua.run(KEYS.group("g").delete(commits=0)).error
    assert lua.command("KEYS", "*") == []


def test_a_lost_response_is_repeated(lua: LuaRunner) -> None:
    group = Group(lua, 2)
    one, two = Member(group, "m1"), Member(group, "m2")
    one.step()
    two.step()
    one.step()
    before, held = one.epoch, set(one.held)
    acknowledged = group.beat("m1", before, held)
    # Only the epoch is new, and the response has no assignment.
    assert (acknowledged.epoch > before, acknowledged.has_assignment) == (True, 0)
    again = group.beat("m1", before, held)
    assert (again.epoch, again.has_assignment) == (acknowledged.epoch, 1)
    assert group.beat("m1", before).error == ErrorCode.FENCED_MEMBER_EPOCH
    other = group.beat("m1", before, {f"{TOPIC}:0", f"{TOPIC}:1"})
    assert other.error == ErrorCode.FENCED_MEMBER_EPOCH


def test_members_with_different_subscriptions_share_their_topics(lua: LuaRunner) -> None:
    topics = {"t": ("a" * 32, 6), "u": ("b" * 32, 6)}
    group = Group(lua)
    group.topics = topics
    both, only = Member(group, "m1", names=pack(["t", "u"])), Member(group, "m2")
    settle([both, only])
    assert len(both.held) == len(only.held) == 6
    assert {partition[0] for partition in only.held} == {"a"}


def test_a_target_assignment_of_a_large_group_covers_many_joins(lua: LuaRunner) -> None:
    group = Group(lua, 1000)
    members = [Member(group, f"m{n:02}") for n in range(20)]
    for member in members:
        member.step()
    dealt = group.runner.command("HGET", KEYS.group("g").group, "assignment_epoch")
    assert int(dealt) < 20
    for _ in range(4):
        lua.advance(1000)
        for member in members:
            member.step()
    assert [len(member.held) for member in members] == [50] * 20
    described = lua.run(KEYS.group("g").modern_describe(type="consumer"))
    assert (described.state, described.epoch) == (b"Stable", described.assignment_epoch)


def test_members_have_a_short_heartbeat_interval_until_they_converge(lua: LuaRunner) -> None:
    group = Group(lua)
    assert group.beat("m1", 0).next_heartbeat_ms == 500
    lua.advance(3001)
    assert group.beat("m1", 1).next_heartbeat_ms == 0


def test_members_can_be_removed_by_an_administrator(lua: LuaRunner) -> None:
    group = Group(lua)
    members = [Member(group, "m1"), Member(group, "m2", instance="i"), Member(group, "m3")]
    settle(members)
    leavers = [("m1", ""), ("unknown", ""), ("m3", "i"), ("", "i"), ("", "j")]
    reply = lua.run(KEYS.group("g").leave(leavers))
    assert reply.results == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [member.step() for member in members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    settle(members[2:])
    assert len(members[2].held) == 6


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_that_join_at_once_get_all_their_topics(runner: Runner, assignor: str) -> None:
    group = Group(runner)
    group.topics = {name: (name * 32, 4) for name in "abc"}
    members = [
        Member(group, f"m{name}", names=pack([name]), assignor=assignor) for name in ("a", "b", "c")
    ]

    def others() -> None:
        members[1].step()
        group.between = members[2].step
        members[1].step()

    group.between = others
    members[0].step()
    settle(members)
    assert [sorted(member.held) for member in members] == [
        [f"{name * 32}:{n}" for n in range(4)] for name in "abc"
    ]
