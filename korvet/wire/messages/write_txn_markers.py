"""WriteTxnMarkers (key 27): a coordinator ends transactions on the partitions of another broker."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i8, i16, i32, i64, message


class WritableTxnMarkerTopic(Message):
    name: str
    partition_indexes: list[i32]


class WritableTxnMarker(Message):
    producer_id: i64
    producer_epoch: i16
    transaction_result: bool
    """False aborts."""
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: i32
    transaction_version: Annotated[i8, Field(since=2)] = 0


@message(key=27, versions=(0, 2), flexible=1, request=True)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Message):
    partition_index: i32
    error_code: i16


class WritableTxnMarkerTopicResult(Message):
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Message):
    producer_id: i64
    topics: list[WritableTxnMarkerTopicResult]


@message(key=27, versions=(0, 2), flexible=1, request=False)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult]
