"""The API table: which Kafka APIs are served, in which versions.

Dispatch and ApiVersions read these rows and nothing else. The name of a row leads to its code:
`ListOffsets` is `korvet/handlers/list_offsets.py` and `korvet/wire/messages/list_offsets.py`.
"""

import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import msgspec

from korvet.context import Context
from korvet.wire.schema import Message

Handler = Callable[[Any, Context], Awaitable[Message | None]]


class Api(msgspec.Struct, frozen=True):
    """Row of the API table. `versions`: the lowest and the highest version served."""

    key: int
    name: str
    versions: tuple[int, int]
    request: type[Message]
    response: type[Message]
    handler: Handler


def _api(key: int, name: str, versions: tuple[int, int]) -> Api:
    """Return the row of an API, with the messages and the handler of that name."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    messages = import_module(f"korvet.wire.messages.{module}")
    handler = getattr(import_module(f"korvet.handlers.{module}"), module)
    request, response = (getattr(messages, f"{name}{part}") for part in ("Request", "Response"))
    return Api(key, name, versions, request, response, handler)


TABLE: tuple[Api, ...] = (
    _api(0, "Produce", (0, 13)),
    _api(1, "Fetch", (0, 18)),
    _api(2, "ListOffsets", (0, 11)),
    _api(3, "Metadata", (0, 13)),
    _api(8, "OffsetCommit", (0, 10)),
    _api(9, "OffsetFetch", (0, 10)),
    _api(10, "FindCoordinator", (0, 6)),
    _api(11, "JoinGroup", (0, 9)),
    _api(12, "Heartbeat", (0, 4)),
    _api(13, "LeaveGroup", (0, 5)),
    _api(14, "SyncGroup", (0, 5)),
    _api(15, "DescribeGroups", (0, 6)),
    _api(16, "ListGroups", (0, 5)),
    _api(17, "SaslHandshake", (0, 1)),
    _api(18, "ApiVersions", (0, 5)),
    _api(19, "CreateTopics", (0, 7)),
    _api(20, "DeleteTopics", (0, 6)),
    _api(21, "DeleteRecords", (0, 2)),
    _api(22, "InitProducerId", (0, 5)),
    _api(23, "OffsetForLeaderEpoch", (0, 4)),
    _api(24, "AddPartitionsToTxn", (0, 5)),
    _api(25, "AddOffsetsToTxn", (0, 4)),
    _api(26, "EndTxn", (0, 5)),
    _api(27, "WriteTxnMarkers", (0, 2)),
    _api(28, "TxnOffsetCommit", (0, 6)),
    _api(29, "DescribeAcls", (0, 3)),
    _api(30, "CreateAcls", (0, 3)),
    _api(31, "DeleteAcls", (0, 3)),
    _api(32, "DescribeConfigs", (0, 4)),
    _api(33, "AlterConfigs", (0, 2)),
    _api(34, "AlterReplicaLogDirs", (0, 2)),
    _api(35, "DescribeLogDirs", (0, 5)),
    _api(36, "SaslAuthenticate", (0, 2)),
    _api(37, "CreatePartitions", (0, 3)),
    _api(42, "DeleteGroups", (0, 3)),
    _api(43, "ElectLeaders", (0, 2)),
    _api(44, "IncrementalAlterConfigs", (0, 1)),
    _api(45, "AlterPartitionReassignments", (0, 1)),
    _api(46, "ListPartitionReassignments", (0, 0)),
    _api(47, "OffsetDelete", (0, 0)),
    _api(48, "DescribeClientQuotas", (0, 1)),
    _api(49, "AlterClientQuotas", (0, 1)),
    _api(50, "DescribeUserScramCredentials", (0, 0)),
    _api(51, "AlterUserScramCredentials", (0, 0)),
    _api(55, "DescribeQuorum", (0, 2)),
    _api(57, "UpdateFeatures", (0, 2)),
    _api(60, "DescribeCluster", (0, 2)),
    _api(61, "DescribeProducers", (0, 0)),
    _api(65, "DescribeTransactions", (0, 0)),
    _api(66, "ListTransactions", (0, 2)),
    _api(68, "ConsumerGroupHeartbeat", (0, 1)),
    _api(69, "ConsumerGroupDescribe", (0, 1)),
    _api(74, "ListConfigResources", (0, 1)),
    _api(75, "DescribeTopicPartitions", (0, 0)),
    _api(76, "ShareGroupHeartbeat", (1, 1)),
    _api(77, "ShareGroupDescribe", (1, 1)),
    _api(78, "ShareFetch", (1, 2)),
    _api(79, "ShareAcknowledge", (1, 2)),
    _api(88, "StreamsGroupHeartbeat", (0, 1)),
    _api(89, "StreamsGroupDescribe", (0, 1)),
    _api(90, "DescribeShareGroupOffsets", (0, 1)),
    _api(91, "AlterShareGroupOffsets", (0, 0)),
    _api(92, "DeleteShareGroupOffsets", (0, 0)),
)

BY_KEY: dict[int, Api] = {row.key: row for row in TABLE}
