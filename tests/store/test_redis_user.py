"""Check the Redis user that `korvet redis-acl` creates, on every kind of server."""

import re
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer

from korvet import Korvet, Record
from korvet.cli import run
from korvet.store.redis_user import needed, rules
from korvet.testing import Broker
from tests.support.redis_servers import TestServer

LUA = Path(__file__).parents[2] / "lua"


def test_the_user_may_call_every_command_of_the_scripts() -> None:
    permitted = {name.partition("|")[0] for name in needed("korvet")}
    called: set[str] = set()
    for file in LUA.rglob("*.lua"):
        called |= set(re.findall(r'redis\.p?call\("([A-Z]+)"', file.read_text(encoding="utf-8")))
    assert len(called) > 30
    assert {name.lower() for name in called} <= permitted


def test_a_rule_has_no_password_in_it() -> None:
    text = " ".join(rules("korvet", "opensesame", waitaof=False))
    assert "opensesame" not in text and " #" in text


def test_a_broker_and_a_client_work_under_the_user(redis_server: TestServer) -> None:
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "least", *rules("korvet", "pw", waitaof=False))
    url = redis_server.url.replace("://", "://least:pw@", 1)
    with Broker(topics={"orders": 1}, redis=url) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(servers)
        producer.produce("orders", b"paid")
        assert producer.flush(10) == 0
        consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        record = consumer.poll(10)
        assert record is not None and record.value() == b"paid"
        consumer.commit(record, asynchronous=False)
        consumer.close()
        assert broker.log.committed("g")
        broker.log.delete_topic("orders")
    with redis_server.client() as client:
        client.execute_command("AUTH", "least", "pw")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("FLUSHALL")


def test_tables_are_read_under_the_user(redis_server: TestServer) -> None:
    with redis_server.client() as client:
        client.flushall()
        client.execute_command("ACL", "SETUSER", "least", *rules("korvet", "pw", waitaof=False))
        with Korvet.connect(redis_server.url.replace("://", "://least:pw@", 1)) as log:
            log.create_topic("stock", 1, {"table.enable": "true"})
            client.xadd("korvet:stock:0", {"key": "cups", "value": "3"})
            log.produce("stock", [Record(b"5", key=b"forks"), Record(b"4", key=b"cups")])
            stock = log.table("stock")
            assert (stock.get(b"cups"), stock.count()) == (b"4", 2)
            assert dict(stock.items()) == {b"cups": b"4", b"forks": b"5"}
    url = redis_server.url.replace("://", "://least:pw@", 1)
    for words in (["tables", "verify", "stock"], ["topics", "describe", "stock", "-p"]):
        assert run([*words, "--redis", url]) == 0
