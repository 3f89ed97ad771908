"""Check the responses of ConsumerGroupHeartbeat against those recorded from Apache Kafka 4.3."""

from time import monotonic
from typing import Any
from uuid import UUID

import pytest

from korvet.base.errors import ErrorCode
from korvet.base.errors import ErrorCode as E
from korvet.topics.table import TopicTable
from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from korvet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.connected_broker import Broker

NOWHERE = TopicPartitions(topic_id=UUID(int=7), partitions=[0])


def joins(member: str = "a", **changes: Any) -> dict[str, Any]:
    """Return the first heartbeat of a member that subscribes to `t`."""
    return {
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **changes,
    }


def beats(member: str = "a", later: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a later heartbeat; `later` is added to the member's epoch."""
    return {"member_id": member, "member_epoch": None, "later": later, **changes}


def leaves(member: str = "a", **changes: Any) -> dict[str, Any]:
    """Return the heartbeat of a member that leaves."""
    return {"member_id": member, "member_epoch": -1, **changes}


def away(member: str = "a", **changes: Any) -> dict[str, Any]:
    """Return the heartbeat of a static member that leaves and will rejoin."""
    return {"member_id": member, "member_epoch": -2, **changes}


TABLE: list[tuple[str, list[dict[str, Any]], ErrorCode]] = [
    ("no group id", [joins(group_id="")], E.INVALID_REQUEST),
    ("no member id", [joins("")], E.INVALID_REQUEST),
    ("a blank member id", [joins(" ")], E.INVALID_REQUEST),
    ("no member id later", [beats("", 1)], E.INVALID_REQUEST),
    ("a blank group id", [joins(group_id=" ")], E.INVALID_REQUEST),
    ("an empty instance", [joins(instance_id="")], E.INVALID_REQUEST),
    ("an empty rack", [joins(rack_id="")], E.INVALID_REQUEST),
    ("no timeout", [joins(rebalance_timeout_ms=-1)], E.INVALID_REQUEST),
    ("no time", [joins(rebalance_timeout_ms=0)], E.NONE),
    ("no partitions", [joins(topic_partitions=None)], E.INVALID_REQUEST),
    ("partitions at once", [joins(topic_partitions=[NOWHERE])], E.INVALID_REQUEST),
    ("no topics", [joins(subscribed_topic_names=None)], E.INVALID_REQUEST),
    ("empty topics", [joins(subscribed_topic_names=[])], E.NONE),
    (
        "a pattern alone",
        [joins(subscribed_topic_names=None, subscribed_topic_regex="t.*")],
        E.NONE,
    ),
    (
        "an empty pattern alone",
        [joins(subscribed_topic_names=None, subscribed_topic_regex="")],
        E.NONE,
    ),
    ("both", [joins(subscribed_topic_regex="t.*")], E.NONE),
    (
        "a wrong pattern",
        [joins(subscribed_topic_regex="(")],
        E.INVALID_REGULAR_EXPRESSION,
    ),
    (
        "a pattern with a look-ahead",
        [joins(subscribed_topic_regex="t(?=x)")],
        E.INVALID_REGULAR_EXPRESSION,
    ),
    (
        "a pattern with a reference",
        [joins(subscribed_topic_regex=r"(t)\1")],
        E.INVALID_REGULAR_EXPRESSION,
    ),
    ("a wrong assignor", [joins(server_assignor="sticky")], E.UNSUPPORTED_ASSIGNOR),
    ("an empty assignor", [joins(server_assignor="")], E.UNSUPPORTED_ASSIGNOR),
    ("range", [joins(server_assignor="range")], E.NONE),
    ("an epoch below -2", [beats(member_epoch=-3)], E.INVALID_REQUEST),
    ("away without an instance", [away()], E.INVALID_REQUEST),
    ("no such group", [beats("a", 1)], E.GROUP_ID_NOT_FOUND),
    ("leaving no such group", [leaves()], E.GROUP_ID_NOT_FOUND),
    ("an unknown member", [joins(), beats("b", 1)], E.UNKNOWN_MEMBER_ID),
    ("an unknown member leaves", [joins(), leaves("b")], E.UNKNOWN_MEMBER_ID),
    ("a later epoch", [joins(), beats("a", 7)], E.FENCED_MEMBER_EPOCH),
    ("an earlier epoch", [joins(), joins("b"), beats("b", -1)], E.FENCED_MEMBER_EPOCH),
    ("the same", [joins(), beats()], E.NONE),
    ("again", [joins(), joins()], E.NONE),
    ("gone", [joins(), leaves()], E.NONE),
    ("gone twice", [joins(), joins("b"), leaves(), leaves()], E.UNKNOWN_MEMBER_ID),
    ("back after all left", [joins(), leaves(), joins()], E.NONE),
    (
        "an instance taken",
        [joins(instance_id="i"), joins("b", instance_id="i")],
        E.UNRELEASED_INSTANCE_ID,
    ),
    (
        "another's instance",
        [joins(instance_id="i"), joins("b"), beats("b", instance_id="i")],
        E.FENCED_INSTANCE_ID,
    ),
    (
        "no such instance",
        [joins(), beats(instance_id="i")],
        E.UNKNOWN_MEMBER_ID,
    ),
    (
        "another's instance leaves",
        [joins(instance_id="i"), joins("b"), leaves("b", instance_id="i")],
        E.FENCED_INSTANCE_ID,
    ),
    (
        "away and back",
        [joins(instance_id="i"), away(instance_id="i"), joins("b", instance_id="i")],
        E.NONE,
    ),
    (
        "away, back, and the old one",
        [
            joins(instance_id="i"),
            away(instance_id="i"),
            joins("b", instance_id="i"),
            beats(instance_id="i"),
        ],
        E.FENCED_INSTANCE_ID,
    ),
    (
        "away twice",
        [joins(instance_id="i"), away(instance_id="i"), away(instance_id="i")],
        E.NONE,
    ),
    (
        "away and on",
        [joins(instance_id="i"), away(instance_id="i"), beats(instance_id="i")],
        E.FENCED_MEMBER_EPOCH,
    ),
    (
        "a static member without its instance",
        [joins(instance_id="i"), beats()],
        E.NONE,
    ),
    (
        "a dynamic member away",
        [joins(), away(instance_id="i")],
        E.UNKNOWN_MEMBER_ID,
    ),
    ("no topics later", [joins(), beats(subscribed_topic_names=[])], E.NONE),
    (
        "a wrong pattern later",
        [joins(), beats(subscribed_topic_regex="[")],
        E.INVALID_REGULAR_EXPRESSION,
    ),
    ("partitions of others", [joins(), beats(topic_partitions=[NOWHERE])], E.NONE),
    ("another timeout", [joins(), beats(rebalance_timeout_ms=-5)], E.NONE),
    ("a topic that is not there", [joins(subscribed_topic_names=["nothing"])], E.NONE),
]


class Members:
    """The last response to each member."""

    def __init__(self, group: str = "g") -> None:
        self.group = group
        self.epochs: dict[str, int] = {}

    def request(self, fields: dict[str, Any]) -> ConsumerGroupHeartbeatRequest:
        """Build the heartbeat of one row of the table."""
        fields = {"group_id": self.group, **fields}
        later = fields.pop("later", 0)
        if fields["member_epoch"] is None:
            fields["member_epoch"] = max(self.epochs.get(fields["member_id"], 0), 0) + later
        return ConsumerGroupHeartbeatRequest(**fields)

    def note(self, fields: dict[str, Any], answer: Any) -> None:
        """Note a member's response."""
        if not answer.error_code and answer.member_epoch > 0:
            self.epochs[fields["member_id"]] = answer.member_epoch


@pytest.mark.parametrize(("steps", "error"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
async def test_a_heartbeat_gets_kafkas_response(
    broker: Broker, steps: list[dict[str, Any]], error: ErrorCode
) -> None:
    await broker.create("t", 2)
    members = Members()
    for fields in steps[:-1]:
        answer = await broker.ask(members.request(fields))
        assert answer.error_code == E.NONE
        members.note(fields, answer)
    answer = await broker.ask(members.request(steps[-1]))
    assert ErrorCode(answer.error_code) == error
    assert (answer.error_message is None) == (error == E.NONE)
    if error:
        assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)


def committing(epoch: int, offset: int = 7) -> OffsetCommitRequest:
    """Return a commit of `t`, partition 0, by member `a`."""
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        member_id="a",
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )


async def test_a_commit_moves_the_redis_group_and_a_deleted_group_leaves_nothing(
    broker: Broker,
) -> None:
    await broker.create("t", 1, offset_mode="dense")
    node, members = broker.services, Members()
    before = set(await node.store.command("KEYS", f"*{node.keys.namespace}*"))
    first = joins(instance_id="i")
    answer = await broker.ask(members.request(first))
    members.note(first, answer)
    stored = await broker.ask(committing(answer.member_epoch), 9)
    assert stored.topics[0].partitions[0].error_code == E.NONE
    old = await broker.ask(committing(answer.member_epoch), 8)
    assert old.topics[0].partitions[0].error_code == E.UNSUPPORTED_VERSION
    stale = await broker.ask(committing(answer.member_epoch - 1), 9)
    assert stale.topics[0].partitions[0].error_code == E.STALE_MEMBER_EPOCH
    stream = node.keys.partition("t", 0).stream
    (found,) = await node.store.command("XINFO", "GROUPS", stream)
    row = dict(zip(found[::2], found[1::2], strict=True))
    assert (row[b"name"], row[b"last-delivered-id"]) == (b"g", b"9223372036854775807-6")
    asked = OffsetDeleteRequestTopic(
        name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    deleted = await broker.ask(OffsetDeleteRequest(group_id="g", topics=[asked]))
    assert deleted.topics[0].partitions[0].error_code == E.GROUP_SUBSCRIBED_TO_TOPIC
    full = await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert full.results[0].error_code == E.NON_EMPTY_GROUP
    await broker.ask(members.request(leaves(instance_id="i")))
    gone = await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert gone.results[0].error_code == E.NONE
    assert await node.store.command("XINFO", "GROUPS", stream) == []
    left = set(await node.store.command("KEYS", f"*{node.keys.namespace}*")) - before
    assert left <= {node.keys.groups().encode(), node.keys.groups_due().encode(), stream.encode()}


async def test_a_broker_with_an_old_topics_table_revokes_no_new_partitions(
    broker: Broker,
) -> None:
    await broker.create("t", 1)
    node, members = broker.services, Members()
    deaf = TopicTable(node.store, node.keys, node.topics._configs)
    await deaf.refresh()
    members.note(joins(), await broker.ask(members.request(joins())))
    grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
    await broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False))
    await node.topics.refresh()
    answer = await broker.ask(members.request(beats()))
    held = answer.assignment.topic_partitions
    assert held[0].partitions == [0, 1, 2]
    members.note(beats(), answer)
    node.topics, deaf._fresh_until = deaf, monotonic() + 60
    again = await broker.ask(members.request(beats(topic_partitions=held)))
    assert (again.error_code, again.member_epoch) == (E.NONE, answer.member_epoch)
    assert again.assignment is None


@pytest.mark.parametrize(
    ("changed", "names", "regex"),
    [
        ({"subscribed_topic_regex": "u.*"}, ["t"], "u.*"),
        ({"subscribed_topic_names": ["u"]}, ["u"], "x.*"),
        ({"subscribed_topic_names": []}, [], "x.*"),
        ({"subscribed_topic_regex": ""}, ["t"], ""),
        ({"subscribed_topic_names": ["u"], "subscribed_topic_regex": ""}, ["u"], ""),
        ({}, ["t"], "x.*"),
    ],
)
async def test_fields_missing_from_a_heartbeat_are_unchanged(
    broker: Broker, changed: dict[str, Any], names: list[str], regex: str
) -> None:
    await broker.create("t", 1)
    members = Members()
    first = joins(subscribed_topic_regex="x.*")
    members.note(first, await broker.ask(members.request(first)))
    assert (await broker.ask(members.request(beats(**changed)))).error_code == E.NONE
    described = await broker.ask(
        ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    )
    (member,) = described.groups[0].members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (names, regex)


async def test_a_full_group_accepts_no_new_member(broker: Broker) -> None:
    await broker.create("t", 2)
    node = broker.services
    node.dynamic_config.settings = node.settings.with_dynamic({"group.consumer.max.size": "1"})
    members = Members()
    assert (await broker.ask(members.request(joins()))).error_code == E.NONE
    assert (await broker.ask(members.request(joins("b")))).error_code == E.GROUP_MAX_SIZE_REACHED


async def test_members_of_one_protocol_are_unknown_to_the_other(broker: Broker) -> None:
    await broker.create("t", 2)
    members = Members()
    await broker.ask(members.request(joins()))
    classic = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert (await broker.ask(classic, 3)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    await broker.ask(members.request(leaves()))
    assert (await broker.ask(classic, 3)).error_code == E.NONE
    assert (await broker.ask(members.request(joins()))).error_code == E.GROUP_ID_NOT_FOUND


async def test_a_group_is_described_as_by_kafka(broker: Broker) -> None:
    await broker.create("t", 2)
    members = Members()
    for fields in (joins(rack_id="r"), joins("b", instance_id="i", server_assignor="range")):
        members.note(fields, await broker.ask(members.request(fields)))
    answer = await broker.ask(members.request(beats()))
    asked = ConsumerGroupDescribeRequest(
        group_ids=["g", "", "absent"], include_authorized_operations=True
    )
    group, nameless, unknown = (await broker.ask(asked)).groups
    assert (group.group_state, group.assignor_name) == ("Reconciling", "range")
    assert group.group_epoch == group.assignment_epoch == 2
    a, b = group.members
    assert (a.rack_id, a.instance_id, a.member_epoch, a.subscribed_topic_names) == (
        "r",
        None,
        1,
        ["t"],
    )
    assert (b.rack_id, b.instance_id, b.member_epoch, b.client_host) == (
        None,
        "i",
        2,
        "/127.0.0.1",
    )
    assert (a.subscribed_topic_regex, a.member_type, a.client_id) == ("", 1, "test")
    held = [
        [part for topic in whole.topic_partitions for part in topic.partitions]
        for whole in (a.assignment, a.target_assignment, b.assignment, b.target_assignment)
    ]
    # Static members are first. Partitions that `a` has yet to revoke still belong to it.
    assert held == [[0, 1], [1], [], [0]]
    assert answer.assignment.topic_partitions[0].partitions == [1]
    assert group.authorized_operations == 3400
    for missing, error in ((nameless, E.INVALID_GROUP_ID), (unknown, E.GROUP_ID_NOT_FOUND)):
        assert (missing.error_code, missing.group_state, missing.members) == (error, "", [])


@pytest.mark.parametrize(
    ("group", "member", "later", "error"),
    [
        ("g", None, None, E.NONE),
        ("g", "a", 0, E.NONE),
        ("g", "a", 1, E.STALE_MEMBER_EPOCH),
        ("g", "a", -1, E.STALE_MEMBER_EPOCH),
        ("g", "a", None, E.STALE_MEMBER_EPOCH),
        ("g", "x", 0, E.UNKNOWN_MEMBER_ID),
        ("g", "", None, E.UNKNOWN_MEMBER_ID),
        ("another", "a", 5, E.NONE),
    ],
)
@pytest.mark.parametrize("everything", [False, True])
async def test_a_fetch_of_offsets_has_no_member_or_a_valid_one(
    broker: Broker,
    group: str,
    member: str | None,
    later: int | None,
    error: ErrorCode,
    everything: bool,
) -> None:
    await broker.create("t", 2)
    epoch = (await broker.ask(Members().request(joins()))).member_epoch
    topics = None if everything else [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(
        group_id=group,
        topics=topics,
        member_id=member,
        member_epoch=-1 if later is None else epoch + later,
    )
    (answer,) = (await broker.ask(OffsetFetchRequest(groups=[asked]), 9)).groups
    assert ErrorCode(answer.error_code) == error
    assert len(answer.topics) == (0 if error or everything else 1)
