"""Probes of APIs that read and write records."""

import time
from typing import Any

from korvet.wire import batch_builder, records
from korvet.wire.messages import delete_records as dr
from korvet.wire.messages import describe_producers as dp
from korvet.wire.messages import fetch as fe
from korvet.wire.messages import list_offsets as lo
from korvet.wire.messages import offset_for_leader_epoch as ofl
from korvet.wire.messages import produce as pr
from tests.security.acl_probes.registry import BOTH, NO_PRODUCER, UNKNOWN_ID, probe


def batch(transactional: bool = False) -> bytes:
    """Return one record batch, too new for retention to delete it."""
    row: list[records.Record] = [(0, int(time.time() * 1000), None, b"v", [])]
    if not transactional:
        return bytes(batch_builder.build(row))
    return bytes(batch_builder.build(row, producer=(NO_PRODUCER, 0, 0), transactional=True))


def produce(data: bytes, transactional_id: str | None = None, **topic: Any) -> pr.ProduceRequest:
    """Return a Produce of one batch to partition 0."""
    part = pr.PartitionProduceData(index=0, records=data)
    return pr.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5000,
        topic_data=[pr.TopicProduceData(partition_data=[part], **topic)],
    )


def fetch(**topic: Any) -> fe.FetchRequest:
    """Return a Fetch of partition 0."""
    part = fe.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fe.FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[fe.FetchTopic(partitions=[part], **topic)]
    )


def follow(topic: str) -> fe.FetchRequest:
    """Return a Fetch of partition 0 by a follower."""
    part = fe.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fe.FetchRequest(
        replica_id=1,
        max_wait_ms=0,
        min_bytes=0,
        topics=[fe.FetchTopic(topic=topic, partitions=[part])],
    )


def register() -> None:
    """Register the probes."""
    for name in ("t1", "t2"):
        probe(f"Produce 12 {name}", 12, produce(batch(), name=name), f"topic={name}:write")
        probe(f"Fetch 12 {name}", 12, fetch(topic=name), f"topic={name}:read")
    probe("Produce 13 t1", 13, lambda ids: produce(batch(), topic_id=ids.t1), "topic=t1:write")
    probe("Produce 13 unknown id", 13, produce(batch(), topic_id=UNKNOWN_ID), "topic=t1:write")
    probe(
        "Produce 11 transactional",
        11,
        produce(batch(True), "x1", name="t1"),
        "transactional_id=x1:write topic=t1:write",
    )
    probe(
        "Produce 11 with an id only",
        11,
        produce(batch(), "x1", name="t1"),
        "topic=t1:write",
        "transactional_id=x1",
    )
    probe("Fetch 13 t1", 13, lambda ids: fetch(topic_id=ids.t1), "topic=t1:read")
    probe("Fetch 13 unknown id", 13, fetch(topic_id=UNKNOWN_ID), "topic=t1:read")
    probe("Fetch 12 as a follower", 12, follow("t1"), "cluster=kafka-cluster:cluster_action", BOTH)
    for name in ("t1", "t2"):
        part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = lo.ListOffsetsTopic(name=name, partitions=[part])
        probe(
            f"ListOffsets 8 {name}",
            8,
            lo.ListOffsetsRequest(replica_id=-1, topics=[topic]),
            f"topic={name}:describe",
        )
        epoch = ofl.OffsetForLeaderPartition(partition=0, leader_epoch=0)
        probe(
            f"OffsetForLeaderEpoch 4 {name}",
            4,
            ofl.OffsetForLeaderEpochRequest(
                topics=[ofl.OffsetForLeaderTopic(topic=name, partitions=[epoch])]
            ),
            f"topic={name}:describe",
            "cluster=kafka-cluster",
        )
        probe(
            f"DescribeProducers 0 {name}",
            0,
            dp.DescribeProducersRequest(
                topics=[dp.PartitionIndexes(name=name, partition_indexes=[0])]
            ),
            f"topic={name}:read",
        )
        row = dr.DeleteRecordsTopic(
            name=name, partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=0)]
        )
        probe(
            f"DeleteRecords 2 {name}",
            2,
            dr.DeleteRecordsRequest(topics=[row], timeout_ms=500),
            f"topic={name}:delete",
        )
