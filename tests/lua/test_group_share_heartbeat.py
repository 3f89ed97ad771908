"""Share groups (KIP-932): members, epochs, assignments, and the topics that the group has read."""

from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.modern import encode_subscription, pack
from korvet.scripts.call import Signal
from korvet.scripts.calls.group import ShareHeartbeatReply
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from tests.lua.groups import TICK_MS, ModernGroup, commit_call
from tests.lua.groups import Group as ClassicGroup
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.selection import seeds
from tests.support.store_runners import Runner

KEYS = Keys()
K = KEYS.group("g")
IDS = {"t": "a" * 32, "u": "b" * 32}
SESSION_MS = ModernGroup.session_ms


class Group(ModernGroup):
    """A share group, and the topics that exist."""

    retention_ms = 1000

    def __init__(self, runner: Runner, **sizes: int) -> None:
        super().__init__(runner)
        self.sizes = sizes or {"t": 4}

    def beat(
        self, member: str, epoch: int, names: list[str] | None = None, **changes: Any
    ) -> ShareHeartbeatReply:
        """Send a heartbeat, repeated with topics if they are needed."""
        if epoch == 0 and names is None:
            names = ["t"]
        words: dict[str, Any] = {
            "rack": "",
            "client_id": "c",
            "client_host": "/h",
            "session_ms": SESSION_MS,
            "interval_ms": 0,
            "max_size": 100,
            "max_bytes": 1_000_000,
            "max_topics": 100,
            "is_registered": 1,
            "has_names": int(names is not None),
            "names": pack(sorted(names or ())),
            "topics_version": b"%d" % self.version,
            "resolved": b"",
            "rows": (),
        }
        words |= changes
        reply = self._send(member, epoch, words)
        while reply.need_topics:
            wanted = {name.decode() for name in reply.names}
            rows = [("t", t, f"{IDS[t]}:{n}") for t, n in self.sizes.items() if t in wanted]
            resolved = encode_subscription(reply.names)
            reply = self._send(member, epoch, {**words, "resolved": resolved, "rows": rows})
        return reply

    def _send(self, member: str, epoch: int, words: dict[str, Any]) -> ShareHeartbeatReply:
        return self.send(self.keys.share_heartbeat(member=member, epoch=epoch, **words))

    def describe(self) -> Any:
        return self.runner.run(KEYS.group("g").modern_describe(type="share"))

    def topics(self) -> list[str]:
        flat = self.runner.run(KEYS.group("g").list_share_topics()).topics
        return sorted(name.decode() for name in flat[::2])

    def alter(self, *topics: tuple[str, str], creates: int = 0, is_registered: int = 1) -> int:
        call = KEYS.group("g").share_alter_topics(
            topics, creates=creates, is_registered=is_registered
        )
        return self.runner.run(call).error


def held(reply: ShareHeartbeatReply) -> set[str]:
    rows = decode_assignment(reply.assignment).items()
    return {f"{topic[0]}:{number}" for topic, numbers in rows for number in numbers}


@pytest.fixture
def group(runner: Runner) -> Group:
    """A group without members."""
    return Group(runner)


def test_a_member_has_its_assignment_at_once_and_members_share(group: Group) -> None:
    one = group.beat("m1", 0)
    assert (one.error, one.epoch, held(one)) == (0, 1, {"a:0", "a:1", "a:2", "a:3"})
    two = group.beat("m2", 0)
    assert (two.epoch, len(held(two))) == (2, 2)
    again = group.beat("m1", 1)
    assert (again.epoch, again.has_assignment) == (2, 1)
    assert held(again) | held(two) == held(one)
    quiet = group.beat("m1", 2)
    assert (quiet.epoch, quiet.has_assignment) == (2, 0)
    described = group.describe()
    assert (described.state, described.epoch, described.assignment_epoch) == (b"Stable", 2, 2)
    assert (described.assignor, described.members[::14]) == (b"simple", [b"m1", b"m2"])
    for extra in range(6):
        assert held(group.beat(f"n{extra}", 0)), "no member is idle"


def test_invalid_members_are_refused_as_by_kafka(group: Group) -> None:
    for epoch in (-1, 3):
        assert group.beat("m", epoch).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.beat("m", 0, is_registered=0).error == Signal.REGISTER_FIRST
    assert group.beat("m", 0).epoch == 1
    assert group.beat("n", 3).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("n", -1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("m", 7).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 0, max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("n", 3, max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("m", 0, max_size=1).error == ErrorCode.NONE


def test_the_previous_epoch_is_valid_after_a_lost_response(group: Group) -> None:
    group.beat("m1", 0)
    group.beat("m2", 0)
    assert group.beat("m1", 1).epoch == 2
    assert group.beat("m1", 1).epoch == 2
    group.beat("m3", 0)
    assert group.beat("m1", 2).epoch == 3
    assert group.beat("m1", 1).error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_leaves_gives_its_partitions_to_others(group: Group) -> None:
    group.beat("m1", 0)
    group.beat("m2", 0)
    assert len(held(group.beat("m1", 1))) == 2
    gone = group.beat("m2", -1)
    assert (gone.error, gone.epoch, gone.rebalances) == (0, -1, 1)
    assert len(held(group.beat("m1", 2))) == 4
    group.beat("m1", -1)
    assert (group.describe().state, group.describe().members) == (b"Empty", [])


def test_topics_that_come_and_grow_are_assigned(group: Group) -> None:
    one = group.beat("m1", 0, ["t", "u"])
    assert held(one) == {"a:0", "a:1", "a:2", "a:3"}
    group.sizes, group.version = {"t": 5, "u": 1}, 2
    later = group.beat("m1", 1)
    assert (later.epoch, held(later)) == (2, {"a:0", "a:1", "a:2", "a:3", "a:4", "b:0"})
    assert group.topics() == ["t", "u"]
    assert held(group.beat("m1", 2, ["u"])) == {"b:0"}
    assert group.topics() == ["t", "u"], "the group has state in the partitions of t"
    group.sizes, group.version = {"t": 5}, 3
    assert held(group.beat("m1", 3)) == set()
    assert group.topics() == ["t"], "u was deleted"


def test_assignments_are_no_more_frequent_than_the_interval(lua: LuaRunner) -> None:
    group = Group(lua)
    group.beat("m1", 0)
    two = group.beat("m2", 0, interval_ms=1000)
    assert (two.epoch, held(two), two.next_heartbeat_ms) == (1, set(), 500)
    lua.advance(1001)
    assert group.beat("m2", 1, interval_ms=1000).epoch == 2
    lua.advance(3001)
    assert group.beat("m1", 1, interval_ms=1000).next_heartbeat_ms == 0


def test_expired_share_group_members_are_removed_without_a_heartbeat(lua: LuaRunner) -> None:
    group = Group(lua)
    group.beat("m1", 0)
    epoch = group.beat("m2", 0).epoch
    for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 1):
        lua.advance(TICK_MS)
        epoch = group.beat("m2", epoch).epoch
        reply = group.tick()
    assert group.beat("m1", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert reply.gone == 0
    for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 1):
        lua.advance(TICK_MS)
        reply = group.tick()
    assert (group.describe().state, reply.wait_ms, reply.gone) == (b"Empty", -1, 0)
    lua.advance(10**9)
    assert group.tick().gone == 0, "a share group does not expire"
    assert group.topics() == ["t"]


def test_groups_of_other_types_take_no_share_members_and_the_reverse(group: Group) -> None:
    runner = group.runner
    classic = ClassicGroup(runner, "g")
    classic.commit(5)
    assert group.beat("m", 0).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert not classic.delete().error
    consumer = ConsumerGroup(runner)
    consumer.beat("c", 0, ())
    assert group.beat("m", 0).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.alter(("t", IDS["t"]), creates=1) == ErrorCode.GROUP_ID_NOT_FOUND
    consumer.beat("c", -1)
    assert group.beat("m", 0).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert not classic.delete().error
    assert group.beat("m", 0).error == 0
    for _ in range(2):
        assert classic.join().error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert consumer.beat("c", 0, ()).error == ErrorCode.GROUP_ID_NOT_FOUND
        row = ("t", 0, 5, -1, IDS["t"], "")
        for member, epoch in (("m", 1), ("", -1)):
            assert runner.run(commit_call([row], member, epoch)).error == (
                ErrorCode.GROUP_ID_NOT_FOUND
            )
        check = KEYS.group("g").check_epoch(member="m", epoch=1)
        assert runner.run(check).error == ErrorCode.GROUP_ID_NOT_FOUND
        described = runner.run(KEYS.group("g").modern_describe(type="consumer"))
        assert described.error == ErrorCode.GROUP_ID_NOT_FOUND
        group.beat("m", -1)  # without members it is still a share group


def test_offsets_of_a_group_with_members_cannot_be_altered(group: Group) -> None:
    rows = (("t", IDS["t"]), ("u", IDS["u"]))
    assert group.alter(*rows) == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.alter(*rows, creates=1, is_registered=0) == Signal.REGISTER_FIRST
    assert group.alter(*rows, creates=1) == 0
    assert (group.describe().state, group.topics()) == (b"Empty", ["t", "u"])
    assert group.alter(("u", "")) == 0
    assert group.topics() == ["t"]
    group.beat("m", 0)
    assert group.alter(("t", "")) == ErrorCode.NON_EMPTY_GROUP
    assert group.topics() == ["t"]


def test_a_deleted_share_group_leaves_no_key(lua: LuaRunner) -> None:
    group = Group(lua)
    group.beat("m1", 0)
    assert lua.run(KEYS.group("g").delete(commits=0)).error == ErrorCode.NON_EMPTY_GROUP
    group.beat("m1", -1)
    assert not lua.run(KEYS.group("g").delete(commits=0)).error
    assert lua.command("KEYS", "*") == []


@pytest.mark.parametrize("seed", seeds(range(6)))
def test_random_members_share_all_partitions_once_all_have_sent_a_heartbeat(  # noqa: C901
    lua: LuaRunner, seed: int
) -> None:
    random, group = Random(seed), Group(lua, t=5, u=3)
    epochs: dict[str, int] = {}
    wanted: dict[str, list[str]] = {}
    mine: dict[str, set[str]] = {}

    def beat(name: str, lost: float) -> None:
        names = wanted[name] if epochs[name] == 0 or random.random() < 0.1 else None
        reply = group.beat(name, epochs[name], names)
        if random.random() < lost:
            return
        if reply.error:
            assert reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            epochs[name], mine[name] = 0, set()
            return
        assert reply.epoch >= epochs[name]
        if names is not None or reply.epoch != epochs[name]:
            mine[name] = held(reply) if reply.has_assignment else mine[name]
        epochs[name] = reply.epoch

    for turn in range(120):
        lua.advance(random.randrange(2000))
        kind = random.random()
        if kind < 0.1 and len(epochs) < 12:
            name = f"m{turn}"
            epochs[name], mine[name] = 0, set()
            wanted[name] = random.choice([["t"], ["u"], ["t", "u"]])
        elif kind < 0.15 and epochs:
            name = random.choice(sorted(epochs))
            group.beat(name, -1)
            del epochs[name]
        elif kind < 0.2:
            group.sizes, group.version = {**group.sizes, "t": random.randrange(1, 7)}, turn + 2
        elif epochs:
            beat(random.choice(sorted(epochs)), 0.1)
    if not epochs:
        epochs["last"], wanted["last"], mine["last"] = 0, ["t", "u"], set()
    for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 3):
        lua.advance(TICK_MS)
        for name in epochs:
            beat(name, 0)
        group.tick()
    assert lua.command("HLEN", K.consumer_members) == len(epochs)
    assert lua.command("HGET", K.group, "size") == b"%d" % len(epochs)
    assert set(epochs.values()) == {group.describe().epoch}
    for topic, size in group.sizes.items():
        readers = [name for name in epochs if topic in wanted[name]]
        parts = {p for name in readers for p in mine[name] if p.startswith(IDS[topic][0])}
        assert not readers or parts == {f"{IDS[topic][0]}:{n}" for n in range(size)}
    for name in epochs:
        assert {p[0] for p in mine[name]} <= {IDS[topic][0] for topic in wanted[name]}
