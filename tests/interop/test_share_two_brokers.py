"""A share group at two brokers on one Redis: one is killed, and its members continue."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import eventually, producer, send
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally, configure_group
from tests.support.raw_client import Peer
from tests.support.redis_servers import server

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]
RECORDS = 200


def described(address: str, group: str) -> Any:
    """Return the group as that broker describes it."""
    asked = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    with Peer(address) as peer:
        return peer.ask("ShareGroupDescribe", 1, asked).groups[0]


def test_members_of_a_killed_broker_continue_in_the_same_epoch(tmp_path: Path) -> None:
    with server("valkey") as redis, ExitStack() as stack:
        brokers = [
            Broker(tmp_path / node, {}, ("--redis", redis.url, "--node-id", node))
            for node in ("1", "2")
        ]
        for broker in brokers:
            stack.callback(broker.close)
            broker.start()
        address = ",".join(broker.address for broker in brokers)
        topic, group, tally = create_topic(address, 2), topic_name("share"), Tally()
        configure_group(address, group)
        sink = producer(address)
        members = [ShareMember(address, group, topic, tally) for _ in range(3)]
        eventually(lambda: len(described(brokers[0].address, group).members) == 3)
        for number in range(RECORDS):
            send(sink, topic, [Record(None, b"%d" % number)], number % 2)
        eventually(lambda: len(tally.accepted) == RECORDS)
        before = described(brokers[1].address, group)
        brokers[0].kill()
        for number in range(RECORDS, 2 * RECORDS):
            send(sink, topic, [Record(None, b"%d" % number)], number % 2)
        eventually(lambda: len(tally.accepted | tally.unsure) == 2 * RECORDS)
        after = described(brokers[1].address, group)
        assert (after.group_state, after.group_epoch) == ("Stable", before.group_epoch)
        assert {row.member_id for row in after.members} == {row.member_id for row in before.members}
        for member in members:
            member.stop()
        assert tally.again == []
        assert "Traceback" not in brokers[1].log
