"""Streams groups (KIP-1071): members, epochs, tasks, topologies, statuses."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.modern import unpack
from korvet.scripts.call import Signal
from korvet.testing import LuaRunner
from tests.lua.groups import TICK_MS, commit_call
from tests.lua.groups import Group as ClassicGroup
from tests.lua.streams import (
    COUNTING,
    KEYS,
    PLAIN,
    SESSION_MS,
    STATEFUL,
    Group,
    K,
    Member,
    held,
    settle,
    statuses,
    subtopology,
    topology,
)
from tests.lua.test_group_consumer_heartbeat import Group as ConsumerGroup
from tests.support.store_runners import Runner

STALE, NO_SOURCE, UNEQUAL, NO_INTERNAL, SHUTDOWN, DELAYED = range(6)


@pytest.fixture
def group(runner: Runner) -> Group:
    """A group without members."""
    return Group(runner)


def test_tasks_move_by_epochs_and_are_revoked_first(group: Group) -> None:
    one = group.beat("m1", 0)
    assert (one.error, one.epoch, held(one)) == (0, 2, {f"a30:{n}" for n in range(4)})
    two = group.beat("m2", 0)
    assert (two.epoch, held(two)) == (3, set())
    less = group.beat("m1", 2, held(one))
    assert (less.epoch, held(less)) == (2, {"a30:0", "a30:1"})
    assert group.describe().state == b"Reconciling"
    assert group.beat("m2", 3).has_assignment == 0, "m1 has not reported its revocation"
    assert group.beat("m1", 2, held(less)).epoch == 3
    more = group.beat("m2", 3)
    assert held(more) == {"a30:2", "a30:3"}
    described = group.describe()
    assert (described.state, described.epoch, described.assignment_epoch) == (b"Stable", 3, 3)
    assert described.members[::14] == [b"m1", b"m2"]
    quiet = group.beat("m1", 3)
    assert (quiet.epoch, quiet.has_assignment, quiet.statuses) == (3, 0, [])


def test_invalid_members_are_refused_as_by_kafka(group: Group) -> None:
    for epoch in (-1, 3):
        assert group.beat("m", epoch).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.beat("m", 0, is_registered=0).error == Signal.REGISTER_FIRST
    assert group.beat("m", 0).epoch == 2
    assert group.beat("n", 3).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("n", -1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("m", 7).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("m", 1).error == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("n", 0, max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("m", 0, max_size=1).error == ErrorCode.NONE
    for owned in ({"a30:4"}, {"a31:0"}, {"b30:9"}):
        assert group.beat("m", 2, owned).error == ErrorCode.INVALID_REQUEST


def test_a_lost_response_is_repeated_to_a_member_that_has_no_more_than_its_tasks(
    group: Group,
) -> None:
    first = group.beat("m1", 0)
    group.beat("m2", 0)
    less = held(group.beat("m1", 2, held(first)))
    assert group.beat("m1", 2, less).epoch == 3
    again = group.beat("m1", 2, less)
    assert (again.epoch, again.has_assignment, held(again)) == (3, 1, less)
    assert group.beat("m1", 2, held(first)).error == ErrorCode.FENCED_MEMBER_EPOCH
    full = group.beat("m1", 3, less, rebalance_ms=60_000)
    assert (full.has_assignment, held(full)) == (1, less)


def test_a_topology_can_only_be_repeated(group: Group) -> None:
    other = topology(subtopology("0", ["u"]))
    assert group.beat("m1", 0, topology_epoch=1).epoch == 2
    assert group.beat("m2", 0, topology=other).error == ErrorCode.NONE, "stale: never compared"
    for epoch, changed in ((1, other), (2, PLAIN), (2, other)):
        reply = group.beat("m3", 0, topology_epoch=epoch, topology=changed)
        assert reply.error == ErrorCode.INVALID_REQUEST
    stale = Member(group, "m2", topology_epoch=0)
    fresh = Member(group, "m1", topology_epoch=1)
    settle([stale, fresh])
    assert (stale.statuses, fresh.statuses) == ([STALE], [])
    assert len(stale.held) == len(fresh.held) == 2


def test_subtopologies_that_share_a_large_topic_have_few_tasks(lua: LuaRunner) -> None:
    """The tasks of 16 that read one topic of 3,000 partitions were assigned in one long call."""
    for count in (3, 4):
        shared = topology(*(subtopology(str(n), ["t"]) for n in range(count)))
        lua.command("FLUSHALL")
        reply = Group(lua, shared, t=1000).beat("m", 0)
        assert len(held(reply)) == (3000 if count == 3 else 0)
        assert statuses(reply) == ([] if count == 3 else [UNEQUAL])


def test_a_group_without_members_takes_the_next_topology(group: Group) -> None:
    group.sizes["u"] = 2
    group.beat("m1", 0, topology_epoch=1)
    group.beat("m2", 0, topology_epoch=0)
    for member in ("m1", "m2"):
        group.beat(member, -1)
    other = topology(subtopology("0", ["u"]))
    older = group.beat("m3", 0, topology=other, topology_epoch=0)
    assert (older.error, statuses(older)) == (0, [STALE])
    group.beat("m3", -1)
    taken = group.beat("m3", 0, topology=other, topology_epoch=1)
    assert (taken.statuses, held(taken)) == ([], {"a30:0", "a30:1"})
    assert group.beat("m4", 0, topology_epoch=1).error == ErrorCode.INVALID_REQUEST
    assert group.beat("m3", taken.epoch).statuses == []


@pytest.mark.parametrize(
    "wrong",
    [
        topology(subtopology("0", [])),
        topology(subtopology("0", ["t"]), subtopology("1", [], repartition=[("r", 0)])),
    ],
    ids=["no source", "a repartition topic that has no writer"],
)
def test_a_topology_that_cannot_be_is_refused(runner: Runner, wrong: bytes) -> None:
    assert Group(runner, wrong).beat("m", 0).error == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_internal_topics_are_created_with_the_partitions_of_their_sources(runner: Runner) -> None:
    group = Group(runner, COUNTING, t=3)
    reply = group.beat("m", 0)
    assert group.created == [("c", 3), ("r", 3)]
    assert (reply.epoch, len(held(reply)), reply.statuses) == (2, 6, [])
    described = group.describe()
    assert described.partitions == [b"c", b"3", b"r", b"3"]
    assert described.tasks == [b"30", b"3", b"31", b"3"]


def test_a_group_without_its_topics_is_not_ready_and_has_no_tasks(runner: Runner) -> None:
    group = Group(runner, COUNTING, u=1)
    group.creates = False
    missing = group.beat("m", 0)
    assert (statuses(missing), held(missing)) == ([NO_SOURCE], set())
    assert missing.statuses[1] == b"Source topics t are missing."
    assert missing.next_heartbeat_ms == 0, "Streams gives up after two intervals"
    described = group.describe()
    assert (described.state, described.detail) == (b"NotReady", missing.statuses[1])
    assert statuses(group.beat("m", missing.epoch)) == [NO_SOURCE], "in every response"
    group.size("t", 2)
    internal = group.beat("m", missing.epoch)
    assert statuses(internal) == [NO_INTERNAL]
    assert internal.statuses[1] == b"Internal topics are missing: c, r"
    group.size("r", 2)
    group.size("c", 5)
    wrong = group.beat("m", internal.epoch)
    assert statuses(wrong) == [UNEQUAL]
    detail = b"Existing topic c has different number of partitions: expected 2, found 5"
    assert wrong.statuses[1] == detail
    group.size("c", 2)
    ready = group.beat("m", wrong.epoch)
    assert (ready.statuses, len(held(ready))) == ([], 4)
    assert group.describe().state == b"Stable"
    group.size("t", None)
    gone = group.beat("m", ready.epoch, held(ready))
    assert (statuses(gone), gone.has_assignment, held(gone)) == ([NO_SOURCE], 1, set())


@pytest.mark.parametrize(
    ("sub", "detail"),
    [
        (
            subtopology("0", ["t", "u"], together=[["t", "u"]]),
            "Following topics do not have the same number of partitions: [{t=4, u=3}]",
        ),
        (
            subtopology("0", ["t"], repartition=[("r", 5)], together=[["t", "r"]]),
            "Number of partitions [5] of repartition topic [r] doesn't match number of partitions "
            "[4] of the source topic.",
        ),
        (
            subtopology("0", [], repartition=[("r", 5), ("s", 6)], together=[["s", "r"]]),
            "Following topics do not have the same number of partitions: [{r=5, s=6}]",
        ),
    ],
    ids=["sources", "a fixed repartition topic", "fixed repartition topics"],
)
def test_topics_that_are_not_copartitioned_are_named(
    runner: Runner, sub: bytes, detail: str
) -> None:
    reply = Group(runner, topology(sub), t=4, u=3).beat("m", 0)
    assert (statuses(reply), reply.statuses[1].decode()) == ([UNEQUAL], detail)


def test_a_topology_with_more_tasks_than_one_call_can_assign_gets_none(runner: Runner) -> None:
    subs = [subtopology(str(number), ["t"]) for number in range(6)]
    reply = Group(runner, topology(*subs), t=10_000).beat("m", 0)
    assert (statuses(reply), held(reply)) == ([UNEQUAL], set())
    assert b"has 60000 tasks" in reply.statuses[1]


def test_repartition_topics_follow_each_other_and_their_copartition_groups(runner: Runner) -> None:
    subs = (
        subtopology("0", ["t"], sinks=["a"]),
        subtopology("1", ["u"], sinks=["b"]),
        subtopology("2", [], sinks=["d"], repartition=[("a", 0), ("b", 0)], together=[["a", "b"]]),
        subtopology("3", [], repartition=[("d", 0), ("e", 7)], changelogs=["c", "d"]),
    )
    group = Group(runner, topology(*subs), t=2, u=3)
    assert statuses(group.beat("m", 0)) == []
    assert group.created == [("a", 3), ("b", 3), ("c", 7), ("d", 3), ("e", 7)]


def test_the_first_assignment_waits_for_members_and_later_ones_for_the_interval(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    one = group.beat("m1", 0, delay_ms=3000)
    assert (one.epoch, statuses(one), held(one)) == (1, [DELAYED], set())
    two = group.beat("m2", 0, delay_ms=3000)
    assert (two.epoch, statuses(two)) == (1, [DELAYED])
    assert group.describe().state == b"Assigning"
    assert 0 < two.next_heartbeat_ms <= 500
    lua.advance(3000)
    done = group.beat("m1", 1)
    assert (done.epoch, len(held(done)), done.statuses) == (3, 2, [])
    assert len(held(group.beat("m2", 1))) == 2
    third = group.beat("m3", 0, interval_ms=1000)
    assert (third.epoch, statuses(third)) == (3, [DELAYED])
    lua.advance(1000)
    assert statuses(group.beat("m3", 3, interval_ms=1000)) == []


def test_standby_tasks_are_in_other_processes_and_follow_the_config(runner: Runner) -> None:
    group = Group(runner, STATEFUL)
    members = [Member(group, name, process=name[0]) for name in ("a1", "a2", "b1", "b2")]
    settle(members, replicas=1)
    by_process: dict[str, list[str]] = {"a": [], "b": []}
    for member in members:
        by_process[member.name[0]] += [task[1:] for task in member.held]
    assert by_process["a"] and sorted(by_process["a"]) == sorted(by_process["b"])
    assert all(len(set(tasks)) == len(tasks) == 4 for tasks in by_process.values())
    settle(members)
    assert all(task[0] == "a" for member in members for task in member.held)


def test_a_standby_task_becomes_active_where_its_member_was_lost(lua: LuaRunner) -> None:
    group = Group(lua, STATEFUL)
    one, two, three = (Member(group, f"m{n}") for n in range(3))
    settle([one, two, three], replicas=1)
    standby = {task[1:] for task in one.held if task[0] == "b"} & {
        task[1:] for task in two.held if task[0] == "a"
    }
    for _ in range(SESSION_MS // TICK_MS + 2):
        lua.advance(TICK_MS)
        assert one.step(replicas=1) == three.step(replicas=1) == ErrorCode.NONE
    settle([one, three], replicas=1)
    active = {task[1:] for m in (one, three) for task in m.held if task[0] == "a"}
    assert active == {f"30:{n}" for n in range(4)}
    kept = {task[1:] for task in one.held if task[0] == "a"}
    assert standby <= kept or len(kept) == 2
    assert group.describe().members[::14] == [b"m0", b"m2"]


def test_members_share_their_user_endpoints(group: Group) -> None:
    one = group.beat("m1", 0, endpoint="me:7")
    assert one.endpoint_epoch == 1
    assert [one.endpoints[0], unpack(one.endpoints[1])] == [b"me:7", ["t", "0,1,2,3"]]
    assert unpack(one.endpoints[2]) == []
    same = group.beat("m1", 2, endpoint_epoch=1)
    assert (same.has_endpoints, same.endpoints) == (0, [])
    two = group.beat("m2", 0, endpoint="you:8")
    assert two.endpoints[::3] == [b"me:7", b"you:8"]
    assert group.beat("m1", 2, endpoint_epoch=1).has_endpoints == 1
    group.beat("m2", -1)
    after = group.beat("m1", 2, endpoint_epoch=two.endpoint_epoch)
    assert after.endpoints[::3] == [b"me:7"]


def test_a_shutdown_reaches_all_members_until_the_group_is_empty(group: Group) -> None:
    group.beat("m1", 0)
    group.beat("m2", 0)
    assert statuses(group.beat("m2", 3, shutdown=1)) == [SHUTDOWN]
    reply = group.beat("m1", 2)
    assert statuses(reply) == [SHUTDOWN] and b"m2" in reply.statuses[1]
    for member in ("m1", "m2"):
        assert group.beat(member, -1).epoch == -1
    assert group.describe().state == b"Empty"
    assert statuses(group.beat("m3", 0)) == []


def test_a_member_that_is_silent_is_removed_and_one_that_does_not_revoke_too(
    lua: LuaRunner,
) -> None:
    group = Group(lua)
    first = group.beat("m1", 0, rebalance_ms=10_000)
    group.beat("m2", 0)
    assert len(held(group.beat("m1", 2, held(first)))) == 2
    for _ in range(3):
        lua.advance(TICK_MS)
        group.tick()
        group.beat("m2", 3)
    assert group.beat("m1", 2).error == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(SESSION_MS // TICK_MS + 2):
        lua.advance(TICK_MS)
        group.tick()
    described = group.describe()
    assert (described.state, described.members) == (b"Empty", [])
    assert lua.command("EXISTS", K.consumer_members, K.target_assignment, K.partition_owners) == 0


def test_commits_need_the_epoch_or_one_since_which_the_member_has_the_task(group: Group) -> None:
    row = ("t", 0, 5, -1, "0" * 32, "")
    one, two = Member(group, "m1"), Member(group, "m2")
    settle([one])
    assert group.runner.run(commit_call([row], "m1", 2)).error == ErrorCode.NONE
    settle([one, two])
    assert one.epoch == 3
    commit = group.runner.run
    assert commit(commit_call([row], "m1", 2)).error == ErrorCode.NONE, "m1 has kept the task"
    assert commit(commit_call([row], "m2", 2)).error == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(commit_call([("u", *row[1:])], "m1", 2)).error == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(commit_call([row], "m1", 4)).error == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(commit_call([row], "m9", 3)).error == ErrorCode.UNKNOWN_MEMBER_ID
    checks = [
        group.runner.run(KEYS.group("g").check_epoch(member="m1", epoch=epoch)).error
        for epoch in (3, 2)
    ]
    assert checks == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]


def test_groups_of_other_types_are_kept_apart(runner: Runner) -> None:
    group = Group(runner)
    assert ConsumerGroup(runner).beat("c", 0).error == ErrorCode.NONE
    assert group.beat("m", 0).error == ErrorCode.GROUP_ID_NOT_FOUND
    runner.command("FLUSHALL")
    assert group.beat("m", 0).error == ErrorCode.NONE
    assert ConsumerGroup(runner).beat("c", 0).error == ErrorCode.GROUP_ID_NOT_FOUND
    assert ClassicGroup(runner, "g").join().error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    removed = runner.run(KEYS.group("g").leave([("m", ""), ("n", "")]))
    assert removed.results == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert runner.run(KEYS.group("g").delete(commits=0)).error == ErrorCode.NONE
    assert group.beat("m", 1).error == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets(
    runner: Runner,
) -> None:
    classic = ClassicGroup(runner, "g")
    assert classic.commit(5, generation=-1) == 0
    group = Group(runner)
    reply: Any = group.beat("m", 0)
    assert (reply.error, len(held(reply))) == (0, 4)
    assert runner.command("HLEN", K.offsets) == 1


def test_a_member_of_another_process_takes_its_tasks_along(group: Group) -> None:
    first = group.beat("m1", 0)
    again = group.beat("m1", 0, process="other")
    assert held(again) == held(first)
    group.beat("m1", -1)
    assert group.runner.command("EXISTS", K.partition_owners) == 0


def test_a_static_member_keeps_its_tasks_under_a_new_id_and_process(group: Group) -> None:
    one, two = Member(group, "m1", instance="i"), Member(group, "m2", instance="j")
    settle([one, two])
    before = set(one.held)
    assert group.beat("m3", 0, instance="i").error == ErrorCode.UNRELEASED_INSTANCE_ID
    left = group.beat("m1", -2, instance="i")
    assert (left.error, left.epoch) == (0, -2)
    assert group.beat("m2", two.epoch).error == 0
    again = group.beat("m3", 0, instance="i", process="new")
    assert held(again) == before
    assert group.beat("m1", 3, instance="i").error == ErrorCode.FENCED_INSTANCE_ID
    assert group.beat("m1", 3).error == ErrorCode.UNKNOWN_MEMBER_ID
    third = Member(group, "m3", instance="i", process="new")
    third.epoch, third.held = again.epoch, held(again)
    settle([third, two])
    assert third.held == before
    described = group.describe()
    assert (described.state, described.members[1::14]) == (b"Stable", [b"j", b"i"])
    for member in ("m2", "m3"):
        group.beat(member, -1)
    names = (K.consumer_members, K.target_assignment, K.partition_owners, K.instances)
    assert group.runner.command("EXISTS", *names) == 0


def test_a_member_that_joins_as_another_instance_gives_up_the_first(group: Group) -> None:
    one, two = Member(group, "m1", instance="i"), Member(group, "m2", instance="j")
    settle([one, two])
    group.beat("m2", -2, instance="j")
    other, third = Member(group, "m1", instance="j"), Member(group, "m3", instance="i")
    settle([other, third])
    assert len(other.held) == len(third.held) == 2 and not other.held & third.held
    assert group.describe().members[::14] == [b"m1", b"m3"]


def test_a_static_member_that_does_not_return_is_removed(lua: LuaRunner) -> None:
    group = Group(lua)
    one, two = Member(group, "m1", instance="i"), Member(group, "m2")
    settle([one, two])
    group.beat("m1", -2, instance="i")
    for _ in range(SESSION_MS // TICK_MS + 2):
        lua.advance(TICK_MS)
        assert two.step() == ErrorCode.NONE
    settle([two])
    assert len(two.held) == 4 and lua.command("EXISTS", K.instances) == 0
