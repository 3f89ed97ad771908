"""Check Spark, the command line and a broker under the Redis user of `korvet redis-acl`."""

from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from typing import Any

import confluent_kafka
import pytest
import redis

from korvet.cli import run
from korvet.testing import Broker
from tests.support.redis_servers import TestServer

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
PASSWORD = "opensesame"


@pytest.fixture
def url(valkey_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the user that the command has created on an empty Redis."""
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(PASSWORD.encode())))
    with valkey_server.client() as client:
        client.flushall()
        at = ("--redis", valkey_server.url)
        assert run(["redis-acl", "--apply", "--password-stdin", *at]) == 0
        yield valkey_server.url.replace("://", f"://korvet:{PASSWORD}@", 1)
        client.execute_command("ACL", "DELUSER", "korvet")


def test_spark_commands_and_a_broker_share_a_topic_under_the_user(
    spark: Any, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    at = ("--redis", url)
    assert run(["topics", "create", "orders", "--partitions", "1", *at]) == 0
    rows = spark.createDataFrame([(b"k", b"of Spark")], "key binary, value binary")
    options = {"redisUrl": url, "topic": "orders"}
    rows.write.format("korvet").mode("append").options(**options).save()
    with Broker(redis=url) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = confluent_kafka.Producer(servers)
        producer.produce("orders", b"of Kafka")
        assert producer.flush(10) == 0
        del producer
    found = spark.read.format("korvet").option("redisUrl", url).option("subscribe", "orders").load()
    assert [bytes(row.value) for row in found.collect()] == [b"of Spark", b"of Kafka"]
    for command in (["topics", "describe", "orders"], ["groups", "list"], ["users", "list"]):
        assert run([*command, *at]) == 0, capfd.readouterr()
    assert run(["topics", "delete", "orders", *at]) == 0
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()
