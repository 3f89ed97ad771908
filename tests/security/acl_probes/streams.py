"""Probes of APIs of streams groups."""

from korvet.wire.messages import streams_group_describe as sgd
from korvet.wire.messages import streams_group_heartbeat as sgh
from tests.security.acl_probes.registry import probe


def topology(*sources: str) -> sgh.Topology:
    """Return a topology that is not valid: its changelog topic has a partition count."""
    changelog = sgh.TopicInfo(name="t1", partitions=1, replication_factor=0, topic_configs=[])
    sub = sgh.Subtopology(
        subtopology_id="0",
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[changelog],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return sgh.Topology(epoch=0, subtopologies=[sub])


def joining(*sources: str) -> sgh.StreamsGroupHeartbeatRequest:
    """Return the first heartbeat of a member of k1."""
    return sgh.StreamsGroupHeartbeatRequest(
        group_id="k1",
        member_id="new",
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=30_000,
        topology=topology(*sources),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )


def register() -> None:
    """Register the probes."""
    probe(
        "StreamsGroupHeartbeat 0 k1 joins",
        0,
        joining("t2"),
        "group=k1:read topic=t1:describe topic=t2:describe",
    )
    probe(
        "StreamsGroupHeartbeat 0 k1 without topology",
        0,
        sgh.StreamsGroupHeartbeatRequest(
            group_id="k1", member_id="unknown", member_epoch=5, endpoint_information_epoch=0
        ),
        "group=k1:read",
        "topic=t1",
    )
    probe(
        "StreamsGroupDescribe 0 k1 g2",
        0,
        sgd.StreamsGroupDescribeRequest(group_ids=["k1", "g2"], include_authorized_operations=True),
        "group=k1:describe topic=t1:describe",
        "group=g2",
    )
