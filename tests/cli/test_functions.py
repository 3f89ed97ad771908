"""Check `korvet functions` and the functions themselves, on servers and a cluster."""

import json
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import redis
from aiokafka.partitioner import murmur2

from korvet import Korvet, Record
from korvet.cli import run
from korvet.scripts import inlined
from korvet.scripts.keys import Keys
from tests.store.cluster_topology import TestCluster, cluster
from tests.support.redis_servers import TestServer

KEYS = Keys().partition("orders", 0).appends
ONE = ("", "0", 4, "key", "ann", "value", "cup")
LIBRARIES = ("korvet_v1", inlined.steps_name())
Command = Callable[..., tuple[int, str, str]]


def path_of(server: TestServer) -> str:
    """Return the path of the server's socket."""
    return server.url.removeprefix("unix://")


@pytest.fixture
def korvet(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `korvet functions`; return exit code, stdout and stderr."""

    def command(*words: str) -> tuple[int, str, str]:
        code = run(["functions", *words])
        sys.stdout.flush()
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@pytest.fixture
def client(valkey_server: TestServer, korvet: Command) -> Iterator[redis.Redis]:
    """A client of a server with the functions, and the dense topic `orders`."""
    with valkey_server.client() as client, Korvet.connect(valkey_server.url) as log:
        client.flushall()
        client.function_flush()
        log.create_topic("orders", 1, {"offset.mode": "dense"})
        code, out, _ = korvet("load", "--redis", valkey_server.url)
        assert code == 0
        assert out.split() == [
            word for name in LIBRARIES for word in (name, "loaded", "at", path_of(valkey_server))
        ]
        yield client
        client.function_flush()


def test_a_function_appends_records_and_returns_the_first_offset(
    client: redis.Redis, valkey_server: TestServer
) -> None:
    assert client.fcall("korvet_append", 5, *KEYS, *ONE) == 0
    fields = ("value", "plate", "timestamp", "7", "header.a", "1", "null.header.b", "")
    assert client.fcall("korvet_append", 5, *KEYS, *ONE, len(fields), *fields) == 1
    with Korvet.connect(valkey_server.url) as log:
        log.append("orders", 0, [Record(b"after")])
        rows = log.fetch("orders", 0, 0).records
    assert [(row.offset, row.value) for row in rows] == [
        *enumerate([b"cup", b"cup", b"plate", b"after"])
    ]
    assert (rows[2].timestamp_ms, list(rows[2].headers)) == (7, [("a", b"1"), ("b", None)])


def test_a_function_takes_the_time_of_each_call(client: redis.Redis) -> None:
    times = []
    for seconds in range(2):
        client.fcall("korvet_append", 5, *KEYS, "", "1", 2, "value", "x")
        found: Any = client.xrevrange(KEYS[0], count=1)
        times.append(int(found[0][1][b"append.time"]))
        while seconds == 0 and client.time()[0] * 1000 + client.time()[1] // 1000 <= times[0]:
            pass
    assert times[1] > times[0]


def test_a_function_does_what_the_text_does_in_any_order_of_calls(
    client: redis.Redis, valkey_server: TestServer
) -> None:
    random = Random(7)
    topics = [("d", "dense"), ("e", "dense"), ("t", "time")]
    with Korvet.connect(valkey_server.url) as log:
        for name, mode in topics:
            for twin in ("f", "s"):
                log.create_topic(name + twin, 1, {"offset.mode": mode})
    text = inlined.library() + "return korvet.append_fields(KEYS, ARGV)"
    for at in range(60):
        name, _ = random.choice(topics)
        function, script = (Keys().partition(name + twin, 0).appends for twin in ("f", "s"))
        args = ["", "0", *[2, "value", "v" * random.randint(0, 5000)] * random.randint(1, 30)]
        if random.random() < 0.2:
            for stream in (function[0], script[0]):
                client.xadd(stream, {"value": "native"})
        offset = client.fcall("korvet_append", 5, *function, *args)
        twin = client.eval(text, 5, *script, *args)
        assert offset == twin or name == "t", at
    for name, _ in topics:
        function, script = (Keys().partition(name + twin, 0).appends for twin in ("f", "s"))
        values = [[row[b"value"] for _, row in client.xrange(k[0])] for k in (function, script)]
        assert values[0] == values[1]
        fields = ("records", "entries", "bytes", "largest_append")
        assert client.hmget(function[1], fields) == client.hmget(script[1], fields)


@pytest.mark.parametrize(
    ("keys", "args", "sentence"),
    [
        (KEYS, ("f" * 32, "0", 2, "value", "x"), "belongs to a topic with another id"),
        (KEYS, ("", "0", 3, "value", "x"), "argument 3 is not the number of fields"),
        (KEYS, ("", "0"), "there are no records"),
        (KEYS[:4], ONE, r"key 5 of the partition korvet:orders:0 is \{korvet"),
    ],
)
def test_a_refused_append_writes_nothing(
    client: redis.Redis, keys: tuple[str, ...], args: tuple[Any, ...], sentence: str
) -> None:
    before = client.hgetall(KEYS[1])
    with pytest.raises(redis.ResponseError, match=sentence):
        client.fcall("korvet_append", len(keys), *keys, *args)
    assert (client.hgetall(KEYS[1]), client.xlen(KEYS[0])) == (before, 0)


def test_in_multi_the_function_is_called_with_own_writes(client: redis.Redis) -> None:
    client.script_flush()
    pipe = client.pipeline()
    pipe.fcall("korvet_append", 5, *KEYS, *ONE)
    pipe.hset("{korvet:orders:0}:stock", "ann", "1")
    assert pipe.execute() == [0, 1]


def test_the_partition_of_a_key_is_that_of_kafkas_clients(client: redis.Redis) -> None:
    expected = (murmur2(b"ann") & 0x7FFFFFFF) % 12
    assert client.fcall_ro("korvet_partition_of", 0, "ann", "12") == expected


def test_versions_are_listed_and_deleted_side_by_side(
    client: redis.Redis, valkey_server: TestServer, korvet: Command
) -> None:
    at = ["--redis", valkey_server.url]
    later = "#!lua name=korvet_v2\nredis.register_function('korvet_append_v2', function() end)"
    client.function_load(later)
    client.function_load("#!lua name=mine\nredis.register_function('mine', function() end)")
    code, out, _ = korvet("list", "--json", *at)
    rows = {row.pop("library"): row for row in json.loads(out)}
    assert code == 0 and rows.keys() == {*LIBRARIES, "korvet_v2"}
    assert rows[LIBRARIES[1]]["state"] == "current"
    functions = "korvet_acknowledge korvet_append korvet_commit korvet_partition_of"
    assert rows["korvet_v1"] == {
        "server": path_of(valkey_server),
        "state": "current",
        "functions": functions,
    }
    assert rows["korvet_v2"]["state"] == "other"
    assert korvet("delete", *at)[0] == 0
    assert client.fcall("korvet_append_v2", 0) is None
    code, out, _ = korvet("list", "--no-header", *at)
    assert "korvet_v1\tmissing\t" in out and "korvet_v2\tother\tkorvet_append_v2" in out
    assert korvet("delete", "korvet_v2", *at)[0] == 0
    assert korvet("delete", *at)[2] == f"korvet: There is no library {' or '.join(LIBRARIES)}.\n"
    assert "'mine' is no library of Korvet" in korvet("delete", "mine", *at)[2]


def test_the_text_for_function_load_is_shown(client: redis.Redis, korvet: Command) -> None:
    for name in LIBRARIES:
        code, out, _ = korvet("show", name)
        assert code == 0 and client.function_load(out, replace=True) == name.encode()
    assert korvet("show")[1] == inlined.functions()
    assert "this Korvet has korvet_v1 and" in korvet("show", "mine")[2]


def test_another_text_of_the_version_is_replaced(
    client: redis.Redis, valkey_server: TestServer, korvet: Command
) -> None:
    client.function_load(inlined.functions().replace(inlined.checksum(), "0" * 40), replace=True)
    assert "\tother\t" in korvet("list", "--redis", valkey_server.url)[1]
    korvet("load", "--redis", valkey_server.url)
    assert "\tcurrent\t" in korvet("list", "--redis", valkey_server.url)[1]


def test_a_redis_without_functions_is_said(redis62_server: TestServer, korvet: Command) -> None:
    for command in ("load", "list", "delete"):
        code, out, err = korvet(command, "--redis", redis62_server.url)
        assert (code, out) == (2, "")
        assert err.startswith("korvet: This Redis has no functions: they need Redis 7.0 or Valkey.")


@pytest.fixture(scope="module")
def nodes() -> Iterator[TestCluster]:
    """Three masters, one with a replica."""
    with cluster() as running:
        yield running


def test_every_master_of_a_cluster_gets_the_functions(nodes: TestCluster, korvet: Command) -> None:
    code, out, _ = korvet("load", "--redis", nodes.url)
    assert code == 0 and out.count("korvet_v1 loaded at ") == 3
    assert korvet("list", "--redis", nodes.url)[1].count("\tcurrent\t") == 6
    with Korvet.connect(nodes.url) as log:
        log.create_topic("orders", 6, {"offset.mode": "dense"})
        for number in range(6):
            keys = Keys().partition("orders", number).appends
            client = nodes.client(nodes.owner(keys[0]))
            assert client.fcall("korvet_append", 5, *keys, *ONE) == 0
            assert len(log.fetch("orders", number, 0).records) == 1
    with pytest.raises(redis.ResponseError, match="same slot"):
        client.fcall("korvet_append", 6, *keys, "stock", *ONE)
    assert korvet("delete", "--redis", nodes.url)[1].count("deleted at") == 6


def test_the_function_leaves_out_a_record_whose_id_is_known(
    client: redis.Redis, valkey_server: TestServer
) -> None:
    with Korvet.connect(valkey_server.url) as log:
        log.create_topic("once", 1, {"offset.mode": "dense", "dedupe.window.ms": "60000"})
    place = Keys().partition("once", 0)
    args = ("", "0", 4, "value", "x", "header.korvet-dedupe-id", "a")
    with pytest.raises(redis.ResponseError, match=r"key 6 of .* is \{korvet:once:0\}:dedupe"):
        client.fcall("korvet_append", 5, *place.appends, *args)
    keys = (*place.appends, place.dedupe, place.dedupe_old)
    assert [client.fcall("korvet_append", 7, *keys, *args) for _ in range(2)] == [0, 0]
    more = ("", "0", 2, "value", "y", *args[2:])
    assert client.fcall("korvet_append", 7, *keys, *more) == -1
    long = (*args[:-1], "a" * 129)
    with pytest.raises(redis.ResponseError, match="a korvet-dedupe-id has more than 128 bytes"):
        client.fcall("korvet_append", 7, *keys, *long)
    assert client.xlen(place.stream) == 2


def test_the_function_keeps_the_table(client: redis.Redis, valkey_server: TestServer) -> None:
    with Korvet.connect(valkey_server.url) as log:
        log.create_topic("stock", 1, {"table.enable": "true"})
    place = Keys().partition("stock", 0)
    args = ("", "0", 4, "key", "cups", "value", "3")
    keys = (*place.appends, place.dedupe, place.dedupe_old)
    with pytest.raises(redis.ResponseError, match=r"key 8 of .* is \{korvet:stock:0\}:table"):
        client.fcall("korvet_append", 7, *keys, *args)
    client.fcall("korvet_append", 9, *keys, place.table, place.table_newer, *args)
    assert client.hgetall(place.table) == {b"cups": b"3"}
