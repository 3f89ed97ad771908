"""Check the Lua text that users put in front of their scripts, under lupa and on servers."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis
from aiokafka.partitioner import murmur2

from korvet import Korvet, Record
from korvet.scripts import bundle, inlined
from korvet.scripts.bundle import blank_comments
from korvet.scripts.keys import Keys
from korvet.testing import Broker, LuaRunner, ScriptError
from tests.interop.kafka_python import KafkaConsumer, TopicPartition
from tests.support.pages import run_by
from tests.support.redis_servers import TestServer, binary

KEYS = Keys()
ORDERS = KEYS.partition("orders", 0)
STOCK = "{korvet:orders:0}:stock"
ID = "a" * 32
PAGE = "docs/scripts/in-your-scripts.md"
TAKE = """
local offset = korvet.append(KEYS, ARGV[1], { { key = ARGV[2], value = ARGV[3] } })
redis.call("HINCRBY", KEYS[6], ARGV[2], -1)
return offset
"""
RECORDS = """
return korvet.append(KEYS, "", {
  { key = "a", value = "one", timestamp = 5, headers = { b = "2", a = "1" } },
  { value = "two", timestamp = "7", headers = { { "x", "1" }, { "x", "2" }, { "gone" } } },
  { key = "a", timestamp = 9 },
})
"""
REFUSED = {
    "keys are the list": "korvet.append('k', '', {})",
    "key 3 of the partition korvet:orders:0 is {korvet:orders:0}:index": (
        "korvet.append({ KEYS[1], KEYS[2], KEYS[4] }, '', {})"
    ),
    "belongs to a topic with another id": "korvet.append(KEYS, string.rep('f', 32), {})",
    "there are no records": "korvet.append(KEYS, '', {})",
    "record 1 is a string, not a table": "korvet.append(KEYS, '', { 'value' })",
    "record 1 has the unknown field vlaue": "korvet.append(KEYS, '', { { vlaue = 'x' } })",
    "value of record 2 is a number, not a string": (
        "korvet.append(KEYS, '', { { value = 'x' }, { value = 1 } })"
    ),
    "timestamp of record 1 is not a number of ms": (
        "korvet.append(KEYS, '', { { value = 'x', timestamp = 1.5 } })"
    ),
    "headers of record 1 are a string": "korvet.append(KEYS, '', { { headers = 'x' } })",
    "a header's name of record 1 is a nil": "korvet.append(KEYS, '', { { headers = { 'x' } } })",
    "argument 3 is not the number": "korvet.append_fields(KEYS, { '', '0', '4', 'value', 'x' })",
    "record 1 has the unknown field v": "korvet.append_fields(KEYS, { '', '0', '2', 'v', 'x' })",
    "record 1 has key twice": (
        "korvet.append_fields(KEYS, { '', '0', '4', 'key', 'x', 'key', 'y' })"
    ),
    "partition_of takes a key": "korvet.partition_of('a', 0)",
}


def test_a_script_with_the_library_runs_in_the_lua_runner(tmp_path: Path) -> None:
    (tmp_path / "take.lua").write_text(TAKE)
    runner = LuaRunner()
    topic_id = runner.create_topic("orders", mode="dense")
    keys = [*ORDERS.appends, STOCK]
    for offset in range(2):
        reply = runner.eval(tmp_path / "take.lua", keys, [topic_id, "ann", "cup"], library=True)
        assert reply == offset
    assert runner.command("HGET", STOCK, "ann") == b"-2"
    assert runner.command("XLEN", ORDERS.stream) == 2


@pytest.mark.parametrize(("sentence", "line"), REFUSED.items())
def test_what_is_refused_is_said_and_writes_nothing(
    tmp_path: Path, sentence: str, line: str
) -> None:
    script = tmp_path / "refused.lua"
    script.write_text(f"{line}\nredis.call('SET', KEYS[6], 'x')")
    runner = LuaRunner()
    runner.create_topic("orders")
    before = runner.command("HGETALL", ORDERS.log)
    with pytest.raises(ScriptError) as caught:
        runner.eval(script, [*ORDERS.appends, STOCK], library=True)
    assert sentence in str(caught.value)
    assert runner.command("HGETALL", ORDERS.log) == before
    assert runner.command("EXISTS", STOCK, ORDERS.stream) == 0


def test_a_check_writes_nothing_and_raises_what_append_raises(tmp_path: Path) -> None:
    script = tmp_path / "check.lua"
    script.write_text("return korvet.check(KEYS, '', { { value = ARGV[1] } })")
    runner = LuaRunner()
    with pytest.raises(ScriptError, match=r"there is no partition korvet:orders:0: create"):
        runner.eval(script, ORDERS.appends, ["x"], library=True)
    runner.create_topic("orders")
    assert runner.eval(script, ORDERS.appends, ["x"], library=True) is None
    assert runner.command("XLEN", ORDERS.stream) == 0


def test_a_script_appends_a_record_that_expects_an_offset_or_stops(tmp_path: Path) -> None:
    script = tmp_path / "expect.lua"
    record = "{ { key = 'a', value = 'x', headers = { ['korvet-expected-offset'] = ARGV[2] } } }"
    script.write_text(f"return korvet[ARGV[1]](KEYS, '', {record})")
    runner = LuaRunner()
    runner.create_topic("orders", mode="dense")
    keys = [*ORDERS.appends, ORDERS.dedupe, ORDERS.dedupe_old, ORDERS.table, ORDERS.table_newer]
    with pytest.raises(ScriptError, match=r"korvet:orders:0 has no offsets of keys: set the"):
        runner.eval(script, keys[:5], ["append", "-1"], library=True)
    topic = KEYS.partition(
        "orders", 0, str(runner.command("HGET", ORDERS.log, "topic_id"), "ascii")
    )
    runner.run(topic.set_table(action="offsets"))
    assert runner.eval(script, keys, ["check", "-1"], library=True) is None
    assert runner.eval(script, keys, ["append", "-1"], library=True) == 0
    for name in ("check", "append"):
        with pytest.raises(ScriptError, match="newest record of a key in korvet:orders:0 has the"):
            runner.eval(script, keys, [name, "-1"], library=True)
        with pytest.raises(ScriptError, match="a korvet-expected-offset is no integer"):
            runner.eval(script, keys, [name, "one"], library=True)
    assert runner.eval(script, keys, ["append", "0"], library=True) == 1


def test_partitions_are_those_of_kafkas_clients(tmp_path: Path) -> None:
    script = tmp_path / "partition.lua"
    script.write_text("return korvet.partition_of(ARGV[1], ARGV[2])")
    random, runner = Random(1), LuaRunner()
    for size in [*range(30), 200]:
        key, count = random.randbytes(size), random.randint(1, 1000)
        expected = (murmur2(key) & 0x7FFFFFFF) % count
        assert runner.eval(script, args=[key, count], library=True) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["m1", "1"], ""),
        (["m1", "1", "korvet:orders:0", "-1", "5", ID, "note"], ""),
        (["m1", "1", "korvet:orders:0", "", "5", ID, ""], ""),
        (["m2", "1"], "member m2 of epoch 1 is not in the group"),
        (["m1", "2"], "does not own all partitions since that epoch"),
        (["m1", "1", "korvet:orders:1", "-1", "5", ID, ""], "does not own all partitions"),
        (
            ["m1", "1", "korvet:orders:0", "4", "5", ID, ""],
            "did not begin at the committed offsets",
        ),
        (["m1"], "a commit has member id, member epoch, and five strings"),
        (["m1", "1", "korvet:orders:0"], "a commit has member id, member epoch, and five strings"),
        (["m1", "one"], "the member epoch is not a number"),
        (["m1", "1", "korvet:orders", "", "5", ID, ""], "arguments 3 to 7 are no commit"),
        (["m1", "1", "korvet:orders:0", "", "-5", ID, ""], "arguments 3 to 7 are no commit"),
        (["m1", "1", "korvet:orders:0", "", "5", "id", ""], "arguments 3 to 7 are no commit"),
    ],
)
def test_a_script_commits_or_stops_before_its_own_writes(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    script = tmp_path / "add.lua"
    script.write_text("korvet.commit(KEYS, ARGV) redis.call('INCR', KEYS[4])")
    runner, group = LuaRunner(), KEYS.group("totals")
    runner.command("HSET", group.consumer_members, "m1", "1 0 1 45000 45000 0 ")
    runner.command("HSET", group.partition_owners, f"{ID}:0", "1 m1")
    keys = [group.consumer_members, group.partition_owners, group.offsets, "sum"]
    if sentence:
        with pytest.raises(ScriptError, match=sentence):
            runner.eval(script, keys, words, library=True)
        assert runner.command("EXISTS", "sum", group.offsets) == 0
        return
    runner.eval(script, keys, words, library=True)
    assert runner.command("GET", "sum") == b"1"
    assert runner.command("HLEN", group.offsets) == int(len(words) > 2)
    with pytest.raises(ScriptError, match=r"key 1 of the commit is \{sum\}:consumer"):
        runner.eval(script, [*keys[:2], "sum"], words, library=True)


def test_the_first_line_has_version_and_checksum() -> None:
    for text in (inlined.library(), inlined.functions()):
        assert inlined.checksum_in(text) == inlined.checksum()
    assert inlined.checksum_in("-- mine") is None


def test_of_the_libraries_in_functions_only_the_clock_keeps_a_value_between_calls() -> None:
    texts = "".join(inlined.texts().values())
    used = set(re.findall(r'(?:loaders|modules)\["lib\.(\w+)"\] =', texts))
    assert {"append", "clock", "numbering", "schedule", "columnar_entries"} <= used
    keeping = {name for name in {*used, "korvet"} if kept_by(bundle.source(f"lib.{name}"))}
    assert keeping == {"clock"}


def kept_by(source: str) -> list[str]:
    """Return the locals of a library that its functions set."""
    code = blank_comments(source)
    found = re.findall(r"^local ([\w, ]+?)(?: =.*)?$", code, re.MULTILINE)
    names = [name for row in found for name in row.split(", ")]
    inner = re.sub(r"^ +local .*$", "", code, flags=re.MULTILINE)
    return [
        name for name in names if re.search(rf"^ +{name}(?:\[[^\]]*\])? =[^=]", inner, re.MULTILINE)
    ]


def test_the_numbers_of_a_users_lines_are_moved_by_the_header_alone() -> None:
    lines = inlined.library().split("\n")
    assert lines[-1] == "" and [line[:2] for line in lines[:-2]] == ["--"] * (len(lines) - 2)


@pytest.fixture
def client(redis_server: TestServer) -> Any:
    """A client of each server, on which the topic `orders` is dense and `events` is not."""
    with redis_server.client() as client, Korvet.connect(redis_server.url) as log:
        log.create_topic("orders", 1, {"offset.mode": "dense"})
        log.create_topic("events", 1, {"offset.mode": "time"})
        log.create_topic("batches", 1, {"storage.format": "batch"})
        yield client


def run(client: redis.Redis, text: str, topic: str, *args: str) -> Any:
    keys = KEYS.partition(topic, 0).appends
    return client.eval(inlined.library() + text, 6, *keys, f"{{{keys[0]}}}:stock", *args)


def test_records_and_own_keys_are_written_in_one_step(
    client: redis.Redis, redis_server: TestServer
) -> None:
    assert run(client, TAKE, "orders", "", "ann", "cup") == 0
    assert run(client, RECORDS, "orders") == 1
    first = run(client, TAKE, "events", "", "ann", "cup")
    assert run(client, TAKE, "events", "", "ann", "cup") > first >> 10 << 10 > 0
    assert client.hget(STOCK, "ann") == b"-1"
    with Korvet.connect(redis_server.url) as log:
        log.append("orders", 0, [Record(b"after")])
        rows = log.fetch("orders", 0, 1).records
        assert [(r.offset, r.key, r.value) for r in rows] == [
            (1, b"a", b"one"),
            (2, None, b"two"),
            (3, b"a", None),
            (4, None, b"after"),
        ]
        assert [r.timestamp_ms for r in rows[:3]] == [5, 7, 9]
        assert list(rows[0].headers) == [("a", b"1"), ("b", b"2")]
        assert list(rows[1].headers) == [("x", b"1"), ("x", b"2"), ("gone", None)]
        assert len(log.fetch("events", 0, 0).records) == 2


def test_a_refusal_stops_the_script_before_its_own_writes(client: redis.Redis) -> None:
    for topic, topic_id, sentence in (
        ("orders", "f" * 32, "korvet:orders:0 belongs to a topic with another id"),
        ("batches", "", "korvet:batches:0 has not the layout record"),
        ("nothing", "", "there is no partition korvet:nothing:0: create its topic"),
    ):
        with pytest.raises(redis.ResponseError, match=sentence):
            run(client, TAKE, topic, topic_id, "ann", "cup")
        stream = KEYS.partition(topic, 0).stream
        assert (client.xlen(stream), client.exists(f"{{{stream}}}:stock")) == (0, 0)


def test_a_waiting_fetch_of_a_consumer_ends_with_the_append(
    valkey_server: TestServer,
) -> None:
    with (
        valkey_server.client() as client,
        Broker(topics={"clicks": 1}, redis=valkey_server.url) as broker,
    ):
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20_000,
        )
        consumer.assign([TopicPartition("clicks", 0)])
        assert consumer.poll(timeout_ms=200) == {}
        run(client, TAKE, "clicks", "", "ann", "cup")
        [[record]] = consumer.poll(timeout_ms=10_000).values()
        assert (record.key, record.value) == (b"ann", b"cup")
        consumer.close()


def test_entries_of_xadd_keep_their_places_before_a_scripts_records(
    client: redis.Redis, redis_server: TestServer
) -> None:
    client.xadd("korvet:events:0", {"value": "native"})
    run(client, TAKE, "events", "", "ann", "cup")
    with Korvet.connect(redis_server.url) as log:
        assert [r.value for r in log.fetch("events", 0, 0).records] == [b"native", b"cup"]


def examples(language: str) -> list[str]:
    """Return the page's examples in a language."""
    return [block.code for block in run_by(__file__, PAGE, language)]


def cli() -> str:
    """Return the path of redis-cli."""
    return shutil.which("redis-cli") or str(Path(binary("redis62") or "").parent / "redis-cli")


def test_the_examples_with_redis_cli_run_as_printed(
    client: redis.Redis, redis_server: TestServer, tmp_path: Path
) -> None:
    (tmp_path / "take.lua").write_text(examples("lua")[0])
    for name, words in {
        "korvet": f"{shlex.quote(sys.executable)} -m korvet",
        "redis-cli": f"{cli()} -s {redis_server.url.removeprefix('unix://')}",
    }.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (tmp_path / name).chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script, functions = examples("sh")
    if redis_server.kind == "redis62":
        functions = ""  # It has none.
    functions = functions.replace("redis://localhost:6379", redis_server.url)
    outputs = []
    for text in (script, functions):
        command = ["sh", "-euc", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=path, capture_output=True, text=True, check=True, timeout=60
        )
        outputs.append(done.stdout.split("\n"))
    assert outputs[0] == ["1", "0", ""]
    stock = b"1"
    if functions:
        assert outputs[1][-3:] == ["1", "0", ""]
        stock = b"0"
    assert client.hget(STOCK, "cup") == stock


def test_the_example_of_the_lua_runner_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "take.lua").write_text(examples("lua")[0])
    monkeypatch.chdir(tmp_path)
    exec(compile(examples("python")[2], "in-your-scripts.md", "exec"), {})


def test_the_examples_of_a_commit_and_an_acknowledgement_run(
    client: redis.Redis, redis_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = inlined.library() + examples("lua")[1]
    (tmp_path / "whole.lua").write_text(add)
    (tmp_path / "shared.lua").write_text(add.replace("\nkorvet.commit(", "\nkorvet.acknowledge("))
    monkeypatch.chdir(tmp_path)
    with Korvet.connect(redis_server.url) as log:
        log.create_topic("amounts", 2)
        log.produce("amounts", [Record(b"%d" % n) for n in range(10)])
    names: dict[str, object] = {}
    for code, total in zip(examples("python")[:2], (b"45", b"90"), strict=True):
        text = code.replace("redis://localhost:6379", redis_server.url)
        exec(compile(text, "in-your-scripts.md", "exec"), names)
        assert client.get("sum") == total
