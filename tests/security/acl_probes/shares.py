"""Probes of APIs of share groups."""

from korvet.wire.messages import alter_share_group_offsets as asgo
from korvet.wire.messages import delete_share_group_offsets as dsgo
from korvet.wire.messages import describe_share_group_offsets as desgo
from korvet.wire.messages import share_acknowledge as sa
from korvet.wire.messages import share_fetch as sf
from korvet.wire.messages import share_group_describe as sgd
from korvet.wire.messages import share_group_heartbeat as sgh
from tests.security.acl_probes.registry import Ids, probe


def moved(*topics: str) -> asgo.AlterShareGroupOffsetsRequest:
    """Return a request to move the share group e1 to the start of partition 0 of these topics."""
    part = asgo.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    rows = [
        asgo.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[part])
        for name in topics
    ]
    return asgo.AlterShareGroupOffsetsRequest(group_id="e1", topics=rows)


def described(*topics: str) -> desgo.DescribeShareGroupOffsetsRequest:
    """Return a request for the offsets of e1 in partition 0 of these topics, or in all."""
    rows = [
        desgo.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
        for name in topics
    ]
    asked = desgo.DescribeShareGroupOffsetsRequestGroup(group_id="e1", topics=rows or None)
    return desgo.DescribeShareGroupOffsetsRequest(groups=[asked])


def fetched(ids: Ids) -> sf.ShareFetchRequest:
    """Return the first ShareFetch of a session of s1, for t1."""
    row = sa.AcknowledgePartition(partition_index=0, acknowledgement_batches=[])
    return sf.ShareFetchRequest(
        group_id="s1",
        member_id="alices",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[sa.AcknowledgeTopic(topic_id=ids.t1, partitions=[row])],
    )


def accepted(ids: Ids) -> sa.ShareAcknowledgeRequest:
    """Return a ShareAcknowledge without a session."""
    batch = sa.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    row = sa.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return sa.ShareAcknowledgeRequest(
        group_id="s1",
        member_id="unknown",
        share_session_epoch=1,
        topics=[sa.AcknowledgeTopic(topic_id=ids.t1, partitions=[row])],
    )


def register() -> None:
    """Register the probes."""
    probe("ShareFetch 2 s1 t1", 2, fetched, "group=s1:read topic=t1:read")
    probe("ShareAcknowledge 2 s1 t1", 2, accepted, "group=s1:read", "topic=t1")
    probe(
        "ShareGroupHeartbeat 1 t1",
        1,
        sgh.ShareGroupHeartbeatRequest(
            group_id="s1", member_id="unknown", member_epoch=5, subscribed_topic_names=["t1"]
        ),
        "group=s1:read topic=t1:describe",
    )
    probe(
        "ShareGroupHeartbeat 1 without topics",
        1,
        sgh.ShareGroupHeartbeatRequest(group_id="s1", member_id="unknown", member_epoch=5),
        "group=s1:read",
        "topic=t1",
    )
    probe(
        "ShareGroupDescribe 1 s1 g2",
        1,
        sgd.ShareGroupDescribeRequest(group_ids=["s1", "g2"], include_authorized_operations=True),
        "group=s1:describe topic=t1:describe",
        "group=g2",
    )
    probe(
        "DescribeShareGroupOffsets 1 e1 t1 t2",
        1,
        described("t1", "t2"),
        "group=e1:describe topic=t1:describe",
        "topic=t2",
    )
    probe(
        "DescribeShareGroupOffsets 1 e1",
        1,
        described(),
        "group=e1:describe topic=t1:describe",
    )
    probe(
        "AlterShareGroupOffsets 0 e1 t1 t2",
        0,
        moved("t1", "t2"),
        "group=e1:read topic=t1:read",
        "topic=t2",
    )
    probe(
        "DeleteShareGroupOffsets 0 e1 t1 t2",
        0,
        dsgo.DeleteShareGroupOffsetsRequest(
            group_id="e1",
            topics=[
                dsgo.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t1", "t2")
            ],
        ),
        "group=e1:delete topic=t1:read",
        "topic=t2",
    )
