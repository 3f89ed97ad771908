"""Check `korvet tables` against a real server."""

import json
from collections.abc import Iterator

import pytest
import redis

from korvet import Korvet, Record
from tests.cli.conftest import Lines, lines_of
from tests.support.redis_servers import TestServer


@pytest.fixture
def client(valkey_server: TestServer) -> Iterator[redis.Redis]:
    """A client of the empty server."""
    with valkey_server.client() as made:
        made.flushall()
        yield made


@pytest.fixture
def korvet(
    client: redis.Redis, valkey_server: TestServer, capfd: pytest.CaptureFixture[str]
) -> Lines:
    """Run a command line on a server with a topic; return exit code, lines and stderr."""
    with Korvet(client) as log:
        configs = {"table.enable": "true", "offset.mode": "dense"}
        log.create_topic("stock", 2, configs)
        for number in range(2):
            records = [Record(b"%d" % n, key=b"k%d" % (n % 5)) for n in range(13)]
            log.append("stock", number, [*records, Record(None, key=b"k4"), Record(b"no key")])
    return lines_of(capfd, ("--redis", valkey_server.url))


def test_values_are_printed(korvet: Lines) -> None:
    assert korvet("tables", "get", "stock", "k1", "-p", "1")[:2] == (0, ["11"])
    assert korvet("tables", "get", "stock", "k4")[:2] == (1, [])
    _, lines, _ = korvet("tables", "scan", "stock")
    assert sorted(lines) == sorted(["k0\t10", "k1\t11", "k2\t12", "k3\t8"] * 2)
    _, lines, _ = korvet("tables", "scan", "stock", "-f", "%p %s\\n")
    assert len(lines) == 8 and {line[0] for line in lines} == {"0", "1"}


def test_a_table_is_compared_with_its_log_and_rebuilt(korvet: Lines, client: redis.Redis) -> None:
    _, lines, _ = korvet("tables", "verify", "stock", "--json")
    row = {"equal": 4, "wrong": 0, "not_in_log": 0}
    assert json.loads("\n".join(lines)) == [{"partition": n, **row} for n in range(2)]
    table = "{korvet:stock:0}:table"
    client.hset(table, "k0", "of another program")
    client.hset(table, "k4", "of another program")
    client.hset(table, "other", "of another program")
    client.hdel(table, "k1")
    code, lines, _ = korvet("tables", "verify", "stock", "-p", "0", "--no-header")
    assert (code, lines) == (1, ["0\t2\t3\t1"])
    assert korvet("tables", "rebuild", "stock", "-p", "0")[1] == ["partition 0 has 4 keys"]
    assert korvet("tables", "verify", "stock")[0] == 0
    with Korvet(client) as log:
        log.delete_records("stock", 0, before=12)
    code, lines, _ = korvet("tables", "verify", "stock", "-p", "0", "--no-header")
    assert (code, lines) == (0, ["0\t1\t0\t3"])
    assert korvet("tables", "rebuild", "stock", "-p", "0")[1] == ["partition 0 has 1 keys"]


def test_topics_describe_has_keys_and_memory(korvet: Lines) -> None:
    _, lines, _ = korvet("topics", "describe", "stock", "-p", "--json")
    rows = json.loads("\n".join(lines))
    assert [row["table_keys"] for row in rows] == [4, 4]
    assert all(row["table_bytes"] > 50 for row in rows)


def test_a_topic_without_a_table_is_an_error(korvet: Lines, client: redis.Redis) -> None:
    with Korvet(client) as log:
        log.create_topic("orders", 1)
    code, _, said = korvet("tables", "scan", "orders")
    assert code == 2 and "'orders' has no table" in said
