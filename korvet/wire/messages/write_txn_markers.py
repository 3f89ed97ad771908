"""WriteTxnMarkers (key 27): end transactions on the partitions of another broker."""

from typing import Annotated

from korvet.wire.schema import Field, Message, i8, i16, i32, i64, request, response
from korvet.wire.structs import PartitionIndexes, TopicErrors


class WritableTxnMarker(Message):
    producer_id: i64
    producer_epoch: i16
    transaction_result: bool
    """False aborts."""
    topics: list[PartitionIndexes]
    coordinator_epoch: i32
    transaction_version: Annotated[i8, Field(since=2)] = 0


@request(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerResult(Message):
    producer_id: i64
    topics: list[TopicErrors]


@response(WriteTxnMarkersRequest)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult]
