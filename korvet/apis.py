"""The API table: which Kafka APIs are served, in which versions.

Dispatch and ApiVersions read these rows and nothing else. The name of a row leads to its code:
`ListOffsets` is `korvet/handlers/list_offsets.py` and `korvet/wire/messages/list_offsets.py`, which
says its key and versions.
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
    """Row of the API table. `versions`: the lowest and the highest version served.

    `may_change`: a request may change something. Metadata may create a topic.
    """

    key: int
    name: str
    versions: tuple[int, int]
    request: type[Message]
    response: type[Message]
    handler: Handler
    may_change: bool = True


_READS = re.compile("ApiV|Describe|Fetch|FindC|List|OffsetFetch|Sasl|.*GroupDescribe")
NAMES = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "ElectLeaders",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "DescribeQuorum",
    "UpdateFeatures",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ListConfigResources",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "StreamsGroupHeartbeat",
    "StreamsGroupDescribe",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)
"""The APIs that are served, in the order of their keys."""
HIGHEST = {"InitProducerId": 5}
"""The highest version served, if the messages have a higher one that Kafka holds unstable."""


def _api(name: str) -> Api:
    """Return the row of an API, with the messages and the handler of that name."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    messages = import_module(f"korvet.wire.messages.{module}")
    handler = getattr(import_module(f"korvet.handlers.{module}"), module)
    request, response = (getattr(messages, f"{name}{part}") for part in ("Request", "Response"))
    info = request.__message__
    versions = info.versions[0], HIGHEST.get(name, info.versions[1])
    may_change = _READS.match(name) is None
    return Api(info.key, name, versions, request, response, handler, may_change)


TABLE: tuple[Api, ...] = tuple(map(_api, NAMES))
BY_KEY: dict[int, Api] = {row.key: row for row in TABLE}
