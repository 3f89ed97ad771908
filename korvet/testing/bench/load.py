"""Run a closed-loop load: a fixed number of requests in flight on each connection.

The CPU time and the memory of process trees (broker and Redis) are read from /proc.
"""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from korvet.testing.bench import frames
from korvet.testing.bench.connection import LARGE, Connection, connect

IN_FLIGHT = 5
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


GIGABYTE = 1e9
CACHE_BYTES = 128 << 20
"""Default of Korvet's `fetch.cache.bytes`, which caches batches of layout `batch` only."""


@dataclass(frozen=True, slots=True)
class Target:
    """The broker under load, and the limits of each case."""

    address: str
    pids: tuple[int, ...] = ()
    seconds: float = 5.0
    megabytes: int = 400
    configs: tuple[tuple[str, str], ...] = ()
    cache_bytes: int = CACHE_BYTES
    is_tiered: bool = False
    """Whether the broker has a remote store."""


@dataclass(slots=True)
class Tally:
    """The totals of the replies of one timed run."""

    requests: int = 0
    records: int = 0
    payload: int = 0
    seconds: float = 0.0
    broker_cpu: float = 0.0
    client_cpu: float = 0.0
    resident: int = 0

    def row(self) -> dict[str, float | int]:
        """Return the figures; those of the broker only if its process ids are known."""
        row: dict[str, float | int] = {
            "requests": self.requests,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "requests_per_s": round(self.requests / self.seconds),
            "records_per_s": round(self.records / self.seconds),
            "mb_per_s": round(self.payload / self.seconds / 1e6, 1),
            "client_cpu_share": round(self.client_cpu / self.seconds, 2),
        }
        if self.resident:
            row["cpu_s_per_gb"] = round(self.broker_cpu / (self.payload / GIGABYTE), 2)
            row["cpu_us_per_request"] = round(self.broker_cpu / self.requests * 1e6, 1)
            row["cpu_us_per_record"] = round(self.broker_cpu / self.records * 1e6, 2)
            row["resident_mb"] = round(self.resident / 1e6)
        return row


def client_cpu() -> float:
    """Return the CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@asynccontextmanager
async def measured(target: Target, tally: Tally) -> AsyncIterator[None]:
    """Add the wall clock and CPU time of the block to `tally`."""
    cpu, client = cpu_seconds(target.pids), client_cpu()
    begin = time.perf_counter()
    yield
    tally.seconds = time.perf_counter() - begin
    tally.broker_cpu = cpu_seconds(target.pids) - cpu
    tally.client_cpu = client_cpu() - client
    tally.resident = resident_bytes(target.pids)


@asynccontextmanager
async def topic(
    target: Target, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """Create a topic, wait until its partitions have leaders, and delete it after the block."""
    name = f"{name}-{time.time_ns() // 1_000_000:x}"
    control = await connect(target.address)
    request = frames.create_topic(name, partitions, {**(configs or {}), **dict(target.configs)})
    error = frames.created(memoryview(await control.ask(request)))
    if error != frames.NO_ERROR:
        control.close()
        raise frames.Refused(f"CreateTopics {name}: error code {error}")
    await _wait_for_leaders(control, name, partitions)
    try:
        yield name
    finally:
        if control.closed.done():
            control = await connect(target.address)
        error = frames.created(memoryview(await control.ask(frames.delete_topic(name))))
        control.close()
        if error != frames.NO_ERROR:
            raise frames.Refused(f"DeleteTopics {name}: error code {error}")


async def _wait_for_leaders(control: Connection, name: str, partitions: int) -> None:
    question = frames.list_offsets(name, partitions)
    for _ in range(600):
        rows = frames.listed(memoryview(await control.ask(question)), name)
        if len(rows) == partitions and all(error == frames.NO_ERROR for error, _ in rows):
            return
        await asyncio.sleep(0.05)
    raise frames.Refused(f"ListOffsets {name}: partitions without leader after 30 s")


@dataclass(eq=False, repr=False)
class Pump:
    """A load of IN_FLIGHT requests on one connection until `following` returns None.

    It calls `following` for each request, and `received` for each reply in the requests' order.
    """

    connection: Connection
    following: Callable[[], bytes | None]
    received: Callable[[memoryview], object]

    def __post_init__(self) -> None:
        self._in_flight = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connection.on_reply = self._reply
        self.connection.closed.add_done_callback(self._lost)

    def start(self) -> None:
        """Send the first requests."""
        for _ in range(IN_FLIGHT):
            self._send()
        self._finish()

    def _send(self) -> None:
        frame = self.following()
        if frame is not None:
            self._in_flight += 1
            self.connection.send(frame)

    def _reply(self, reply: memoryview) -> None:
        self.received(reply)
        self._in_flight -= 1
        self._send()
        self._finish()

    def _lost(self, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled() and not self.done.done():
            self.done.set_exception(closed.exception() or ConnectionError("closed"))

    def _finish(self) -> None:
        if self._in_flight == 0 and not self.done.done():
            self.done.set_result(None)


async def drain(pumps: Sequence[Pump]) -> None:
    """Run all pumps to their end; raise at the first broken connection."""
    for pump in pumps:
        pump.start()
    await asyncio.gather(*(pump.done for pump in pumps))


@asynccontextmanager
async def connections(
    target: Target, count: int, room: int = LARGE
) -> AsyncIterator[list[Connection]]:
    """Open `count` connections, and close them after the block."""
    opened = [await connect(target.address, room) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


def process_tree(roots: Iterable[int]) -> set[int]:
    """Return the running processes among `roots` and all their descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = process_stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found = {pid for pid in roots if pid in parents}
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in found}
        grown = not below <= found
        found |= below
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds of the tree so far, including children that ended."""
    stats = [process_stat(pid) for pid in process_tree(roots)]
    return sum(sum(map(int, fields[11:15])) for fields in stats if fields) / TICK


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of the tree; shared pages count once per process."""
    return sum(own_bytes(pid) for pid in process_tree(roots))


def own_bytes(pid: int) -> int:
    """Return the resident memory of one process, 0 if it ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def process_name(pid: int) -> str:
    """Return the name of a process, empty if it ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def process_stat(pid: int, part: str = "") -> list[str]:
    """Return the fields of a process's or a thread's stat after its name, none if it ended."""
    try:
        text = Path(f"/proc/{pid}/{part}stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
