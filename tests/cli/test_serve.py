"""Check `python -m korvet` as a process: its output, signals, workers and crashes."""

import ast
import asyncio
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
import uvloop
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import korvet
from korvet.__main__ import too_old
from korvet.broker.network.listeners import bind, open_to_all, unserved
from korvet.cli.errors import sentence
from korvet.config.broker_config import StartError, load
from korvet.config.listeners import Address
from tests.support.ports import free_port
from tests.support.redis_servers import TestServer, server


class Broker:
    """A running `python -m korvet` that listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline()
        assert self.line.startswith("listening on 127.0.0.1:"), self.line
        self.port = int(self.line.rsplit(":", 1)[1])

    def api_versions(self) -> bytes:
        """Return the response to ApiVersions 0: correlation id and error code come first."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as line:
            line.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            answer = line.recv(65536)
        return answer[4:10]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and return the exit code.

        stdout must have had the line of each listener, and then that of the console.
        """
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        assert re.fullmatch(r"(console at http://127\.0\.0\.1:[0-9]+\n)?", out), out
        return self.process.returncode


@contextmanager
def starting(*arguments: str, cwd: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run a broker process; end it if it still runs."""
    command = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0", *arguments]
    environ = {k: v for k, v in os.environ.items() if k != "KORVET_REDIS_URL"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def broker(*arguments: str, cwd: Path) -> Iterator[Broker]:
    with starting(*arguments, cwd=cwd) as process:
        yield Broker(process)


def refusal(*arguments: str, cwd: Path) -> str:
    """Return the one line on stderr of a broker that cannot start."""
    found = subprocess.run(
        [sys.executable, "-m", "korvet", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("korvet: ") and found.stderr.count("\n") == 1, found.stderr
    return found.stderr


OK = struct.pack(">ih", 7, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_one_line_serves_and_stops_with_its_redis(
    tmp_path: Path, number: signal.Signals
) -> None:
    with broker(cwd=tmp_path) as running:
        assert running.api_versions() == OK
        servers = psutil.Process(running.process.pid).children()
        assert len(servers) == 1
        assert (tmp_path / "korvet-data" / "redis.sock").exists()
        assert running.stop(number) == 0
        assert not any(server.is_running() for server in servers)


@pytest.mark.processes
def test_an_idle_client_does_not_delay_its_stop(tmp_path: Path) -> None:
    with (
        broker(cwd=tmp_path) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=30) as idle,
    ):
        idle.sendall(b"\0\0")
        assert running.stop() == 0
        assert idle.recv(1) == b""


@pytest.mark.processes
def test_a_killed_broker_can_be_restarted_on_the_same_directory(tmp_path: Path) -> None:
    with broker(cwd=tmp_path) as running:
        running.process.kill()
        running.process.wait()
        with broker(cwd=tmp_path) as again:
            assert again.api_versions() == OK
            assert again.stop() == 0


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_listener_has_its_port_and_prints_one_line(tmp_path: Path, workers: str) -> None:
    names = ("--set", "listener.security.protocol.map=INSIDE:PLAINTEXT", "--workers", workers)
    with broker("--listen", "INSIDE://127.0.0.1:0", *names, cwd=tmp_path) as running:
        assert running.process.stdout is not None
        second = Broker(running.process)
        assert second.port != running.port
        assert (running.api_versions(), second.api_versions()) == (OK, OK)
        assert running.stop() == 0


@pytest.mark.processes
def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    with broker(cwd=tmp_path) as running:
        sentence = refusal("--listen", "127.0.0.1:0", cwd=tmp_path)
        assert f"in use by another Korvet (pid {running.process.pid})" in sentence


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_in_use_is_one_sentence(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = refusal("--listen", where, "--workers", workers, cwd=tmp_path)
    assert f"--listen {where} cannot be served" in sentence


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_second_process_to_listen_on_a_bound_port_is_refused(run: Callable[..., None]) -> None:
    config = load({"listen": f"127.0.0.1:{free_port()}"}, environ={})

    async def both() -> None:
        where = config.listeners[0].address
        bound = [await bind("--listen", where, config, asyncio.Protocol) for _ in range(2)]
        await open_to_all("--listen", where, bound[0])
        with pytest.raises(StartError, match="Address already in use; choose another port"):
            await open_to_all("--listen", where, bound[1])
        for each in bound:
            each.close()

    run(both())


@pytest.mark.parametrize("number", [-2, 8])
def test_an_unknown_host_is_not_reported_as_a_missing_file(number: int) -> None:
    error = socket.gaierror(number, "nodename nor servname provided")
    sentence = str(unserved("--listen", Address("h", 1), error))
    assert sentence.startswith("--listen h:1 cannot be served: nodename nor servname provided; ")


def test_an_address_of_another_machine_is_one_sentence(
    tmp_path: Path, valkey_server: TestServer
) -> None:
    where = "192.0.2.1:9092"
    sentence = refusal("--listen", where, "--redis", valkey_server.url, cwd=tmp_path)
    assert sentence.endswith("; name one of this machine's addresses.\n")


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broker_waits_for_a_redis_that_comes_after_it(tmp_path: Path, workers: str) -> None:
    port, ops = free_port(), free_port()
    words = ["--ops", f"127.0.0.1:{ops}", "--workers", workers]
    with starting(*words, "--redis", f"redis://127.0.0.1:{port}", cwd=tmp_path) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "waiting for Redis" in line
        assert "start it, or give another --redis URL" in line
        with pytest.raises(HTTPError) as unready:
            get(ops, "/readyz")
        assert unready.value.code == 503
        unready.value.close()
        with urlopen(f"http://127.0.0.1:{ops}/livez", timeout=20) as live:
            assert live.status == 200
        with server("valkey", "--bind", "127.0.0.1", "--port", str(port)):
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
            wait_until_ready(ops)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert not (tmp_path / "korvet-data").exists()


@pytest.mark.processes
def test_brokers_that_start_before_redis_get_different_node_ids(tmp_path: Path) -> None:
    port = free_port()
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                starting("--ops", "off", "--redis", f"redis://127.0.0.1:{port}", cwd=tmp_path)
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stderr is not None
            assert "waiting for Redis" in process.stderr.readline()
        redis = stack.enter_context(server("valkey", "--bind", "127.0.0.1", "--port", str(port)))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
        with redis.client() as client:
            assert set(client.hkeys("korvet:brokers")) == {b"0", b"1", b":controller"}
        for process in processes:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broker_that_waits_for_redis_stops_at_a_signal(tmp_path: Path, workers: str) -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    with starting("--workers", workers, "--redis", url, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert "waiting for Redis" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_named_redis_is_used_and_left_running(tmp_path: Path, valkey_server: TestServer) -> None:
    with broker("--redis", valkey_server.url, "--namespace", "elsewhere", cwd=tmp_path) as running:
        assert running.api_versions() == OK
        assert psutil.Process(running.process.pid).children() == []
        assert running.stop() == 0
    with valkey_server.client() as client:
        assert client.ping()
        assert client.keys("elsewhere:*")
    assert not (tmp_path / "korvet-data").exists()


def console_of(running: Broker) -> str:
    """Return the console's URL, from the line after those of the listeners."""
    assert running.process.stdout is not None
    line = running.process.stdout.readline()
    assert line.startswith("console at http://127.0.0.1:"), line
    return line.removeprefix("console at ").strip()


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_console_is_on_by_default_at_a_free_port(tmp_path: Path, workers: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with (
        broker("--workers", workers, cwd=one) as first,
        broker("--workers", workers, cwd=other) as second,
    ):
        urls = [console_of(each) for each in (first, second)]
        assert len(set(urls)) == 2, "the second one takes a free port"
        for url in urls:
            with urlopen(url, timeout=30) as answer:
                assert b"<h1>Overview</h1>" in answer.read()
            wait_until_ready(int(url.rsplit(":", 1)[1].rstrip("/")))
        assert (first.stop(), second.stop()) == (0, 0)


@pytest.mark.processes
def test_without_the_ops_port_there_is_no_console(tmp_path: Path) -> None:
    with broker("--ops", "off", cwd=tmp_path) as running:
        process = psutil.Process(running.process.pid)
        listening = {each.laddr.port for each in process.net_connections() if not each.raddr}
        assert listening - {running.port} == set()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.communicate(timeout=60)[0] == ""


@pytest.mark.processes
def test_a_console_that_was_not_opened_is_not_started(
    tmp_path: Path, valkey_server: TestServer
) -> None:
    with (
        broker("--redis", valkey_server.url, "--namespace", "unopened", cwd=tmp_path) as running,
        valkey_server.client() as client,
    ):
        url = console_of(running)

        def is_started() -> bool:
            return any(each["name"].startswith("korvet-console") for each in client.client_list())

        with urlopen(f"{url}/livez", timeout=30), urlopen(f"{url}/metrics", timeout=30):
            assert not is_started()
        with urlopen(f"{url}/", timeout=30):
            assert is_started()
        assert running.stop() == 0


@pytest.mark.processes
def test_probes_and_metrics_are_served_on_the_ops_port(tmp_path: Path) -> None:
    port = free_port()
    with broker("--ops", f"127.0.0.1:{port}", cwd=tmp_path) as running:
        running.api_versions()
        assert get(port, "/healthz") == "ok\n"
        assert get(port, "/readyz") == "ready\n"
        assert 'korvet_requests_total{api="ApiVersions",error="NONE"} 1.0' in get(port, "/metrics")
        redis = psutil.Process(running.process.pid).children()[0]
        redis.suspend()
        try:
            with pytest.raises(HTTPError) as refused:
                get(port, "/readyz")
            assert refused.value.code == 503
            refused.value.close()
            assert get(port, "/healthz") == "ok\n"
        finally:
            redis.resume()
        assert running.stop() == 0


@pytest.mark.processes
def test_an_embedded_redis_that_dies_is_restarted(tmp_path: Path) -> None:
    port = free_port()
    with broker("--ops", f"127.0.0.1:{port}", cwd=tmp_path) as running:
        redis = psutil.Process(running.process.pid).children()[0]
        redis.kill()
        redis.wait()
        assert running.process.stderr is not None
        assert any("embedded Redis died" in line for line in running.process.stderr)
        wait_until_ready(port)
        assert running.stop() == 0


@pytest.mark.processes
def test_workers_share_the_port_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    port = free_port()
    with broker("--workers", "3", "--ops", f"127.0.0.1:{port}", cwd=tmp_path) as running:
        parent = psutil.Process(running.process.pid)
        for _ in range(30):
            assert running.api_versions() == OK
        assert get(port, "/readyz") == "ready\n"
        text = get(port, "/metrics")
        counts = [
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("korvet_requests_total{") and 'api="ApiVersions"' in line
        ]
        assert sum(counts) == 30 and len(counts) > 1
        before = parent.children()
        # Redis started first. The last process serves the ops port for all.
        worker = before[1]
        worker.kill()
        assert running.process.stderr is not None
        assert any("worker died" in line for line in running.process.stderr)
        while len(now := [child for child in parent.children() if child != worker]) < len(before):
            assert running.api_versions() == OK
        wait_until_ready(port)
        assert running.stop() == 0
        assert not any(child.is_running() for child in now)


@pytest.mark.processes
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with broker("--workers", "2", cwd=tmp_path) as running:
        assert running.process.stderr is not None
        running.process.kill()
        # Every worker holds the pipe: its end means that the last of them has ended.
        running.process.stderr.read()
        with broker("--workers", "2", cwd=tmp_path) as again:
            assert again.api_versions() == OK
            assert again.stop() == 0


def wait_until_ready(port: int) -> None:
    while True:
        try:
            assert get(port, "/readyz").splitlines()[0] == "ready"
            return
        except HTTPError as not_yet:
            not_yet.close()


def get(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as page:
        return str(page.read().decode())


def lines_on_a_terminal(folder: Path, last: str) -> list[str]:
    """Start a broker on a terminal; return what it shows until `last`."""
    terminal, other = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if k != "KORVET_REDIS_URL"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    words = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0"]
    with subprocess.Popen(words, cwd=folder, env=environ, stdout=other, stderr=other) as process:
        os.close(other)
        said = b""
        while last.encode() not in said:
            said += os.read(terminal, 10_000)
        process.terminate()
        assert process.wait(60) == 0
    os.close(terminal)
    return said.decode().replace("\r", "").splitlines()


@pytest.mark.processes
def test_a_terminal_shows_where_data_is_and_what_to_do_next(tmp_path: Path) -> None:
    lines = lines_on_a_terminal(tmp_path, "console at")
    first = next(number for number, line in enumerate(lines) if line.startswith("listening on"))
    port = lines[first].rsplit(":", 1)[1]
    assert lines[first + 1].startswith(f"data:    {tmp_path}/korvet-data")
    assert re.fullmatch(
        rf"memory:  \d+\.\d GiB for Redis; older records are in file://{tmp_path}/\S+/segments",
        lines[first + 2],
    )
    assert lines[first + 3] == f"connect: bootstrap.servers=127.0.0.1:{port}"
    assert any("korvet quickstart" in line for line in lines)
    assert any("offset.mode=time" in line for line in lines)
    assert sum("--preset" in line for line in lines) == 2
    again = "".join(lines_on_a_terminal(tmp_path, "console at"))
    assert "korvet quickstart" in again
    assert "--preset" not in again and "offset.mode" not in again, "the data directory is not new"


def test_a_preset_is_stored_for_all_brokers_until_it_is_altered(tmp_path: Path) -> None:
    def mode_of_a_topic(name: str, *arguments: str) -> str:
        with broker(*arguments, cwd=tmp_path) as started:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{started.port}"})
            admin.create_topics([NewTopic(name, 1)])[name].result(30)
            resource = ConfigResource(ResourceType.TOPIC, name)
            [found] = admin.describe_configs([resource]).values()
            configs = found.result(30)
            assert started.stop() == 0
            return f"{configs['storage.format'].value} {configs['offset.mode'].value}"

    assert mode_of_a_topic("a", "--preset", "kafka", "--set", "storage.format=record") == (
        "record dense"
    ), "what the command line has is not stored"
    assert mode_of_a_topic("b") == "record dense"
    assert mode_of_a_topic("c", "--preset", "redis") == "record dense", "a start changes nothing"


def test_a_redis_for_another_machine_is_one_sentence(tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    program.chmod(0o755)
    sentence = refusal("--redis-server", str(program), "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert f"{program} cannot be started: it was built for another system" in sentence
    assert "--redis" in sentence


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    sentence = refusal("--data-dir", "/proc/korvet", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert "The data directory /proc/korvet cannot be used: " in sentence
    (tmp_path / "korvet-data" / "redis.log").mkdir(parents=True)
    sentence = refusal("--listen", "127.0.0.1:0", cwd=tmp_path)
    assert f"The data directory {tmp_path}/korvet-data cannot be used: " in sentence


def test_an_old_python_is_one_sentence() -> None:
    assert too_old((3, 11, 0)) is None
    assert "Korvet needs Python 3.11 or newer, and this is Python 3.9" in str(too_old((3, 9, 1)))


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_an_old_python_can_parse_the_first_modules(name: str) -> None:
    text = (Path(korvet.__file__).parent / name).read_text()
    assert ast.parse(text, feature_version=(3, 7))


def test_a_module_that_cannot_be_loaded_is_one_sentence() -> None:
    broken = ImportError("cannot load crc32c: wrong ELF class", name="crc32c")
    assert "wrong ELF class: install Korvet again" in str(sentence(broken))
    assert sentence(ImportError("no run in korvet.cli", name="korvet.cli")) is None


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    """Return the configs of a resource."""
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(60)
    return {key: row.value for key, row in found.items()}


def create_topic(admin: AdminClient, name: str, **configs: str) -> None:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=given)])[name].result(60)


def budget_finding(folder: Path) -> str:
    """Return the finding of `korvet doctor` about the memory budget."""
    doctor = [sys.executable, "-m", "korvet", "doctor", "--json", "--data-dir", "data"]
    said = subprocess.run(doctor, cwd=folder, capture_output=True, text=True, check=False)
    (found,) = (row for row in json.loads(said.stdout) if row["subject"] == "budget")
    return str(found["finding"])


@pytest.mark.processes
def test_the_embedded_redis_has_a_budget_and_tiered_storage(tmp_path: Path) -> None:
    with broker("--data-dir", "data", cwd=tmp_path) as it:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{it.port}"})
        found = described(admin, ResourceType.BROKER, "0")
        assert found["remote.storage.url"] == f"file://{tmp_path}/data/segments"
        assert found["remote.log.storage.system.enable"] == "true"
        assert int(found["local.memory.bytes"]) > 0
        budget = int(found["local.memory.bytes"])
        create_topic(admin, "plain")
        create_topic(admin, "compact", cleanup_policy="compact")
        for name, is_remote in (("plain", "true"), ("compact", "false")):
            rows = described(admin, ResourceType.TOPIC, name)
            assert rows["remote.storage.enable"] == is_remote
        assert f"local.memory.bytes {budget / 2**30:.1f} GiB" in budget_finding(tmp_path)
        assert it.process.stderr is not None
        it.process.send_signal(signal.SIGTERM)
        _, log = it.process.communicate(timeout=60)
        assert f"local_memory_bytes={budget}" in log


@pytest.mark.processes
def test_tiered_storage_can_be_switched_off(tmp_path: Path) -> None:
    off = ("--set", "remote.log.storage.system.enable=false")
    with broker("--data-dir", "data", *off, cwd=tmp_path) as it:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{it.port}"})
        create_topic(admin, "plain")
        rows = described(admin, ResourceType.TOPIC, "plain")
        assert rows["remote.storage.enable"] == "false"
        assert it.stop() == 0
    assert not (tmp_path / "data" / "segments").exists()
