"""Probes of APIs that describe and change topics."""

from typing import Any

from korvet.wire.messages import create_partitions as cp
from korvet.wire.messages import create_topics as ct
from korvet.wire.messages import delete_topics as dt
from korvet.wire.messages import describe_topic_partitions as dtp
from korvet.wire.messages import metadata as md
from tests.security.acl_probes.registry import BOTH, UNKNOWN_ID, probe


def metadata(*topics: Any, create: bool = False, bits: bool = True) -> md.MetadataRequest:
    """Return a Metadata of topics by name or id, or of all."""
    rows = [
        md.MetadataRequestTopic(name=each)
        if isinstance(each, str)
        else md.MetadataRequestTopic(topic_id=each, name=None)
        for each in topics
    ]
    return md.MetadataRequest(
        topics=rows or None,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=bits,
        include_topic_authorized_operations=bits,
    )


def described(*names: str) -> dtp.DescribeTopicPartitionsRequest:
    """Return a DescribeTopicPartitions of these topics."""
    return dtp.DescribeTopicPartitionsRequest(
        topics=[dtp.TopicRequest(name=name) for name in names]
    )


def register() -> None:
    """Register the probes."""
    cluster = "cluster=kafka-cluster"
    probe("Metadata 10 t1 t2", 10, metadata("t1", "t2"), "topic=t1:describe", f"topic=t2 {cluster}")
    probe("Metadata 12 t1 t2", 12, metadata("t1", "t2"), "topic=t1:describe", "topic=t2")
    probe(
        "Metadata 12 by id",
        12,
        lambda ids: metadata(ids.t1, UNKNOWN_ID),
        "topic=t1:describe",
    )
    probe("Metadata 12 all", 12, metadata(), "topic=t1:describe", "topic=t3")
    probe(
        "Metadata 12 creates",
        12,
        metadata("made", create=True),
        "topic=made:describe topic=made:create",
        cluster,
        removes="made",
    )
    probe(
        "Metadata 12 creates by the cluster",
        12,
        metadata("made", create=True),
        f"topic=made:describe {cluster}:create",
        removes="made",
    )
    probe("DescribeTopicPartitions 0 t1 t2", 0, described("t1", "t2"), "topic=t1:describe", BOTH)
    probe("DescribeTopicPartitions 0 all", 0, described(), "topic=t1:describe", "topic=t3")
    for name in ("t1", "made"):
        topic = ct.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = ct.CreateTopicsRequest(topics=[topic])
        probe(
            f"CreateTopics 7 {name}",
            7,
            request,
            f"topic={name}:create topic={name}:describe_configs",
            cluster,
            removes=None if name == "t1" else name,
        )
        probe(
            f"CreateTopics 7 {name} by the cluster",
            7,
            request,
            f"{cluster}:create",
            f"topic={name}",
            removes=None if name == "t1" else name,
        )
    probe(
        "DeleteTopics 5 gone t2",
        5,
        dt.DeleteTopicsRequest(topic_names=["gone", "t2"], timeout_ms=5000),
        "topic=gone:delete",
        "topic=t2",
        creates="gone",
    )
    probe(
        "DeleteTopics 6 by id",
        6,
        lambda ids: dt.DeleteTopicsRequest(
            topics=[dt.DeleteTopicState(topic_id=each) for each in (ids.gone, UNKNOWN_ID)],
            timeout_ms=5000,
        ),
        "topic=gone:delete topic=gone:describe",
        creates="gone",
    )
    probe(
        "CreatePartitions 3 t1 t2",
        3,
        cp.CreatePartitionsRequest(
            topics=[
                cp.CreatePartitionsTopic(name=name, count=2, assignments=None)
                for name in ("t1", "t2")
            ],
            timeout_ms=5000,
            validate_only=True,
        ),
        "topic=t1:alter",
        "topic=t2",
    )
