"""Order by key with real clients: eight members, hot keys, released records, a killed broker."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import AcknowledgeType, Message

from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import eventually, producer, send
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally, configure_group
from tests.support.raw_client import Peer

pytestmark = pytest.mark.korvet_only
MEMBERS, KEYS, RECORDS = 8, 20, 1200
SETTINGS = {
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}


class Ordered(Tally):
    """A tally of deliveries that came before the acknowledgement of the key's previous record."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[bytes, int] = {}
        """The last record of each key whose acceptance was sent."""
        self.early: list[tuple[bytes, int]] = []

    def give(self, message: Message) -> None:
        key, number = (message.value() or b"").split(b":")
        with self.lock:
            if int(number) > self.done.get(key, -1) + 1:
                self.early.append((key, int(number)))
        super().give(message)


class Worker:
    """The choices of one member: ACCEPT, but RELEASE for some records at their first delivery."""

    def __init__(self, tally: Ordered) -> None:
        self._tally = tally
        self.accepted: Counter[bytes] = Counter()

    def choose(self, message: Message) -> AcknowledgeType:
        value = message.value() or b""
        key, number = value.split(b":")
        if int(number) % 10 == 7 and self._tally.delivered[value] == 1:
            return AcknowledgeType.RELEASE
        self.accepted[key] += 1
        # The calling thread sends the acknowledgement at once.
        with self._tally.lock:
            self._tally.done[key] = max(self._tally.done.get(key, -1), int(number))
        return AcknowledgeType.ACCEPT


def assigned(address: str, group: str) -> int:
    """Return the number of members that have partitions."""
    asked = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    with Peer(address) as peer:
        members = peer.ask("ShareGroupDescribe", 1, asked).groups[0].members
    return sum(1 for member in members if member.assignment.topic_partitions)


@pytest.mark.parametrize("form", ["batch", "record"])
@pytest.mark.parametrize(
    "kills", [pytest.param(False, id=""), pytest.param(True, id="killed", marks=pytest.mark.slow)]
)
def test_many_hot_keys_keep_their_order_and_no_member_starves(
    tmp_path: Path, form: str, kills: bool
) -> None:
    with Broker(tmp_path, SETTINGS) as broker:
        address, group, tally = broker.address, topic_name("share"), Ordered()
        topic = create_topic(address, 2, storage_format=form)
        configure_group(address, group, share_order="key")
        workers = [Worker(tally) for _ in range(MEMBERS)]
        place = (address, group, topic, tally)
        members = [ShareMember(*place, worker.choose, max_poll_records="10") for worker in workers]
        eventually(lambda: assigned(address, group) == MEMBERS)
        time.sleep(1)  # a member gets its assignment with its next heartbeat
        random, numbers, sink = Random(1), Counter[int](), producer(address)
        for _ in range(RECORDS // 20):
            for partition in (0, 1):
                # Some keys are hotter than others; a key has one partition.
                keys = [min(random.randrange(KEYS), random.randrange(KEYS)) for _ in range(10)]
                batch = []
                for key in (key // 2 * 2 + partition for key in keys):
                    batch.append(Record(b"%d" % key, b"%d:%d" % (key, numbers[key])))
                    numbers[key] += 1
                send(sink, topic, batch, partition)
        if kills:
            eventually(lambda: len(tally.accepted) > RECORDS // 4)
            broker.kill()
            broker.start()
        eventually(lambda: len(tally.accepted | tally.unsure) == RECORDS)
        for member in members:
            member.stop()
        assert tally.again == tally.early == []
        if not kills:
            assert set(tally.delivered.values()) == {1, 2}
            shares = [sum(worker.accepted.values()) for worker in workers]
            assert min(shares) > RECORDS // MEMBERS // 10, shares
        assert "Traceback" not in broker.log
