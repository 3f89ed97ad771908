"""Probes of APIs of groups."""

from typing import Any

from korvet.wire.messages import consumer_group_describe as cgd
from korvet.wire.messages import consumer_group_heartbeat as cgh
from korvet.wire.messages import delete_groups as dg
from korvet.wire.messages import describe_groups as dgr
from korvet.wire.messages import find_coordinator as fc
from korvet.wire.messages import heartbeat as hb
from korvet.wire.messages import join_group as jg
from korvet.wire.messages import leave_group as lg
from korvet.wire.messages import list_groups as lgr
from korvet.wire.messages import offset_commit as oc
from korvet.wire.messages import offset_delete as od
from korvet.wire.messages import offset_fetch as of
from korvet.wire.messages import sync_group as sg
from tests.security.acl_probes.registry import probe


def commit(group: str, **topic: Any) -> oc.OffsetCommitRequest:
    """Return a commit of offset 0 by a client that is no member."""
    part = oc.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    row = oc.OffsetCommitRequestTopic(partitions=[part], **topic)
    return oc.OffsetCommitRequest(group_id=group, topics=[row])


def committed(*topics: str, group: str = "g1") -> of.OffsetFetchRequest:
    """Return an OffsetFetch of partition 0 of these topics, or of all."""
    rows = [of.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in topics]
    return of.OffsetFetchRequest(
        groups=[of.OffsetFetchRequestGroup(group_id=group, topics=rows or None)]
    )


def register() -> None:
    """Register the probes."""
    for name in ("t1", "t2"):
        probe(
            f"OffsetCommit 9 {name}",
            9,
            commit("g1", name=name),
            f"group=g1:read topic={name}:read",
        )
        probe(
            f"OffsetFetch 9 {name}",
            9,
            committed(name),
            f"group=g1:describe topic={name}:describe",
        )
    probe(
        "OffsetCommit 10 t1",
        10,
        lambda ids: commit("g1", topic_id=ids.t1),
        "group=g1:read topic=t1:read",
    )
    probe("OffsetFetch 9 all", 9, committed(), "group=g1:describe topic=t1:describe")
    probe(
        "OffsetFetch 7 t1",
        7,
        of.OffsetFetchRequest(
            group_id="g1", topics=[of.OffsetFetchRequestTopics(name="t1", partition_indexes=[0])]
        ),
        "group=g1:describe topic=t1:describe",
    )
    for kind, resource in (
        (0, "group=g1"),
        (1, "transactional_id=x1"),
        (2, "cluster=kafka-cluster"),
    ):
        probe(
            f"FindCoordinator 6 type {kind}",
            6,
            fc.FindCoordinatorRequest(
                key_type=kind,
                coordinator_keys=["g1:AAAAAAAAAAAAAAAAAAAAAQ:0" if kind == 2 else resource[-2:]],
            ),
            f"{resource}:{'cluster_action' if kind == 2 else 'describe'}",
        )
    for group in ("g1", "g2"):
        needs = f"group={group}:read"
        protocol = jg.JoinGroupRequestProtocol(name="range", metadata=b"")
        probe(
            f"JoinGroup 9 {group}",
            9,
            jg.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="unknown",
                protocol_type="consumer",
                protocols=[protocol],
            ),
            needs,
        )
        probe(
            f"SyncGroup 5 {group}",
            5,
            sg.SyncGroupRequest(
                group_id=group,
                generation_id=1,
                member_id="unknown",
                protocol_type="consumer",
                protocol_name="range",
                assignments=[],
            ),
            needs,
        )
        probe(
            f"Heartbeat 4 {group}",
            4,
            hb.HeartbeatRequest(group_id=group, generation_id=1, member_id="unknown"),
            needs,
        )
        probe(
            f"LeaveGroup 5 {group}",
            5,
            lg.LeaveGroupRequest(group_id=group, members=[lg.MemberIdentity(member_id="unknown")]),
            needs,
        )
    probe(
        "DescribeGroups 6 g1 g2",
        6,
        dgr.DescribeGroupsRequest(groups=["g1", "g2"], include_authorized_operations=True),
        "group=g1:describe",
        "group=g2",
    )
    probe(
        "ListGroups 5",
        5,
        lgr.ListGroupsRequest(types_filter=["classic"]),
        "group=g1:describe",
        "cluster=kafka-cluster",
    )
    probe(
        "DeleteGroups 2 c1 g2",
        2,
        dg.DeleteGroupsRequest(groups_names=["c1", "g2"]),
        "group=c1:delete",
        "group=g2",
    )
    probe(
        "OffsetDelete 0 c1 t1 t2",
        0,
        od.OffsetDeleteRequest(
            group_id="c1",
            topics=[
                od.OffsetDeleteRequestTopic(
                    name=name, partitions=[od.OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in ("t1", "t2")
            ],
        ),
        "group=c1:delete topic=t1:read",
        "topic=t2",
    )
    probe(
        "ConsumerGroupHeartbeat 1 t1",
        1,
        cgh.ConsumerGroupHeartbeatRequest(
            group_id="c1", member_id="unknown", member_epoch=5, subscribed_topic_names=["t1"]
        ),
        "group=c1:read topic=t1:describe",
    )
    probe(
        "ConsumerGroupHeartbeat 1 without topics",
        1,
        cgh.ConsumerGroupHeartbeatRequest(group_id="c1", member_id="unknown", member_epoch=5),
        "group=c1:read",
        "topic=t1",
    )
    probe(
        "ConsumerGroupDescribe 1 c1 g2",
        1,
        cgd.ConsumerGroupDescribeRequest(
            group_ids=["c1", "g2"], include_authorized_operations=True
        ),
        "group=c1:describe topic=t1:describe",
        "group=g2",
    )
