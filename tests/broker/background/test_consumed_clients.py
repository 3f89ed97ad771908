"""Check retention.consumed with real consumers, and the places that name a holding group."""

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from korvet.cli import run
from korvet.testing import Broker
from tests.interop.librdkafka import eventually

COUNT = 200


def read_and_commit(servers: str, group: str, count: int) -> None:
    reader: Any = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    )
    reader.assign([TopicPartition("t", 0, 0)])
    seen = 0
    while seen < count:
        seen += len(reader.consume(count - seen, 1.0))
    reader.commit(offsets=[TopicPartition("t", 0, count)], asynchronous=False)
    reader.close()


def test_the_log_begins_where_the_slowest_group_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(settings={"offset.mode": "dense"}) as broker:
        servers = broker.bootstrap_servers
        configs = {"retention.consumed": "fast,slow", "retention.consumed.delete": "true"}
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(10)
        producer = Producer({"bootstrap.servers": servers})
        for n in range(COUNT):
            producer.produce("t", b"%d" % n)
        assert producer.flush(10) == 0
        read_and_commit(servers, "fast", COUNT)
        read_and_commit(servers, "slow", 50)
        eventually(lambda: broker.log.offsets("t")[0].earliest == 50)
        assert run(["topics", "describe", "t", "-p", "--json", "--redis", broker.redis_url]) == 0
        (part,) = json.loads(capsys.readouterr().out)
        assert (part["held_by"], part["held_records"]) == ("slow", COUNT - 50)
        run(["doctor", "--json", "--redis", broker.redis_url])
        found = {row["subject"]: row["finding"] for row in json.loads(capsys.readouterr().out)}
        assert "group slow holds 150 records of t-0" in found["retention"]
