"""Check the error codes of the APIs of classic groups, in order, and what their clients encode."""

import asyncio
import struct
import uuid
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from korvet.admin.config_edits import Change, ConfigResourceType, Edit
from korvet.base.errors import ErrorCode
from korvet.broker.background.tasks import BackgroundTasks
from korvet.cluster.coordinators import Coordinators
from korvet.groups import coordinator
from korvet.groups.assignment import assigned_partitions
from korvet.groups.registry import scan_fields
from korvet.log.compacted_copy import Superseded
from korvet.scripts.call import Call
from korvet.scripts.calls.group import CommitReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import ScriptFailed, StoreUnavailable
from korvet.store.sync_store import SyncStore
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from korvet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from korvet.wire.messages.list_groups import ListGroupsRequest
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
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.connected_broker import Broker
from tests.support.redis_servers import TestServer

SUBSCRIBED = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""A consumer's metadata: topic `t`."""


def joining(**changes: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED)],
    }
    return JoinGroupRequest(**{**fields, **changes})


def committing(**changes: Any) -> OffsetCommitRequest:
    topic: dict[str, Any] = {"name": changes.pop("topic", "t")}
    if "topic_id" in changes:
        topic["topic_id"] = changes.pop("topic_id")
    part: dict[str, Any] = {
        "partition_index": changes.pop("partition", 0),
        "committed_offset": changes.pop("offset", 5),
        "committed_metadata": changes.pop("metadata", ""),
    }
    parts = [OffsetCommitRequestPartition(**part)]
    topics = [OffsetCommitRequestTopic(**topic, partitions=parts)]
    return OffsetCommitRequest(**{"group_id": "g", "topics": topics, **changes})


async def commit(broker: Broker, version: int = 9, **changes: Any) -> ErrorCode:
    answer = await broker.ask(committing(**changes), version)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def stable(broker: Broker, group: str = "g", version: int = 3) -> tuple[str, int]:
    """Create a stable group of one member; return its id and generation."""
    answer = await broker.ask(joining(group_id=group), version)
    assert answer.error_code == ErrorCode.NONE
    member, generation = answer.member_id, answer.generation_id
    await broker.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"mine")],
        ),
        3,
    )
    return member, generation


@pytest.mark.parametrize("version", range(7))
async def test_a_single_broker_coordinates_every_group(broker: Broker, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    answer = await broker.ask(request, version)
    rows = answer.coordinators if version >= 4 else [answer]
    assert len(rows) == (2 if version >= 4 else 1)
    assert {row.node_id for row in rows} == {broker.services.registration.me.id}


async def test_groups_and_transactions_are_spread_over_the_brokers_by_name(
    broker: Broker,
) -> None:
    await broker.second()
    node = broker.services

    async def reach(host: str, port: int) -> bool:
        return True

    node.coordinators = Coordinators(node.registration, reach)
    names = [f"g{number}" for number in range(40)]
    rows = []
    for kind in (0, 1):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
        rows.append((await broker.ask(request)).coordinators)
    assert [row.key for row in rows[0]] == names
    assert {(row.node_id, row.host) for row in rows[0]} == {(7, "me"), (8, "other")}
    assert [row.node_id for row in rows[0]] == [row.node_id for row in rows[1]]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
@pytest.mark.parametrize("version", [4, 6, 7, 9])
async def test_a_join_is_refused(
    broker: Broker, changes: dict[str, Any], error: ErrorCode, version: int
) -> None:
    answer = await broker.ask(joining(**changes), version)
    assert answer.error_code == error
    assert answer.protocol_name == (None if version >= 7 else "")
    assert bool(answer.member_id) == ("member_id" in changes or not changes)


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_sends_heartbeats_and_leaves_in_every_version(
    broker: Broker, version: int
) -> None:
    answer = await broker.ask(joining(), version)
    if version >= 4:
        answer = await broker.ask(joining(member_id=answer.member_id), version)
    member = answer.member_id
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member)
    assert [row.metadata for row in answer.members] == [SUBSCRIBED]
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"mine")]
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    assert (await broker.ask(request, min(version, 5))).assignment == b"mine"
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert (await broker.ask(beat, min(version, 4))).error_code == ErrorCode.NONE
    leave = LeaveGroupRequest(
        group_id="g", member_id=member, members=[MemberIdentity(member_id=member)]
    )
    assert (await broker.ask(leave, min(version, 5))).error_code == ErrorCode.NONE
    late = await broker.ask(beat, min(version, 4))
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def beating(member: str, generation: int, group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


async def test_concurrent_heartbeats_are_one_call_with_a_response_each(broker: Broker) -> None:
    beats = []
    for group in ("g", "h", "i"):
        member, generation = await stable(broker, group)
        beats += [beating(member, generation, group), beating(member, generation + 1, group)]
    before = broker.services.store.round_trips
    answers = await asyncio.gather(*map(broker.ask, beats))
    assert [answer.error_code for answer in answers] == 3 * [0, ErrorCode.ILLEGAL_GENERATION]
    assert broker.services.store.round_trips == before + 1


async def test_a_group_with_keys_of_wrong_types_affects_no_other_group(broker: Broker) -> None:
    member, generation = await stable(broker)
    other, later = await stable(broker, "h")
    await broker.services.store.command("DEL", broker.services.keys.group("h").group)
    await broker.services.store.command("SET", broker.services.keys.group("h").group, "no hash")
    sound, broken = await asyncio.gather(
        broker.ask(beating(member, generation)),
        broker.ask(beating(other, later, "h")),
        return_exceptions=True,
    )
    assert sound.error_code == ErrorCode.NONE
    assert isinstance(broken, ScriptFailed)


async def test_expired_deadlines_are_processed_before_a_heartbeats_response(
    broker: Broker,
) -> None:
    member, generation = await stable(broker)
    store, deadlines = broker.services.store, broker.services.keys.group("g").deadlines
    seconds, _ = await store.command("TIME")
    await store.command("ZADD", deadlines, int(seconds) * 1000 - 1, member)
    answer = await broker.ask(beating(member, generation))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_empty_group_id_is_invalid(broker: Broker) -> None:
    for request in (
        SyncGroupRequest(
            group_id="",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        HeartbeatRequest(group_id="", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="m")]),
        OffsetDeleteRequest(group_id="", topics=[]),
    ):
        assert (await broker.ask(request)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_sync_5_requires_protocol_type_and_name(broker: Broker) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    answer = await broker.ask(request, 5)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_commit_is_refused_for_its_topics_metadata_and_member(broker: Broker) -> None:
    await broker.create("t", 2)
    assert await commit(broker, topic="absent") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(broker, partition=2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(broker, partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(broker, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await commit(broker, metadata="x" * 4096) == ErrorCode.NONE
    unknown = await commit(broker, 10, topic_id=uuid.uuid4())
    assert unknown == ErrorCode.UNKNOWN_TOPIC_ID
    member = {"generation_id_or_member_epoch": 1, "member_id": "m"}
    other = {"group_id": "other", **member}
    assert await commit(broker, 8, **other) == ErrorCode.ILLEGAL_GENERATION
    assert await commit(broker, 9, **other) == ErrorCode.GROUP_ID_NOT_FOUND
    assert await commit(broker, **member) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("group", ["", "x" * 300, "a{b}:c%\x01", "grün"])
@pytest.mark.parametrize("version", range(10))
async def test_commits_are_fetched_in_every_version(
    broker: Broker, group: str, version: int
) -> None:
    await broker.create("t", 2)
    assert await commit(broker, version, group_id=group, offset=7, metadata="so far") == 0
    rows = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    request = OffsetFetchRequest(
        group_id=group,
        topics=rows,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=rows)],
    )
    answer = await broker.ask(request, version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = [(row.committed_offset, row.metadata) for row in topics[0].partitions]
    assert found == [(7, "so far"), (-1, "")]


async def test_commits_by_topic_id_are_fetched_by_topic_id(broker: Broker) -> None:
    await broker.create("t", 1)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    assert await commit(broker, 10, topic_id=topic.uuid, offset=3) == ErrorCode.NONE
    rows = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (topic.uuid, uuid.uuid4())
    ]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=rows),
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="absent", topics=None),
    ]
    answer = await broker.ask(OffsetFetchRequest(groups=groups), 10)
    some, every, nothing = answer.groups
    first, second = (row.partitions[0] for row in some.topics)
    assert (first.committed_offset, first.error_code) == (3, ErrorCode.NONE)
    assert (second.committed_offset, second.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    assert [row.topic_id for row in every.topics] == [topic.uuid]
    assert (nothing.topics, nothing.error_code) == ([], ErrorCode.NONE)


async def test_groups_are_listed_by_state_and_type(broker: Broker) -> None:
    await broker.create("t")
    await stable(broker, "members")
    await commit(broker, group_id="simple")

    async def listed(states: list[str], types: list[str]) -> list[str]:
        answer = await broker.ask(ListGroupsRequest(states_filter=states, types_filter=types))
        return sorted(row.group_id for row in answer.groups)

    assert await listed([], []) == ["members", "simple"]
    assert await listed(["STABLE"], []) == ["members"]
    assert await listed(["empty"], ["Classic"]) == ["simple"]
    assert await listed(["bogus"], []) == []
    assert await listed([], ["consumer"]) == []


async def test_a_group_is_described(broker: Broker) -> None:
    member, _ = await stable(broker)
    request = DescribeGroupsRequest(groups=["g", "absent"], include_authorized_operations=True)
    known, absent = (await broker.ask(request, 6)).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (row,) = known.members
    assert (row.member_id, row.client_id, row.client_host) == (member, "test", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (SUBSCRIBED, b"mine")
    assert known.authorized_operations == 3400
    assert (absent.error_code, absent.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    older = (await broker.ask(request, 5)).groups[1]
    assert (older.error_code, older.group_state) == (ErrorCode.NONE, "Dead")


async def test_only_empty_groups_are_deleted(broker: Broker) -> None:
    member, _ = await stable(broker)

    async def delete() -> int:
        answer = await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
        return int(answer.results[0].error_code)

    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    members = [MemberIdentity(member_id=member), MemberIdentity(member_id="unknown")]
    answer = await broker.ask(LeaveGroupRequest(group_id="g", members=members))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, unknown]
    assert await delete() == ErrorCode.NONE
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert (
        await broker.services.store.command("KEYS", f"*{broker.services.keys.namespace}:group:*")
        == []
    )


async def test_a_group_that_is_created_while_it_is_deleted_is_listed(
    broker: Broker, valkey_server: TestServer
) -> None:
    keys, groups = broker.services.keys, broker.services.groups
    with valkey_server.client() as client:
        other = SyncStore(client)

        def make(registered: int) -> Call[CommitReply]:
            # Another broker has deleted the former group, and unregisters it now.
            if registered:
                mark = other.command("HGET", keys.groups(), "g")
                other.run(keys.group_unregister(group="g", mark=mark))
            return keys.group("g").commit(
                keys.commit_rows([("t", 0, 5, -1, "0" * 32, "")]),
                member="",
                instance="",
                generation=-1,
                allow_member_epoch=1,
                is_registered=registered,
                retention_ms=-1,
            )

        assert not (await groups.run("g", make)).error
    assert await groups.registry.list_all() == ["g"]


async def test_a_commit_while_a_group_is_deleted_leaves_no_redis_group(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 2)
    assert await commit(broker) == ErrorCode.NONE
    scans = []

    async def scan(store: AsyncStore, key: str) -> set[bytes]:
        fields = await scan_fields(store, key)
        if not scans:
            assert await commit(broker, partition=1) == ErrorCode.NONE
        scans.append(fields)
        return fields

    monkeypatch.setattr(coordinator, "scan_fields", scan)
    answer = await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert answer.results[0].error_code == ErrorCode.NONE
    assert [len(fields) for fields in scans] == [1, 2]
    for number in range(2):
        stream = broker.services.keys.partition("t", number).stream
        assert await broker.services.store.command("XINFO", "GROUPS", stream) == []


async def test_a_deleted_group_is_not_listed_even_if_its_redis_groups_fail(broker: Broker) -> None:
    await broker.create("t", 1)
    assert await commit(broker) == ErrorCode.NONE
    store, stream = broker.services.store, broker.services.keys.partition("t", 0).stream
    await store.command("DEL", stream)
    await store.command("SET", stream, "no stream")
    with pytest.raises(ScriptFailed):
        await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert await broker.services.groups.registry.list_all() == []


async def test_offsets_are_deleted_except_of_subscribed_topics(broker: Broker) -> None:
    await broker.create("t", 2)
    await broker.create("u", 1)
    await commit(broker)
    await commit(broker, topic="u")
    await stable(broker)
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("t", "u", "absent")
        ],
    )
    answer = await broker.ask(request)
    assert [row.partitions[0].error_code for row in answer.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    left = await broker.services.store.command("HKEYS", broker.services.keys.group_offsets("g"))
    assert left == [broker.services.keys.partition("t", 0).stream.encode()]
    missing = OffsetDeleteRequest(group_id="absent", topics=[])
    assert (await broker.ask(missing)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_transaction_commits_for_a_group_without_members(broker: Broker) -> None:
    await broker.create("t", 2)
    begun = await broker.ask(
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    )
    who = {
        "transactional_id": "x",
        "producer_id": begun.producer_id,
        "producer_epoch": begun.producer_epoch,
    }
    parts = [
        TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=7, committed_metadata=metadata
        )
        for number, metadata in ((0, ""), (1, "x" * 5000), (2, ""))
    ]
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=parts)]
    answer = await broker.ask(TxnOffsetCommitRequest(group_id="g", topics=topics, **who), 5)
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    ended = await broker.ask(EndTxnRequest(committed=True, **who))
    assert ended.error_code == ErrorCode.NONE
    left = await broker.services.store.command("HGETALL", broker.services.keys.group_offsets("g"))
    assert left[0] == broker.services.keys.partition("t", 0).stream.encode()
    assert left[1].startswith(b"7 ")


async def test_a_transaction_does_not_move_the_redis_group_that_its_group_reads_by(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, moves = broker.services, dict[str, bool]()

    async def seek(group_id: str, rows: object, *, move: bool) -> None:
        moves[group_id] = move

    monkeypatch.setattr(services.groups.redis_groups, "seek", seek)
    edits = [Edit("group.read.mode", "stream")]
    await services.config_admin.alter(
        Change(ConfigResourceType.GROUP, "streaming", edits, False, False)
    )
    for group in ("streaming", "g"):
        await services.transactions.on_commit(group, [])
    assert moves == {"streaming": False, "g": True}


async def test_a_commit_of_a_deleted_topic_is_ignored_for_a_new_one(
    broker: Broker,
) -> None:
    await broker.create("t", 1)
    await commit(broker, offset=9)
    field = broker.services.keys.partition("t", 0).stream
    offsets = broker.services.keys.group_offsets("g")
    raw = await broker.services.store.command("HGET", offsets, field)
    stale = raw.replace(raw.split(b" ")[4], b"f" * 32)
    await broker.services.store.command("HSET", offsets, field, stale)
    rows = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=rows)]
    answer = await broker.ask(OffsetFetchRequest(groups=groups), 9)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == -1


async def test_expired_members_are_removed_without_a_request(broker: Broker) -> None:
    await stable(broker)
    keys, store = broker.services.keys, broker.services.store
    group = keys.group("g")
    seconds, _ = await store.command("TIME")
    just_now = int(seconds) * 1000 - 1000
    for name in await store.command("ZRANGE", group.deadlines, 0, -2):
        await store.command("ZADD", group.deadlines, just_now, name)
    for name in await store.command("ZRANGE", keys.groups_due(), 0, -2):
        await store.command("ZADD", keys.groups_due(), 1, name)
    assert await broker.services.groups.tick_due() == 1
    assert await store.command("HGET", group.group, "state") == b"Empty"
    assert await broker.services.groups.tick_due() == 0


async def test_a_group_that_cannot_be_ticked_blocks_no_other_group(broker: Broker) -> None:
    keys, store = broker.services.keys, broker.services.store
    for name in ("broken", "g"):
        await stable(broker, name)
        await store.command("ZADD", keys.groups_due(), 1, name)
        await store.command("ZADD", keys.group(name).deadlines, 1, ":sync")
    await store.command("DEL", keys.group("broken").group)
    await store.command("SET", keys.group("broken").group, "no hash")
    with pytest.raises(ScriptFailed, match="WRONGTYPE"):
        await broker.services.groups.tick_due()
    assert await store.command("ZSCORE", keys.group("g").deadlines, ":sync") != b"1", "ticked"


async def test_a_schedule_that_failed_is_repeated_at_the_next_call(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, store = broker.services.groups, broker.services.store

    async def away(_: object) -> object:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "run_many", away)
        with pytest.raises(StoreUnavailable):
            await groups.schedule_tick("g", 10_000)
    await groups.schedule_tick("g", 10_000)
    assert await store.command("ZSCORE", broker.services.keys.groups_due(), "g") is not None


async def test_the_gauges_show_members_and_lag(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    stream = broker.services.keys.partition("t", 0).stream
    await commit(broker, offset=0)
    await stable(broker, "members")
    gauges = BackgroundTasks(broker.services).group_gauges
    broker.services.metrics.scraped()
    await gauges.update()
    assert broker.services.metrics.group_members.ask is not None
    assert gauges.members() == {("g",): 0, ("members",): 1}
    assert gauges.lag() == {("g", "t", "0"): 0}
    for _ in range(3):
        await broker.services.store.command("XADD", stream, "*", "value", "v")
    await gauges.update()
    assert gauges.lag().keys() == {("g", "t", "0")}


async def test_silent_producers_of_every_partition_expire(broker: Broker) -> None:
    await broker.create("t", 2)
    producers = [broker.services.keys.partition("t", number).producers for number in range(2)]
    for key in producers:
        await broker.services.store.command("HSET", key, "7", "0:1:1:,,,,0-0-0")
    await BackgroundTasks(broker.services).retention.expire_producers()
    assert await broker.services.store.command("EXISTS", *producers) == 0


async def test_a_compaction_pass_ends_when_another_broker_has_the_lease(broker: Broker) -> None:
    one, two = (BackgroundTasks(broker.services).compaction for _ in range(2))
    assert await one.hold()
    assert not await two.hold()
    one._renewed_at = -1000.0
    await one.rest_and_hold(0)
    assert one._renewed_at > 0
    await broker.services.store.command("HDEL", broker.services.keys.cluster(), "lease:compaction")
    assert await two.hold()
    await one.rest_and_hold(0)
    one._renewed_at = -1000.0
    with pytest.raises(Superseded):
        await one.rest_and_hold(0)


PLACES = [("orders", [0, 7]), ("none", []), ("ünï", [1])]
GOOD = ConsumerProtocolMemberAssignment(0, PLACES, b"more").encode()


def test_an_assignment_lists_its_partitions() -> None:
    assert assigned_partitions(GOOD) == [("orders", 0), ("orders", 7), ("ünï", 1)]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"tasks",
        struct.pack(">hi", 0, 2_000_000_000),
        struct.pack(">hih", 0, 1, -5),
        struct.pack(">hih1si", 0, 1, 1, b"t", -1),
        struct.pack(">hih1si", 0, 1, 1, b"t", 2_000_000_000),
        struct.pack(">hih2si", 0, 1, 2, b"\xff\xff", 0),
    ],
)
def test_a_malformed_assignment_lists_no_partitions(bad: bytes) -> None:
    assert assigned_partitions(bad) == []


def test_a_truncated_assignment_lists_no_partitions() -> None:
    end = len(GOOD) - len(b"more") - 4
    assert all(assigned_partitions(GOOD[:at]) == [] for at in range(end))
