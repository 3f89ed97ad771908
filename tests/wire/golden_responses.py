"""Responses and their bytes, written by hand: hexadecimal, and text in quotes."""

from uuid import UUID

from korvet.wire.layout import Message
from korvet.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from korvet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from korvet.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from korvet.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from korvet.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from korvet.wire.structs import LeaderIdAndEpoch

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

RESPONSES: list[tuple[Message, int, str]] = [
    (
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        0,
        "0023 00000001 0012 0000 0004",
    ),
    (
        ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
            supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=2)],
            finalized_features_epoch=7,
            finalized_features=[
                FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)
            ],
        ),
        4,
        """0000 02 0012 0000 0004 00 00000000
        03  00 08 02 02'f' 0000 0002 00  01 08 0000000000000007  02 08 02 02'f' 0002 0001 00""",
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=1,
                            error_code=6,
                            high_watermark=10,
                            last_stable_offset=8,
                            log_start_offset=0,
                            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=3),
                            aborted_transactions=[
                                AbortedTransaction(producer_id=77, first_offset=5)
                            ],
                            records=[b"ab", memoryview(b"c")],
                        )
                    ],
                )
            ],
            session_id=4,
        ),
        12,
        """00000000 0000 00000004 02 02't' 02
        00000001 0006 000000000000000a 0000000000000008 0000000000000000
        02 000000000000004d 0000000000000005 00 ffffffff 04'abc'
        01 01 09 00000002 00000003 00
        00 00""",
    ),
    (
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=1,
                            error_code=0,
                            high_watermark=10,
                            aborted_transactions=None,
                            records=b"",
                        )
                    ],
                )
            ]
        ),
        4,
        """00000000 00000001 0001't' 00000001 00000001 0000 000000000000000a ffffffffffffffff
        ffffffff 00000000""",
    ),
    (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=0, error_code=0, old_style_offsets=[9, 0]
                        )
                    ],
                )
            ]
        ),
        0,
        """00000001 0001't' 00000001 00000000 0000
        00000002 0000000000000009 0000000000000000""",
    ),
    (
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    error_code=0,
                    name="t",
                    partitions=[
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=0,
                            leader_id=1,
                            replica_nodes=[1],
                            isr_nodes=[1, 2],
                        )
                    ],
                )
            ],
        ),
        1,
        """00000001 00000001 0001'h' 00002384 ffff 00000001
        00000001 0000 0001't' 00 00000001 0000 00000000 00000001
        00000001 00000001 00000002 00000001 00000002""",
    ),
    (
        CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name="t",
                    topic_id=TOPIC_ID,
                    error_code=0,
                    topic_config_error_code=29,
                    num_partitions=3,
                    replication_factor=1,
                )
            ]
        ),
        7,
        """00000000 02 02't' 00112233445566778899aabbccddeeff 0000 00 00000003 0001 01
        01 00 02 001d 00""",
    ),
    (
        ConsumerGroupHeartbeatResponse(
            error_code=0, member_epoch=1, heartbeat_interval_ms=5000, assignment=None
        ),
        0,
        "00000000 0000 00 00 00000001 00001388 ff 00",
    ),
    (
        ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_epoch=1,
            heartbeat_interval_ms=5000,
            assignment=Assignment(
                topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])]
            ),
        ),
        0,
        """00000000 0000 00 00 00000001 00001388 01
        02 00112233445566778899aabbccddeeff 03 00000000 00000001 00 00 00""",
    ),
]
