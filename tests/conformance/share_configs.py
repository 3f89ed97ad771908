"""Record the configs of share groups of an Apache Kafka in share_configs.json.

    python -m tests.conformance.share_configs HOST:PORT NODE_ID

It needs a Kafka 4.4 with its default configs. Kafka 4.3 has the same ones without dead letters.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from korvet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tests.support.raw_client import Peer

RECORDED = Path(__file__).with_name("share_configs.json")
DEAD_LETTERS = "errors.deadletterqueue."
VERSION = 4
BROKER, GROUP = 4, 32

Found = dict[str, dict[str, list[Any]]]
"""Broker or group to the names of its configs to their value and type."""


def asking(node: str) -> DescribeConfigsRequest:
    """Return a request for all configs of a broker and of a group without its own configs."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in ((BROKER, node), (GROUP, "a-group"))
        ]
    )


def listed(answer: Any) -> Found:
    """Return the configs of share groups in the response."""
    is_named: dict[str, Callable[[str], bool]] = {
        "broker": lambda name: name.startswith(("group.share.", DEAD_LETTERS)),
        "group": lambda name: name.startswith(("share.", DEAD_LETTERS)),
    }
    found: Found = {}
    for kind, result in zip(is_named, answer.results, strict=True):
        rows: list[DescribeConfigsResourceResult] = result.configs
        found[kind] = {
            row.name: [row.value, row.config_type]
            for row in sorted(rows, key=lambda row: row.name)
            if is_named[kind](row.name)
        }
    return found


def read() -> Found:
    """Return the recorded configs."""
    return msgspec.json.decode(RECORDED.read_bytes(), type=Found)


if __name__ == "__main__":
    with Peer(sys.argv[1]) as peer:
        answer = peer.ask("DescribeConfigs", VERSION, asking(sys.argv[2]))
    text = msgspec.json.format(msgspec.json.encode(listed(answer)), indent=1)
    RECORDED.write_text(text.decode() + "\n")
