"""Check that the examples of docstrings, of docs pages and of `examples/` run unchanged."""

import asyncio
import doctest
import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import redis
from fastapi.testclient import TestClient

import korvet
from korvet import Record
from korvet.scripts import inlined
from korvet.testing import Broker, LuaRunner
from korvet.testing.fixtures import korvet_broker
from tests.interop.kafka_python import KafkaProducer
from tests.support.pages import run_by
from tests.support.ports import free_port
from tests.support.redis_servers import TestServer, binary, server

pytestmark = pytest.mark.processes

__all__ = ["korvet_broker"]
PROJECT = Path(__file__).parents[1]
MODULES = (
    "korvet.library.async_korvet",
    "korvet.library.korvet",
    "korvet.library.queue",
    "korvet.testing.broker",
    "korvet.testing.lua_runner",
)
PAGES = (
    "README.md",
    "docs/cookbook.md",
    "docs/inside-your-redis.md",
    "docs/jobs.md",
    "docs/library.md",
    "docs/tables.md",
    "docs/testing.md",
)


@pytest.fixture
def empty_server(valkey_server: TestServer) -> TestServer:
    """A server that is flushed before the example."""
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_run(
    module: str, empty_server: TestServer, request: pytest.FixtureRequest
) -> None:
    found = importlib.import_module(module)
    given = {
        "asyncio": asyncio,
        "getfixture": request.getfixturevalue,
        "kafka": SimpleNamespace(KafkaProducer=KafkaProducer),
        "redis": redis,
        "redis_url": empty_server.url,
        **{name: getattr(korvet, name) for name in korvet.__all__},
        "Broker": Broker,
        "LuaRunner": LuaRunner,
    }
    results = doctest.testmod(found, extraglobs=given, optionflags=doctest.ELLIPSIS)
    assert results.attempted and not results.failed


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_docs_pages_run(
    page: str,
    empty_server: TestServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The blocks of a page run in their order, in one namespace; tests among them, too."""
    monkeypatch.chdir(tmp_path)
    blocks = run_by(__file__, page, "python")
    assert blocks
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        code = block.code.replace("redis://localhost:6379", empty_server.url)
        exec(compile(code, page, "exec"), names)
        for name in [name for name in names if name.startswith("test_")]:
            test: Any = names.pop(name)
            test(**{each: request.getfixturevalue(each) for each in signature(test).parameters})


def test_the_library_example_runs(empty_server: TestServer) -> None:
    words = [sys.executable, str(PROJECT / "examples" / "library.py"), empty_server.url]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "attempt 1 duplicate\n" in done.stdout and "orders 1 lag 0\n" in done.stdout


def test_the_example_of_jobs_runs(empty_server: TestServer) -> None:
    def run(*words: str) -> tuple[str, str]:
        command = [sys.executable, str(PROJECT / "examples" / "jobs.py"), empty_server.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout, done.stderr

    for _ in range(2):
        assert run("enqueue", "10") == ("", "")
    out, errors = run("work", "--once")
    expected = {f"b'image-{n}' delivery {1 + (n == 7)}" for n in range(10)}
    assert set(out.splitlines()) == expected and "job failed" in errors
    with empty_server.client() as client:
        assert client.hgetall("images") == {b"bytes": b"70", b"count": b"10"}


def test_the_example_of_a_shop_runs(empty_server: TestServer) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, str(PROJECT / "examples" / "shop.py"), empty_server.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert not done.stderr
        return done.stdout

    assert run("buy", "ann", "cups", "3") == "order 0 of 3 cups, 7 left\n"
    assert run("buy", "ann", "cups", "7") == "order 1 of 7 cups, 0 left\n"
    assert run("buy", "ann", "cups", "1") == "0 cups are left\n"
    for _ in range(2):
        assert run("limit", "--once") == ""
    with empty_server.client() as client:
        assert sum(int(client.get(key)) for key in client.keys("orders:ann:*")) == 2
        minute = client.time()[0] // 60
        client.mset({f"orders:bob:{minute + n}": 2 for n in range(2)})
    assert run("buy", "bob", "forks", "1") == "bob has ordered 2 times in this minute\n"


def test_the_example_of_an_http_api_orders_in_one_step_and_reads_features(
    empty_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", empty_server.url)
    names = runpy.run_path(str(PROJECT / "examples" / "api.py"))
    order = {"customer": "ann", "item": "cups", "count": 2}
    with TestClient(names["app"]) as api, korvet.Korvet.connect(empty_server.url) as log:
        for _ in range(2):
            assert api.post("/orders", json=order).json()["offset"] >= 0
        assert api.post("/orders", json={"item": "cups"}).status_code == 422
        log.produce("features", [Record(b"gold", key=b"ann")])
        expected = {"ordered": "4 cups", "features": "gold"}
        assert api.get("/customers/ann").json() == expected
        stored = [record.value for n in range(2) for record in log.records("orders", n)]
    assert [msgspec.json.decode(value or b"") for value in stored] == [order] * 2


def test_the_pytest_example_runs() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/pytest"]
    done = subprocess.run(
        words, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The folder of the examples in other languages, with the scripts exported into it."""
    folder = tmp_path / "example"
    shutil.copytree(PROJECT / "examples" / "scripts", folder)
    words = [sys.executable, "-m", "korvet", "scripts", "export", str(folder / "scripts")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture
def tcp_server() -> Iterator[tuple[TestServer, int]]:
    """A server with a port: not every client connects to a socket by URL."""
    port = free_port()
    with server("valkey", "--port", str(port)) as running:
        yield running, port


@pytest.mark.interop
def test_the_node_example_appends_records(
    exported: Path, tcp_server: tuple[TestServer, int]
) -> None:
    running, port = tcp_server
    log = korvet.Korvet.connect(running.url)
    log.create_topic("orders", 1, {"offset.mode": "dense"})
    subprocess.run(["npm", "install", "--silent"], cwd=exported, check=True, timeout=240)
    url = f"redis://127.0.0.1:{port}"
    words = ["node", "append.mjs", url, "orders", "first", "second"]
    for expected in ("0\tfirst\n1\tsecond\n", "2\tfirst\n3\tsecond\n"):
        done = subprocess.run(
            words, cwd=exported, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.stdout, done.stderr) == (expected, "")
    assert [record.value for record in log.records("orders", 0, 2)] == [b"first", b"second"]
    log.close()
    missing = subprocess.run(
        [*words[:3], "absent", "x"], cwd=exported, capture_output=True, check=False, timeout=60
    )
    assert missing.returncode != 0


@pytest.mark.interop
@pytest.mark.parametrize(
    ("build", "folder", "program"),
    [
        (["npm", "install", "--silent"], ".", ["node", "publish.mjs"]),
        (["go", "build", "-o", "publish", "."], "go", ["./publish"]),
    ],
    ids=["node", "go"],
)
def test_an_example_appends_and_counts_in_one_step(
    exported: Path,
    tcp_server: tuple[TestServer, int],
    build: list[str],
    folder: str,
    program: list[str],
) -> None:
    running, port = tcp_server
    inside = exported / folder
    subprocess.run(build, cwd=inside, check=True, timeout=240)
    with korvet.Korvet.connect(running.url) as log, running.client() as client:
        client.function_load(inlined.functions(), replace=True)
        log.create_topic("orders", 12, {"offset.mode": "dense"})
        [receipt] = log.produce("orders", [korvet.Record(b"2 cups", key=b"ann")])
        number = receipt.partition
        words = [*program, f"redis://127.0.0.1:{port}", "orders", "ann", "3 cups"]
        done = subprocess.run(
            words, cwd=inside, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.stdout, done.stderr) == (f"{number}\t1\n", "")
        assert [row.value for row in log.records("orders", number)] == [b"2 cups", b"3 cups"]
        assert client.hgetall(f"{{korvet:orders:{number}}}:customers") == {b"ann": b"1"}


@pytest.mark.interop
def test_the_redis_cli_example_prints_offsets(exported: Path, empty_server: TestServer) -> None:
    cli = shutil.which("redis-cli") or str(Path(binary("redis62") or "").parent / "redis-cli")
    assert Path(cli).is_file(), "install redis-cli (Debian package redis-tools)"
    with korvet.Korvet.connect(empty_server.url) as log:
        log.create_topic("orders", 1, {"offset.mode": "dense"})
        log.produce("orders", [korvet.Record(b"a"), korvet.Record(b"b")])
    contract = json.loads((exported / "scripts" / "contract.json").read_text())
    names = [row["name"] for row in contract["scripts"]["log.list_offsets"]["returns"]]
    done = subprocess.run(
        ["./offsets.sh", "orders", "0", "-s", empty_server.url.removeprefix("unix://")],
        cwd=exported,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "REDIS_CLI": cli},
    )
    reply = dict(zip(names, done.stdout.removesuffix("\n").split("\n"), strict=True))
    assert [reply[name] for name in ("error", "first", "next", "records")] == ["0", "0", "2", "2"]


@pytest.mark.interop
def test_the_example_of_log_append_works_as_printed(
    exported: Path, tcp_server: tuple[TestServer, int]
) -> None:
    running, port = tcp_server
    page = (PROJECT / "docs" / "scripts" / "log.md").read_text()
    section = page.partition("\n## log.append\n")[2]
    command = section.partition("```sh\n")[2].partition("```")[0]
    command = command.replace("redis-cli", f"redis-cli -p {port}")
    with korvet.Korvet.connect(running.url) as log:
        log.create_topic("orders", 1)
        subprocess.run(["sh", "-c", command], cwd=exported, check=True, timeout=60)
        assert [record.value for record in log.records("orders", 0)] == [b"hello"]
