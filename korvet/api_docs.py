"""The page `docs/protocol.md`: which Kafka APIs are served, how, and what is left out.

Written from the API table and the docstrings of the handlers; `make docs` writes it. A docstring
opens with one line, `Name (key K), versions A-B. What it does.`, then come paragraphs and the
lists `Behaviour`, `Versions` and `Left out`.
"""

import inspect
import re
import sys
from collections.abc import Iterator

from korvet.apis import TABLE, Api

KAFKA = "4.4"

# What a running Apache Kafka 4.4.0 claims: key -> name, lowest and highest version.
CLAIMED: dict[int, tuple[str, int, int]] = {
    0: ("Produce", 0, 13),
    1: ("Fetch", 4, 18),
    2: ("ListOffsets", 1, 11),
    3: ("Metadata", 0, 13),
    8: ("OffsetCommit", 2, 10),
    9: ("OffsetFetch", 1, 10),
    10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9),
    12: ("Heartbeat", 0, 4),
    13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5),
    15: ("DescribeGroups", 0, 6),
    16: ("ListGroups", 0, 5),
    17: ("SaslHandshake", 0, 1),
    18: ("ApiVersions", 0, 5),
    19: ("CreateTopics", 2, 7),
    20: ("DeleteTopics", 1, 6),
    21: ("DeleteRecords", 0, 2),
    22: ("InitProducerId", 0, 5),
    23: ("OffsetForLeaderEpoch", 2, 4),
    24: ("AddPartitionsToTxn", 0, 5),
    25: ("AddOffsetsToTxn", 0, 4),
    26: ("EndTxn", 0, 5),
    27: ("WriteTxnMarkers", 1, 2),
    28: ("TxnOffsetCommit", 0, 6),
    29: ("DescribeAcls", 1, 3),
    30: ("CreateAcls", 1, 3),
    31: ("DeleteAcls", 1, 3),
    32: ("DescribeConfigs", 1, 4),
    33: ("AlterConfigs", 0, 2),
    34: ("AlterReplicaLogDirs", 1, 2),
    35: ("DescribeLogDirs", 1, 5),
    36: ("SaslAuthenticate", 0, 2),
    37: ("CreatePartitions", 0, 3),
    38: ("CreateDelegationToken", 1, 3),
    39: ("RenewDelegationToken", 1, 2),
    40: ("ExpireDelegationToken", 1, 2),
    41: ("DescribeDelegationToken", 1, 3),
    42: ("DeleteGroups", 0, 3),
    43: ("ElectLeaders", 0, 2),
    44: ("IncrementalAlterConfigs", 0, 1),
    45: ("AlterPartitionReassignments", 0, 1),
    46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, 0),
    48: ("DescribeClientQuotas", 0, 1),
    49: ("AlterClientQuotas", 0, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    55: ("DescribeQuorum", 0, 2),
    57: ("UpdateFeatures", 0, 2),
    60: ("DescribeCluster", 0, 2),
    61: ("DescribeProducers", 0, 0),
    64: ("UnregisterBroker", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 0, 2),
    68: ("ConsumerGroupHeartbeat", 0, 1),
    69: ("ConsumerGroupDescribe", 0, 1),
    74: ("ListConfigResources", 0, 1),
    75: ("DescribeTopicPartitions", 0, 0),
    76: ("ShareGroupHeartbeat", 1, 1),
    77: ("ShareGroupDescribe", 1, 1),
    78: ("ShareFetch", 1, 2),
    79: ("ShareAcknowledge", 1, 2),
    80: ("AddRaftVoter", 0, 1),
    81: ("RemoveRaftVoter", 0, 0),
    83: ("InitializeShareGroupState", 0, 0),
    84: ("ReadShareGroupState", 0, 0),
    85: ("WriteShareGroupState", 0, 1),
    86: ("DeleteShareGroupState", 0, 0),
    87: ("ReadShareGroupStateSummary", 0, 1),
    88: ("StreamsGroupHeartbeat", 0, 1),
    89: ("StreamsGroupDescribe", 0, 1),
    90: ("DescribeShareGroupOffsets", 0, 1),
    91: ("AlterShareGroupOffsets", 0, 0),
    92: ("DeleteShareGroupOffsets", 0, 0),
    93: ("StreamsGroupTopologyDescriptionUpdate", 0, 0),
    94: ("UnregisterController", 0, 0),
}

_REASONS: dict[str, str] = {
    r"Share|Streams": "groups of another kind, not built",
    r"DelegationToken|Sasl|Scram": "nobody is asked who they are",
    r"Raft|Unregister": "KRaft's own: the metadata lies in Redis",
    r"ClientQuotas": "nothing is throttled",
}

_OPENING = f"""# The protocol

Which Kafka APIs are served, in which versions, and what each of them does here. This page is
written by `make docs` from the API table (`korvet/apis.py`, which dispatch and ApiVersions read
too) and from the comments of the handlers; a test fails when it is stale.

- A version below Apache Kafka {KAFKA}'s lowest is served all the same: clients since 0.8 work.
- A request of an unknown API or version ends its connection, as with Kafka; ApiVersions is answered
  as version 0 with UNSUPPORTED_VERSION.
- When Redis is away the answer is a retriable error and the broker stays up.
"""

_HEADING = re.compile(r"(?P<name>\w+) \(key (?P<key>\d+)\), versions? (?P<versions>\d+(-\d+)?)\. ")


def render() -> str:
    """The page's text."""
    lines = [
        _OPENING,
        "## Served",
        "",
        f"| Key | API | Here | Kafka {KAFKA} | |",
        "|---|---|---|---|---|",
    ]
    lines += [_row(api) for api in TABLE]
    lines += ["", "## Not served", "", f"| Key | API | Kafka {KAFKA} | Why |", "|---|---|---|---|"]
    lines += _missing()
    for api in TABLE:
        lines += ["", f"## {api.name}", "", *_section(api)]
    return "\n".join(lines) + "\n"


def docstring(api: Api) -> str:
    """What the handler's module says about itself."""
    module = sys.modules[api.handler.__module__]
    return inspect.cleandoc(module.__doc__ or "")


def span(lowest: int, highest: int) -> str:
    """`3-7`, or `0` alone."""
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def claims(api: Api) -> tuple[str, int, str]:
    """Name, key and versions, as the handler's first line has them."""
    found = _HEADING.match(docstring(api))
    if found is None:
        raise ValueError(f"{api.handler.__module__}: its first line is no heading")
    return found["name"], int(found["key"]), found["versions"]


def _sentence(api: Api) -> str:
    """What the API does, from the heading."""
    first = docstring(api).split("\n\n")[0].replace("\n", " ")
    return _cell(_HEADING.sub("", first, count=1))


def _row(api: Api) -> str:
    known = CLAIMED.get(api.key)
    theirs = span(*known[1:]) if known else "gone"
    name = f"[{api.name}](#{api.name.lower()})"
    return f"| {api.key} | {name} | {span(*api.versions)} | {theirs} | {_sentence(api)} |"


def _missing() -> Iterator[str]:
    served = {api.key for api in TABLE}
    for key, (name, lowest, highest) in CLAIMED.items():
        if key not in served:
            yield f"| {key} | {name} | {span(lowest, highest)} | {_why(name)} |"


def _why(name: str) -> str:
    return next((why for words, why in _REASONS.items() if re.search(words, name)), "not yet")


def _section(api: Api) -> Iterator[str]:
    """The docstring as Markdown: its words for lists become bold, the rest is Markdown already."""
    yield f"Key {api.key}, versions {span(*api.versions)}. {_sentence(api)}"
    for paragraph in docstring(api).split("\n\n")[1:]:
        if not paragraph.startswith(("Behaviour", "Versions", "Left out")):
            yield ""
        for line in paragraph.split("\n"):
            if line in ("Behaviour", "Versions", "Left out"):
                yield from ("", f"**{line}**", "")
            else:
                yield line


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
