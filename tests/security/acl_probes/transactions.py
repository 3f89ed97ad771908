"""Probes of APIs of transactions."""

from korvet.wire.messages import add_offsets_to_txn as aot
from korvet.wire.messages import add_partitions_to_txn as apt
from korvet.wire.messages import describe_transactions as dtx
from korvet.wire.messages import end_txn as et
from korvet.wire.messages import init_producer_id as ip
from korvet.wire.messages import list_transactions as lt
from korvet.wire.messages import txn_offset_commit as toc
from korvet.wire.messages import write_txn_markers as wtm
from tests.security.acl_probes.registry import NO_PRODUCER, probe


def register() -> None:
    """Register the probes."""
    for name, kind in (("x1", "existing"), ("x2", "missing")):
        probe(
            f"EndTxn 3 {kind}",
            3,
            et.EndTxnRequest(
                transactional_id=name, producer_id=NO_PRODUCER, producer_epoch=0, committed=True
            ),
            f"transactional_id={name}:write",
        )
    probe(
        "InitProducerId 4 x1",
        4,
        ip.InitProducerIdRequest(transactional_id="x1", transaction_timeout_ms=60_000),
        "transactional_id=x1:write",
    )
    probe(
        "InitProducerId 4 without an id",
        4,
        ip.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        "cluster=kafka-cluster:idempotent_write",
        "topic=t1",
    )
    probe(
        "InitProducerId 4 by a topic",
        4,
        ip.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        "topic=t2:write",
    )
    two = [apt.NamedPartitions(name=name, partitions=[0]) for name in ("t1", "t3")]
    probe(
        "AddPartitionsToTxn 3 t1 t3",
        3,
        apt.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x1",
            v3_and_below_producer_id=NO_PRODUCER,
            v3_and_below_topics=two,
        ),
        "transactional_id=x1:write topic=t1:write topic=t3:write",
    )
    probe(
        "AddPartitionsToTxn 3 t1 t2",
        3,
        apt.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x1",
            v3_and_below_producer_id=NO_PRODUCER,
            v3_and_below_topics=[
                apt.NamedPartitions(name=name, partitions=[0]) for name in ("t1", "t2")
            ],
        ),
        "transactional_id=x1:write topic=t1:write topic=t2:write",
    )
    probe(
        "AddPartitionsToTxn 4 t1",
        4,
        apt.AddPartitionsToTxnRequest(
            transactions=[
                apt.AddPartitionsToTxnTransaction(
                    transactional_id="x1",
                    producer_id=NO_PRODUCER,
                    producer_epoch=0,
                    topics=two[:1],
                )
            ]
        ),
        "cluster=kafka-cluster:cluster_action",
        "transactional_id=x1 topic=t1",
    )
    probe(
        "AddOffsetsToTxn 3",
        3,
        aot.AddOffsetsToTxnRequest(
            transactional_id="x1", producer_id=NO_PRODUCER, producer_epoch=0, group_id="g1"
        ),
        "transactional_id=x1:write group=g1:read",
    )
    part = toc.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    for name in ("t1", "t2"):
        probe(
            f"TxnOffsetCommit 3 {name}",
            3,
            toc.TxnOffsetCommitRequest(
                transactional_id="x1",
                group_id="g1",
                producer_id=NO_PRODUCER,
                producer_epoch=0,
                generation_id_or_member_epoch=7,
                member_id="unknown",
                topics=[toc.TxnOffsetCommitRequestTopic(name=name, partitions=[part])],
            ),
            f"transactional_id=x1:write group=g1:read topic={name}:read",
        )
    probe(
        "WriteTxnMarkers 1",
        1,
        wtm.WriteTxnMarkersRequest(
            markers=[
                wtm.WritableTxnMarker(
                    producer_id=NO_PRODUCER,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[wtm.PartitionIndexes(name="t2", partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        ),
        "cluster=kafka-cluster:cluster_action",
        "topic=t2",
    )
    probe(
        "DescribeTransactions 0 x2 x3",
        0,
        dtx.DescribeTransactionsRequest(transactional_ids=["x2", "x3"]),
        "transactional_id=x3:describe topic=t3:describe",
        "transactional_id=x2",
    )
    probe(
        "ListTransactions 1",
        1,
        lt.ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]),
        "transactional_id=x3:describe",
        "topic=t3",
    )
