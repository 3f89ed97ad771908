"""Check the commands, each against a real server."""

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import redis

from korvet.broker.ops.checks import losses, vulnerable
from korvet.cli import run
from korvet.cluster.registration import Endpoint, LiveBroker
from korvet.config.dynamic import encode_configs
from korvet.embedded_redis.server import RedisServer
from korvet.scripts import bundle
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from tests.support.raw_client import until
from tests.support.redis_servers import TestServer, server

Korvet = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder: no command finds a server that the test did not name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)


@pytest.fixture
def korvet(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Korvet:
    """Run a command line; return its exit code, stdout and stderr."""

    def command(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        with given(stdin) as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = run(arguments)
        sys.stdout.flush()
        said = capfdbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    return command


@contextmanager
def given(content: bytes) -> Iterator[io.TextIOWrapper]:
    """Open a pipe with those bytes, as stdin."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as end:
        end.write(content)
    with os.fdopen(reading, "r") as file:
        yield file  # type: ignore[misc]


REFUSED = [
    (("--bogus",), "No such option: --bogus"),
    (("bogus",), "No such command 'bogus'; see `korvet --help`."),
    (("topics",), "Missing command; see `korvet topics --help`."),
    (("topics", "delete"), "Missing argument 'TOPIC...'; see `korvet topics delete --help`"),
    (("--listen", "9092"), "--listen must be HOST:PORT"),
    (("--set", "num.partitons=1"), "did you mean num.partitions?"),
    (("--config", "no-such.toml"), "--config no-such.toml: No such file or directory."),
    (("--config", ""), "--config .: Is a directory."),
    (("--data-dir", ""), "--data-dir must not be empty."),
    (("--redis", "localhost"), "--redis must be a URL such as redis://localhost:6379"),
    (("--listen", "h:1", "topics", "list"), "--listen is an option of the broker: `korvet topics`"),
    (("--redis-server", "no-such"), "--redis-server no-such: there is no such program."),
    (("check", "--set", "a=b"), "Unknown setting 'a'"),
    (("check", "--set", "log.retention.ms=7w"), "not '7w'"),
    (("serve", "--redis-server", "no-such"), "--redis-server no-such: there is no such program."),
    (("--redis-server", "no-such", "serve"), "--redis-server no-such: there is no such program."),
    (("serve", "--listen", "9092"), "--listen must be HOST:PORT"),
    (("serve", "--from"), "Option '--from' requires an argument"),
    (("topics", "create", "t", "--namespace", "a{b}"), "--namespace may hold letters"),
    (("consume", "t", "--namespace", "a:b"), "--namespace may hold letters"),
    (("doctor",), "There is no Korvet data in"),
    (("doctor", "--redis", "redis://127.0.0.1:1"), "start it, or give another --redis URL."),
    (("doctor", "--redis", "nonsense"), "redis+sentinel://HOST:PORT/MASTER"),
    (("doctor", "--redis", "redis://h?ssl_ca=/a.pem"), "unknown option 'ssl_ca' (known: ssl_ca_"),
    (("scripts", "show", "log.nothing"), "there is no script 'log.nothing'"),
    (
        ("produce", "orders", "--format", "xml"),
        "--format must be text, json or a format with codes such as %k",
    ),
    (
        ("consume", "orders", "--from", "noon"),
        "--from: 'noon' is no position: earliest, latest, an offset",
    ),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_a_failure_is_one_sentence_and_exit_code_2(
    korvet: Korvet, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = korvet(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("korvet: ") and err.count("\n") == 1
    assert sentence in err


def test_the_version_is_printed(korvet: Korvet) -> None:
    assert korvet("--version") == (0, "korvet 0.1.0\n", "")


def test_every_command_has_help(korvet: Korvet) -> None:
    for command in ((), ("scripts",), ("topics",), ("produce",), ("consume",), ("doctor",)):
        code, out, _ = korvet(*command, "--help")
        assert code == 0 and "Usage: korvet" in out
        assert korvet(*command, "-h") == (0, out, "")


def test_scripts_are_listed_and_shown_as_redis_gets_them(korvet: Korvet) -> None:
    code, out, _ = korvet("scripts", "list")
    header, *lines = out.splitlines()
    assert header == "name\tversion\tsha1\tmode\tdescription"
    rows = {row.split("\t")[0]: row.split("\t") for row in lines}
    append = bundle.load("log.append")
    assert code == 0 and sorted(rows) == bundle.names()
    assert rows["log.append"][1:4] == [str(append.version), append.sha1, "writes"]
    assert korvet("scripts", "show", "log.append") == (0, append.text, "")
    code, out, _ = korvet("scripts", "show", "log.append", "--contract")
    assert code == 0
    first, *rest = out.splitlines()
    assert first == f"log.append  version {append.version}  writes"
    assert {"KEYS", "ARGV", "RETURNS", "REFUSES"} <= {line.partition(" ")[0] for line in rest}


def test_scripts_are_loaded_under_their_own_sha1(korvet: Korvet, redis_server: TestServer) -> None:
    code, out, _ = korvet("scripts", "load", "--redis", redis_server.url)
    assert (code, out) == (0, f"{len(bundle.names())} scripts loaded\n")
    with redis_server.client() as client:
        sha1s = [bundle.load(name).sha1 for name in bundle.names()]
        assert all(client.script_exists(*sha1s))


@pytest.mark.parametrize(
    "words", [("archive", "t", "--to", "d"), ("replay", "d", "--to", "t"), ("verify", "t", "d")]
)
def test_a_job_without_pyspark_says_what_to_install(
    korvet: Korvet, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name)
    )
    code, out, said = korvet("pipeline", *words)
    assert (code, out) == (2, "")
    assert said.count("\n") == 1 and "install korvet[spark]" in said


def test_the_scripts_are_as_locked(korvet: Korvet) -> None:
    code, out, _ = korvet("scripts", "check")
    assert (code, out) == (0, f"{len(bundle.names())} scripts are as locked\n")


def test_a_closed_output_pipe_is_exit_code_0() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        words = [sys.executable, "-m", "korvet", "scripts", "show", "log.append"]
        done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_check_validates_a_file_and_starts_nothing(korvet: Korvet, tmp_path: Path) -> None:
    (tmp_path / "k.toml").write_text("num.partitions = 3\nlog.index.interval.bytes = 4096\n")
    code, out, _ = korvet("check", "--config", "k.toml")
    assert code == 0
    assert "configuration: valid, 2 settings given\n  num.partitions = 3\n" in out
    assert "  log.index.interval.bytes = 4096\n    is accepted and has no effect\n" in out
    assert [path.name for path in tmp_path.iterdir()] == ["k.toml"]


def test_doctor_accepts_the_embedded_server(korvet: Korvet, tmp_path: Path) -> None:
    with RedisServer.launch(tmp_path / "data"):
        code, out, _ = korvet("doctor", "--data-dir", "data")
    assert code == 0, out
    assert "ok\teviction\tmaxmemory-policy is noeviction\n" in out
    assert "ok\tdisk\tits broker syncs the file: at most 2 s are not on disk\n" in out
    assert f"ok\tscripts\t0 of {len(bundle.names())} loaded" in out
    assert not [line for line in out.splitlines()[1:] if not line.startswith("ok\t")]


@pytest.mark.parametrize(
    ("started_with", "changed_to", "grade", "words"),
    [
        (-1, None, None, ""),
        (1 << 40, None, "ok", "used of local.memory.bytes 1.0 TiB"),
        (1, None, "bad", "topics that are not tiered refuse records"),
        (1 << 40, "1", "bad", "topics that are not tiered refuse records"),
        (1, "-1", None, ""),
    ],
)
def test_doctor_compares_the_used_memory_with_the_brokers_budget(
    valkey_server: TestServer,
    korvet: Korvet,
    started_with: int,
    changed_to: str | None,
    grade: str | None,
    words: str,
) -> None:
    keys = Keys(f"budget{started_with}{changed_to}")
    with SyncStore.connect(valkey_server.url) as store:
        store.run(keys.broker_set_storage(url="", topics="false", memory=started_with))
        if changed_to is not None:
            wanted = encode_configs({"local.memory.bytes": changed_to})
            store.run(keys.config_alter(resource="broker:", expected=b"", wanted=wanted))
    options = ("--redis", valkey_server.url, "--namespace", keys.namespace, "--json")
    _, out, _ = korvet("doctor", *options)
    found = [row for row in json.loads(out) if row["subject"] == "budget"]
    assert [row["grade"] for row in found] == ([] if grade is None else [grade])
    assert all(words in row["finding"] for row in found)


def test_doctor_warns_of_a_server_that_loses_records(
    korvet: Korvet, redis_server: TestServer
) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            code, out, _ = korvet("doctor", "--redis", redis_server.url)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert code == 1
    assert "WARNING\teviction\tmaxmemory-policy is allkeys-lru: Redis WILL DELETE RECORDS" in out
    assert "WARNING\tpersistence\tthe append-only file is off" in out


def test_doctor_says_that_a_full_redis_refuses_records(
    korvet: Korvet, redis_server: TestServer
) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            code, out, _ = korvet("doctor", "--redis", redis_server.url)
        finally:
            client.config_set("maxmemory", 0)
    assert code == 1
    assert ": Redis refuses new records; lower retention.ms, delete records or raise" in out


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ("always", "ok\tdisk\tappendfsync is always"),
        ("everysec", "note\tdisk\tappendfsync is everysec: a power failure loses about a second"),
        ("no", "note\tdisk\tappendfsync is no"),
    ],
)
def test_doctor_reports_what_a_power_failure_loses(korvet: Korvet, policy: str, line: str) -> None:
    with server("valkey", "--appendonly", "yes", "--appendfsync", policy) as theirs:
        code, out, _ = korvet("doctor", "--redis", theirs.url)
        assert (code, line in out) == (0, True), out
        with theirs.client() as client:
            client.acl_setuser("shy", enabled=True, nopass=True, categories=["+@all"], keys=["*"])
            client.acl_setuser("shy", enabled=True, commands=["-config"], channels=["*"])
        code, out, _ = korvet("doctor", "--redis", theirs.url.replace("://", "://shy:x@", 1))
        assert (code, "\tdisk\t" in out) == (0, False), out


def test_doctor_names_topics_whose_durability_redis_cannot_keep(korvet: Korvet) -> None:
    with server("valkey", "--appendonly", "yes") as theirs:
        at = ("--redis", theirs.url)
        assert korvet("topics", "create", "disk", "--config", "durability=fsync", *at)[0] == 0
        code, out, _ = korvet("doctor", *at)
        assert (code, "ok\tdurability\t" in out) == (0, True), out
        code, _, err = korvet("topics", "alter", "disk", "--config", "durability=replicas:1", *at)
        assert code == 2 and "cannot keep durability=replicas:1: 0 of 1 replicas are" in err
        shown = korvet("topics", "describe", "disk", *at, "--no-header")[1]
        assert shown.endswith("\tdurability=fsync\n")
        for name in "abcdef":
            config = "min.insync.replicas=2"
            assert korvet("topics", "create", name, "--config", config, *at)[0] == 0
        with theirs.client() as client:
            client.config_set("appendonly", "no")
        code, out, _ = korvet("doctor", *at)
        assert code == 1
        assert "WARNING\tdurability\tacks=-1 of disk waits for fsync, which Redis cannot" in out
        assert "acks=-1 of a, b, c, d, e and 1 other topics waits for replicas:1, which" in out


def test_a_sync_that_was_late_is_noted() -> None:
    info = {"aof_enabled": "1", "aof_delayed_fsync": "3"}
    (found,) = [each for each in losses(info) if each.grade != "ok"]
    assert (
        found.grade == "note" and "3 times a sync was so slow that writes waited" in found.sentence
    )


def test_redis_acl_creates_the_user_that_doctor_accepts(korvet: Korvet) -> None:
    with server("valkey", "--appendonly", "yes") as theirs:
        apply = ("redis-acl", "--apply", "--password-stdin", "--redis", theirs.url)
        code, out, err = korvet(*apply, stdin=b"opensesame\n")
        assert (code, err) == (0, "")
        assert out == "user korvet may use the keys of namespace korvet\n"
        own = theirs.url.replace("://", "://korvet:opensesame@", 1)
        code, out, _ = korvet("doctor", "--redis", own)
        assert code == 0 and "ok\tuser\tuser korvet has the rights that a broker needs" in out
        code, out, _ = korvet("doctor", "--redis", theirs.url)
        assert code == 0 and "note\tuser\tuser default may do more than a broker needs" in out
        with theirs.client() as client:
            client.execute_command("ACL", "SETUSER", "korvet", "-xadd")
        code, out, _ = korvet("doctor", "--redis", own)
        assert code == 1 and "WARNING\tuser\tuser korvet may not call xadd" in out


def test_redis_acl_prints_the_rule_without_a_secret(korvet: Korvet) -> None:
    code, out, _ = korvet("redis-acl", "--namespace", "shop", "--user", "broker")
    assert code == 0
    assert out.startswith("ACL SETUSER broker reset resetchannels on >PASSWORD ~shop:* ~{shop:* ")


def test_a_server_without_lua_is_reported_in_one_sentence(korvet: Korvet) -> None:
    with server("valkey", "--appendonly", "yes", "--enable-module-command", "yes") as theirs:
        with theirs.client() as client:
            client.execute_command("MODULE", "UNLOAD", "lua")
        code, out, _ = korvet("doctor", "--redis", theirs.url)
        assert code == 1 and "WARNING\tlua\t" in out and "load Valkey's Lua module" in out
        code, _, err = korvet("--redis", theirs.url, "--listen", "127.0.0.1:0")
        assert code == 2 and err.count("\n") == 1 and "load Valkey's Lua module" in err


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("Redis", "7.2.13", "upgrade to 7.2.14"),
        ("Redis", "7.0.15", "upgrade to 7.2.14"),
        ("Redis", "7.2.14", None),
        ("Redis", "9.0.0", None),
        ("Valkey", "9.0.3", "upgrade to 9.0.4"),
        ("Valkey", "9.1.0", None),
    ],
)
def test_doctor_names_releases_with_known_code_execution_in_lua(
    name: str, version: str, found: str | None
) -> None:
    finding = vulnerable(name, version)
    assert finding is None if found is None else finding is not None and found in finding


def test_topics_are_created_listed_described_and_deleted(
    korvet: Korvet, redis_server: TestServer
) -> None:
    at = ("--redis", redis_server.url)
    made = korvet("topics", "create", "orders", "-p", "2", "--config", "retention.ms=5", *at)
    assert made[:2] == (0, "created orders with 2 partitions\n")
    assert made[2].startswith("note: offsets of orders are times (offset.mode=time)")
    assert made[2].count("\n") == 1 and "offset.mode=dense" in made[2]
    second = korvet("topics", "create", "more", *at)
    assert second == (0, "created more with 1 partition\n", ""), "the note is there once"
    assert korvet("topics", "delete", "more", *at)[0] == 0
    code, _, err = korvet("topics", "create", "orders", *at)
    assert (code, err) == (2, "korvet: Topic 'orders' exists already.\n")
    listed = "topic\tpartitions\tformat\toffsets\trecords\tbytes\norders\t2\trecord\ttime\t0\t0\n"
    assert korvet("topics", "list", *at) == (0, listed, "")
    assert korvet("topics", "list", "--no-header", *at)[1] == listed.splitlines(True)[1]
    _, out, _ = korvet("topics", "describe", "orders", "--configs", *at)
    assert "orders\tretention.ms\t5\tdynamic_topic\n" in out
    _, out, _ = korvet("topics", "describe", "orders", "--partitions", *at)
    assert "orders\t1\t0\t0\t0\t0\t-\tkorvet:orders:1\n" in out
    assert korvet("topics", "delete", "orders", *at) == (0, "deleted orders\n", "")
    with redis_server.client() as client:
        assert client.keys("*orders*") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("create", "a b"), "A topic name holds letters, digits, '.', '_' and '-' only"),
        (("create", "a", "-p", "0"), "A topic has from 1 to 10000 partitions, not 0."),
        (("create", "a", "--config", "x"), "--config needs NAME=VALUE, not 'x'"),
        (("create", "a", "--config", "retention.m=1"), "did you mean retention.ms?"),
        (("describe", "a"), "There is no topic 'a'; there are: none."),
        (("delete", "a"), "there are: none. Create it with `korvet topics create a`."),
    ],
)
def test_an_invalid_topic_is_refused(
    korvet: Korvet, redis_server: TestServer, arguments: tuple[str, ...], sentence: str
) -> None:
    code, out, err = korvet("topics", *arguments, "--redis", redis_server.url)
    assert (code, out) == (2, "") and sentence in err


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_lines_are_produced_and_consumed(
    korvet: Korvet, redis_server: TestServer, layout: str
) -> None:
    at = ("--redis", redis_server.url)
    configs = (f"storage.format={layout}", "offset.mode=dense")
    korvet("topics", "create", "orders", *(o for c in configs for o in ("--config", c)), *at)
    lines = b"".join(b"line %d\n" % number for number in range(5000))
    code, _, err = korvet("produce", "orders", *at, stdin=lines)
    assert (code, err) == (0, "5000 records appended to orders\n")
    assert korvet("consume", "orders", *at) == (0, lines.decode(), "")
    assert korvet("consume", "orders", "--from", "4999", *at)[1] == "line 4999\n"
    assert korvet("consume", "orders", "--max", "1", *at)[1] == "line 0\n"
    assert korvet("consume", "orders", "--from", "latest", *at)[1] == ""
    assert korvet("consume", "orders", "--from", "1h", *at)[1] == lines.decode()
    assert korvet("consume", "orders", "--from", "2999-01-01T00:00Z", *at)[1] == ""
    followed = korvet("consume", "orders", "--follow", "--max", "5000", *at)
    assert followed == (0, lines.decode(), "")
    code, _, err = korvet("consume", "orders", "--from", "5001", *at)
    assert code == 2 and "cannot be read from offset 5001" in err
    assert err.endswith(" it holds 0 to 5000.\n")


@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize(("most", "lengths"), [(1000, [200] * 50), (400, [330, 1, 1, 300])])
def test_lines_that_fit_one_by_one_are_sent_in_batches_that_fit(
    korvet: Korvet,
    redis_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    most: int,
    lengths: list[int],
) -> None:
    at = ("--redis", redis_server.url)
    configs = (f"storage.format={layout}", f"max.message.bytes={most}")
    korvet("topics", "create", "orders", *(o for c in configs for o in ("--config", c)), *at)
    lines = b"".join(b"x" * length + b"\n" for length in lengths)
    (path := Path("lines")).write_bytes(lines)
    with path.open() as file:
        monkeypatch.setattr(f"{__name__}.given", lambda content: _same(file))
        code, _, err = korvet("produce", "orders", *at)
        assert (code, err) == (0, f"{len(lengths)} records appended to orders\n")
        assert korvet("consume", "orders", *at)[1] == lines.decode()


def test_ctrl_c_ends_produce_while_stdin_is_idle(korvet: Korvet, valkey_server: TestServer) -> None:
    at = ("--redis", valkey_server.url)
    with valkey_server.client() as client:
        client.flushall()
        assert korvet("topics", "create", "orders", *at)[0] == 0
        words = [sys.executable, "-m", "korvet", "produce", "orders", *at]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environ) as process:
            assert process.stdin is not None
            process.stdin.write(b"one\ntwo\n")
            process.stdin.flush()
            assert until(lambda: client.xlen("korvet:orders:0") == 2)
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(20) == 130
            finally:
                process.kill()


def test_records_are_unchanged_by_json(korvet: Korvet, redis_server: TestServer) -> None:
    at = ("--redis", redis_server.url)
    for topic in ("a", "b"):
        korvet("topics", "create", topic, "-p", "3", "--config", "offset.mode=dense", *at)
    records = [
        {"key": "k", "value": "ä", "partition": 2, "timestamp": 1700000000000},
        {"key": None, "value": None, "partition": 0},
        {"key": "", "value": {"base64": "/wA="}, "partition": 1},
        {"value": "h", "headers": [["n", None], ["n", "2"]], "partition": 1},
        {"key": 7, "value": {"a": [1, "b"]}, "headers": {"n": "1", "m": True}, "partition": 2},
        {"value": "null", "headers": {}, "partition": 2},
    ]
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    assert korvet("produce", "a", "--format", "json", *at, stdin=text)[0] == 0
    _, first, _ = korvet("consume", "a", "--format", "json", *at)
    assert korvet("produce", "b", "--format", "json", *at, stdin=first.encode())[0] == 0
    _, second, _ = korvet("consume", "b", "--format", "json", *at)
    assert second == first.replace('"topic":"a"', '"topic":"b"')
    rows = [json.loads(line) for line in first.splitlines()]
    assert [row["partition"] for row in rows] == [2, 0, 1, 1, 2, 2], "the oldest one first"
    rows.sort(key=lambda row: row["partition"])
    assert rows[1]["value"] == {"base64": "/wA="} and rows[1]["key"] == ""
    assert rows[2]["headers"] == [["n", None], ["n", "2"]]
    assert (rows[3]["value"], rows[3]["timestamp"]) == ("ä", 1700000000000)
    assert (rows[4]["key"], rows[4]["value"]) == ("7", '{"a": [1, "b"]}')
    assert rows[4]["headers"] == [["n", "1"], ["m", "true"]] and rows[5]["value"] == "null"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "Line 1 is not a record in JSON"),
        (b'{"val": "x"}', "Line 1 is not a record in JSON"),
        (b'{"value": {"base64": "?"}}', "Line 1 is not a record in JSON"),
        (b'{"value": {"base64": 7}}', "Line 1 is not a record in JSON"),
        (b'{"value": "x", "timestamp": 9223372036854775808}', "Line 1 is not a record in JSON"),
        (b'{"value": "x", "partition": 9}', "a has partitions 0 to 0, not 9."),
        (b'{"value": "' + b"x" * 1_100_000 + b'"}', "longer than max.message.bytes"),
    ],
)
def test_an_invalid_line_is_named_in_the_error(
    korvet: Korvet,
    redis_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    line: bytes,
    sentence: str,
) -> None:
    at = ("--redis", redis_server.url)
    korvet("topics", "create", "a", *at)
    (tmp_path / "lines").write_bytes(line)
    with (tmp_path / "lines").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        monkeypatch.setattr(f"{__name__}.given", lambda content: _same(file))
        code, _, err = korvet("produce", "a", "--format", "json", *at)
    assert code == 2 and sentence in err


@contextmanager
def _same(file: io.TextIOWrapper) -> Iterator[io.TextIOWrapper]:
    yield file


def test_keys_go_to_the_partitions_that_kafkas_producers_choose(
    korvet: Korvet, redis_server: TestServer
) -> None:
    # Key and its murmur2 hash, from Apache Kafka's tests.
    hashes = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    at = ("--redis", redis_server.url)
    korvet("topics", "create", "orders", "-p", "5", *at)
    lines = "".join(f"{key}=value\n" for key in hashes).encode()
    korvet("produce", "orders", "--key-separator", "=", *at, stdin=lines)
    _, out, _ = korvet("consume", "orders", "--format", "json", *at)
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["key"]: row["partition"] for row in rows} == {
        key: (value & 0x7FFFFFFF) % 5 for key, value in hashes.items()
    }


def test_a_command_without_a_broker_starts_the_server_for_itself(
    korvet: Korvet, tmp_path: Path
) -> None:
    with RedisServer.launch(tmp_path / "korvet-data"):
        assert korvet("topics", "create", "orders")[0] == 0
    assert korvet("topics", "list", "--no-header")[1].startswith("orders\t1\t")
    with RedisServer.launch(tmp_path / "korvet-data") as server:
        client = redis.Redis.from_url(server.url)
        assert client.hexists("korvet:topics", "orders")
        client.close()


def test_doctor_corrects_what_loses_records(korvet: Korvet) -> None:
    with server("valkey", "--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as theirs:
        assert korvet("doctor", "--redis", theirs.url)[0] == 1
        code, out, err = korvet("doctor", "--fix", "--redis", theirs.url)
        assert (code, "WARNING" in out) == (0, False), out
        assert "note: maxmemory-policy is noeviction now\n" in err
        assert "note: appendonly is yes now\n" in err
        assert "the settings are lost when Redis restarts" in err  # it was started without a file
        assert f"note: {len(bundle.names())} scripts loaded\n" in err
        assert korvet("doctor", "--fix", "--redis", theirs.url)[2] == ""
        with theirs.client() as client:
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            client.execute_command(
                "ACL", "SETUSER", "shy", "on", "nopass", "+@all", "-config", "~*"
            )
            client.config_set("maxmemory-policy", "allkeys-lru")
        shy = theirs.url.replace("://", "://shy:x@", 1)
        code, _, err = korvet("doctor", "--fix", "--redis", shy)
        assert code == 1 and "maxmemory-policy could not be set to noeviction: " in err


def test_doctor_says_whether_offsets_are_times(korvet: Korvet, redis_server: TestServer) -> None:
    at = ("--redis", redis_server.url)
    assert "\toffsets\t" not in korvet("doctor", *at)[1]
    korvet("topics", "create", "a", "--config", "offset.mode=dense", *at)
    assert "ok\toffsets\tno topic has offsets that are times\n" in korvet("doctor", *at)[1]
    korvet("topics", "create", "b", *at)
    assert "note\toffsets\toffsets of 1 of 2 topics are times" in korvet("doctor", *at)[1]


def test_lag_is_a_number_of_records_in_every_offset_mode(
    korvet: Korvet, redis_server: TestServer
) -> None:
    at = ("--redis", redis_server.url)
    for mode in ("time", "dense"):
        for layout in ("record", "batch"):
            name = f"{mode}-{layout}"
            configs = ("--config", f"offset.mode={mode}", "--config", f"storage.format={layout}")
            korvet("topics", "create", name, *configs, *at)
            korvet("groups", "create", "readers", "-t", name, "--to", "earliest", *at)
            korvet("groups", "reset", "readers", "-t", name, "--to", "earliest", *at)
            korvet("produce", name, *at, stdin=b"x\n" * 10)
    found = json.loads(korvet("groups", "describe", "readers", "--json", *at)[1])
    assert [row["lag"] for row in found["offsets"]] == [10] * 4


def test_brokers_are_listed(korvet: Korvet, redis_server: TestServer) -> None:
    at = ("--redis", redis_server.url)
    header = "id\tcontroller\tlisteners\track\trenewed_s\n"
    assert korvet("brokers", "list", *at) == (0, header, "")
    with redis_server.client() as client:
        store = SyncStore(client)
        for number in (2, 1):
            me = LiveBroker(number, (Endpoint("PLAINTEXT", "h", 9092),), "a")
            address = msgspec.json.encode(me)
            store.run(Keys().broker_register(node_id=number, address=address, ttl_ms=9000))
        client.hset(Keys().brokers(), "3", b"1 " + address)  # its registration has ended
        _, out, _ = korvet("brokers", "list", *at)
        listed = json.loads(korvet("brokers", "list", "--json", *at)[1])
    assert [row["controller"] for row in listed] == [False, True]
    rows = [line.split("\t")[:4] for line in out.splitlines()[1:]]
    assert rows == [["1", "no", "PLAINTEXT://h:9092", "a"], ["2", "yes", "PLAINTEXT://h:9092", "a"]]


def test_top_shows_rates_and_lag(korvet: Korvet, redis_server: TestServer) -> None:
    at = ("--redis", redis_server.url)
    korvet("topics", "create", "orders", "-p", "2", *at)
    korvet("groups", "create", "readers", "-t", "orders", "--to", "earliest", *at)
    korvet("produce", "orders", *at, stdin=b"x\n" * 10)
    code, out, err = korvet("top", "--times", "2", "--interval", "0.1", *at)
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:3] for row in rows if row[0] == "orders"] == [["orders", "2", "10"]] * 2
    assert [row[:4] for row in rows if row[0] == "readers"] == [["readers", "Empty", "0", "10"]] * 2
    assert out.startswith("0 brokers, 1 Redis: ")


def test_a_group_is_described_again_at_an_interval(
    korvet: Korvet, redis_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--redis", redis_server.url)
    korvet("topics", "create", "orders", *at)
    korvet("groups", "create", "readers", "-t", "orders", *at)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("korvet.cli.table_output.asyncio", SimpleNamespace(sleep=sleep))
    code, out, _ = korvet("groups", "describe", "readers", "--watch", "5", *at)
    assert (code, slept) == (130, [5, 5, 5])
    assert out.count("readers: Empty") == 3 and out.count("topic\tpartition") == 1
    code, _, err = korvet("groups", "describe", "readers", "--watch", "5", "--json", *at)
    assert code == 2 and "leave out --json" in err
