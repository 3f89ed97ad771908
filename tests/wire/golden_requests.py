"""Requests and their bytes, written by hand: hexadecimal, and text in quotes."""

from uuid import UUID

from korvet.wire.layout import Message
from korvet.wire.messages.api_versions import (
    ApiVersionsRequest,
)
from korvet.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from korvet.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
)
from korvet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

REQUESTS: list[tuple[Message, int, str]] = [
    (ApiVersionsRequest(), 0, ""),
    (
        ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7"),
        3,
        "05'kcat' 04'1.7' 00",
    ),
    (
        ProduceRequest(
            acks=1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=2, records=b"abc")]
                )
            ],
        ),
        2,
        "0001 000005dc 00000001 0001't' 00000001 00000002 00000003'abc'",
    ),
    (
        ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=2, records=None)]
                )
            ],
        ),
        9,
        "03'tx' ffff 000005dc 02 02't' 02 00000002 00 00 00 00",
    ),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=0,
            topic_data=[
                TopicProduceData(
                    topic_id=TOPIC_ID,
                    partition_data=[PartitionProduceData(index=0, records=b"a" * 200)],
                )
            ],
        ),
        13,
        f"""00 ffff 00000000 02 00112233445566778899aabbccddeeff
        02 00000000 c901'{"a" * 200}' 00 00 00""",
    ),
    (
        FetchRequest(
            replica_state=ReplicaState(replica_id=5, replica_epoch=6),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=64,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(
                            partition=3, fetch_offset=9, partition_max_bytes=16, high_watermark=4
                        )
                    ],
                )
            ],
            rack_id="r",
        ),
        18,
        """000001f4 00000001 00000040 01 00000000 ffffffff
        02 00112233445566778899aabbccddeeff
           02 00000003 ffffffff 0000000000000009 ffffffff ffffffffffffffff 00000010
              01 01 08 0000000000000004
           00
        01 02'r'  01 01 0d 00000005 0000000000000006 00""",
    ),
    (MetadataRequest(topics=[]), 0, "00000000"),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)],
            allow_auto_topic_creation=False,
        ),
        12,
        "02 00112233445566778899aabbccddeeff 00 00 00 00 00",
    ),
    (
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=1, committed_offset=2, committed_metadata="m"
                        )
                    ],
                )
            ],
        ),
        0,
        "0001'g' 00000001 0001't' 00000001 00000001 0000000000000002 0001'm'",
    ),
]
