"""Check that nothing of a topic is left in Redis after a deletion while groups read it."""

import pytest
import redis
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, send, take
from tests.interop.records import Record

pytestmark = pytest.mark.korvet_only


def test_live_groups_lose_only_the_deleted_topic(native_broker: Broker, own_redis: str) -> None:
    address = native_broker.address
    namespace = native_broker.options[-1]
    gone, kept = create_topic(address, partitions=3), create_topic(address, partitions=3)
    sink = producer(address)
    for name in (gone, kept):
        for partition in range(3):
            send(sink, name, [Record(b"k", b"v")] * 4, partition)
    groups = [topic_name("group") for _ in range(2)]
    members = [consumer(address, group) for group in groups]
    for member in members:
        member.subscribe([gone, kept])
        take(member, 24)
        member.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": address})
    with redis.Redis.from_url(own_redis, protocol=2) as client:
        before = {key.decode() for key in client.keys(f"*{namespace}:*")}
        assert any(f":{gone}:" in key for key in before)
        admin.delete_topics([gone])[gone].result(60)
        after = {key.decode() for key in client.keys(f"*{namespace}:*")}
        assert not [key for key in after if f":{gone}:" in key]
        for group in groups:
            fields = client.hkeys(f"{namespace}:group:{group}:offsets")
            words = [field.decode() for field in fields]
            assert not [word for word in words if gone in word]
            assert len([word for word in words if kept in word]) == 3
            for partition in range(3):
                found = client.xinfo_groups(f"{namespace}:{kept}:{partition}")
                assert group.encode() in [row["name"] for row in found]
    eventually(lambda: gone not in admin.list_topics(timeout=60).topics)
    send(sink, kept, [Record(b"k", b"later")])
    for member in members:
        (later,) = take(member, 1)
        assert (later.topic(), later.value()) == (kept, b"later")
        member.close()
