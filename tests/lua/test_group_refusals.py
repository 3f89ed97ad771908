"""The refusals of the group scripts: Kafka's codes, in Kafka's order, with no write."""

import pytest

from korvet.base.errors import ErrorCode
from tests.lua.groups import RANGE, Group
from tests.support.store_runners import Runner

OTHER = (("sticky", b""),)


def test_an_id_in_a_group_that_does_not_exist_is_unknown(runner: Runner) -> None:
    group = Group(runner)
    assert group.join("m7").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.poll_join("m7").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync("m7", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("m7", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave(("m7", "")).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(1, member="m7", generation=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.describe().error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.delete().error == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.keys() == []


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_new_group_needs_a_type_and_a_protocol(
    runner: Runner, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    group = Group(runner)
    reply = group.join(protocol_type=protocol_type, protocols=protocols)
    assert reply.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.keys() == []


def test_an_unknown_id_is_unknown_in_an_existing_group(runner: Runner) -> None:
    group = Group(runner)
    _, generation = group.stable()
    assert group.join("unknown").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.poll_join("unknown").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync("unknown", generation + 7).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("unknown", generation + 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(1, member="unknown", generation=99) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.leave(("unknown", "")).results == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("off", [-1, 1])
def test_a_member_of_another_generation_is_refused(runner: Runner, off: int) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    wrong = max(generation + off, 0)
    assert group.sync(member, wrong).error == ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat(member, wrong) == ErrorCode.ILLEGAL_GENERATION
    assert group.commit(5, member=member, generation=wrong) == ErrorCode.ILLEGAL_GENERATION
    assert group.committed() is None


def test_another_protocol_is_refused(runner: Runner) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join(protocols=OTHER).error == refused
    assert group.join(member, protocols=OTHER).error == refused
    assert group.join(protocol_type="connect").error == refused
    assert group.sync(member, generation, protocol_type="connect").error == refused
    assert group.sync(member, generation, protocol="sticky").error == refused


def test_a_full_group_accepts_no_new_member(runner: Runner) -> None:
    group = Group(runner)
    (member,), _ = group.stable()
    assert group.join(max_size=1).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join(member, max_size=1).error == ErrorCode.NONE


def test_no_member_commits_between_join_and_sync(runner: Runner) -> None:
    group = Group(runner)
    reply = group.join()
    member = reply.member.decode()
    refused = group.commit(5, member=member, generation=reply.generation)
    assert refused == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.committed() is None


def test_only_members_commit_to_a_group_with_members(runner: Runner) -> None:
    group = Group(runner)
    group.stable()
    assert group.commit(5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.committed() is None


def test_a_group_with_members_is_not_deleted(runner: Runner) -> None:
    group = Group(runner)
    (member,), generation = group.stable()
    assert group.delete().error == ErrorCode.NON_EMPTY_GROUP
    assert group.heartbeat(member, generation) == ErrorCode.NONE


def test_the_former_id_of_a_static_member_is_fenced(runner: Runner) -> None:
    group = Group(runner)
    (old,), generation = group.stable(instance="one")
    new = group.join(instance="one").member.decode()
    assert new != old
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert group.join(old, instance="one").error == fenced
    assert group.poll_join(old, "one").error == fenced
    assert group.sync(old, generation, instance="one").error == fenced
    assert group.heartbeat(old, generation, "one") == fenced
    assert group.commit(5, member=old, generation=generation, instance="one") == fenced
    assert group.leave((old, "one")).results == [fenced]
    assert group.heartbeat(old, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(new, generation, "two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat(new, generation, "one") == ErrorCode.NONE


def test_a_pending_id_is_no_member(runner: Runner) -> None:
    group = Group(runner)
    reply = group.join(require_member_id=1)
    assert reply.error == ErrorCode.MEMBER_ID_REQUIRED
    pending = reply.member.decode()
    assert group.heartbeat(pending, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(pending, 0).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.join(pending).error == ErrorCode.NONE
