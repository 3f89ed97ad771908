"""Compare a broker whose console is closed with one whose console is open, in turn.

    python -m benchmarks.console --rounds 7

Two fresh Korvets, each with 1,000 groups on 20 topics of 5 partitions. On the second, three windows
are open (overview, topics, a group) and Prometheus scrapes: the lag of all groups is collected
every 15 s. Each case runs on both in turn; the broker that waits is stopped (SIGSTOP). Prints one
JSON line per case and turn, then medians, and the median of the ratios of each pair.
"""

import argparse
import asyncio
import itertools
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import cases, report
from benchmarks.fresh import Column, command, stop
from korvet import AsyncKorvet, Record
from korvet.embedded_redis.socket import socket_path
from korvet.testing.bench.load import Target, process_tree

CASES = ("p1k", "f1k", "lat")
TOPICS, PARTITIONS = 20, 5
AT_ONCE = 50
START_S = 60.0
FIGURES = ("records_per_s", "cpu_s_per_gb", "ack_p50_ms", "ack_p99_ms", "end_to_end_p99_ms")


@dataclass(slots=True)
class Side:
    """A broker, with a closed or an open console."""

    label: str
    target: Target
    ops: str
    is_watched: bool
    watcher: int | None = None
    """Process that has the pages open."""


@asynccontextmanager
async def broker(options: argparse.Namespace, label: str) -> AsyncIterator[Side]:
    """Run a fresh broker with the groups."""
    folder = Path(tempfile.mkdtemp(prefix="korvet-console-"))
    words = command(Column(options.format, True), folder / "data", "127.0.0.1:0", None)
    process = await asyncio.create_subprocess_exec(
        *words, "--ops", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        lines = [
            (await asyncio.wait_for(process.stdout.readline(), START_S)).decode() for _ in range(2)
        ]
        found = re.fullmatch(r"listening on (\S+)\nconsole at (\S+)\n", "".join(lines))
        if found is None:
            raise RuntimeError(f"korvet did not start: {lines}")
        await make_groups(f"unix://{socket_path(folder / 'data')}", options.groups)
        target = Target(found[1], (process.pid,), options.seconds, options.megabytes)
        yield Side(label, target, found[2], label == "open")
    finally:
        with suppress(ProcessLookupError):
            for pid in process_tree([process.pid]):
                os.kill(pid, signal.SIGCONT)
        await stop(process)
        shutil.rmtree(folder, ignore_errors=True)


async def make_groups(store: str, count: int) -> None:
    """Commit offsets of `count` groups, each on one topic."""
    log = await AsyncKorvet.connect(store)
    names = [f"watched-{number}" for number in range(TOPICS)]
    for name in names:
        await log.create_topic(name, PARTITIONS)
        await log.produce(name, [Record(b"x" * 100, key=b"%d" % at) for at in range(100)])
    places = [{(name, part): 0 for part in range(PARTITIONS)} for name in names]
    for some in (range(at, min(at + AT_ONCE, count)) for at in range(0, count, AT_ONCE)):
        await asyncio.gather(*(log.commit(group(at), places[at % TOPICS]) for at in some))
    await log.close()


def group(number: int) -> str:
    """Return the name of a group."""
    return f"watched-group-{number:04}"


@asynccontextmanager
async def watched(side: Side) -> AsyncIterator[None]:
    """Keep the pages open, if this is the side with an open console."""
    if not side.is_watched:
        yield
        return
    words = (sys.executable, "-m", "benchmarks.watching", side.ops, group(1))
    process = await asyncio.create_subprocess_exec(*words)
    side.watcher = process.pid
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError("the pages could not be read to the end")
    finally:
        side.watcher = None
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        await stop(process)


@asynccontextmanager
async def running(side: Side, other: Side, warm_s: float) -> AsyncIterator[None]:
    """Let only this broker run, and measure it after `warm_s`."""
    _signal(other, signal.SIGSTOP)
    try:
        await asyncio.sleep(warm_s)
        yield
    finally:
        _signal(other, signal.SIGCONT)


def _signal(side: Side, number: signal.Signals) -> None:
    roots = [*side.target.pids, *([side.watcher] if side.watcher else [])]
    for pid in process_tree(roots):
        os.kill(pid, number)


async def measure(options: argparse.Namespace) -> list[report.Line]:
    """Run all cases in turn, and return their lines."""
    lines: list[report.Line] = []
    async with AsyncExitStack() as stack:
        pair = [
            await stack.enter_async_context(broker(options, name)) for name in ("closed", "open")
        ]
        for side in pair:
            await stack.enter_async_context(watched(side))
        await asyncio.sleep(5 * options.warm)  # the pages have just been opened
        for turn, case in itertools.product(range(options.rounds), options.case or CASES):
            for side, other in (pair, pair[::-1])[:: -1 if turn % 2 else 1]:
                async with running(side, other, options.warm):
                    async for line in cases.run([case], side.target, side.label, None):
                        lines.append({**line, "turn": turn})
                        report.emit(lines[-1])
    return lines


def summary(lines: Sequence[report.Line]) -> str:
    """Return a table of the medians, and of the median ratio of the pairs."""
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in sorted(lines, key=lambda each: str(each["turn"]).zfill(4)):
        for name in FIGURES:
            if name in line:
                found[str(line["case"]), name][str(line["label"])].append(float(str(line[name])))
    rows = [
        "| case | figure | closed | open | open / closed, median of pairs |",
        "|---|---|---|---|---|",
    ]
    for (case, name), sides in found.items():
        pairs = [b / a for a, b in zip(sides["closed"], sides["open"], strict=True) if a]
        closed, opened = (statistics.median(sides[side]) for side in ("closed", "open"))
        ratio = statistics.median(pairs) if pairs else float("nan")
        rows.append(f"| {case} | {name} | {closed:,.4g} | {opened:,.4g} | {ratio:.3f} |")
    return "\n".join(rows) + "\n"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    made.add_argument("--rounds", type=int, default=5, help="pairs of turns of each case")
    made.add_argument("--seconds", type=float, default=10.0, help="max duration of a case, s")
    made.add_argument("--megabytes", type=int, default=3000, help="max payload of a case, MB")
    made.add_argument("--groups", type=int, default=1000)
    made.add_argument("--warm", type=float, default=2.0, help="seconds before each turn")
    made.add_argument("--format", choices=("batch", "record"), default="batch")
    made.add_argument("--case", action="append", choices=(*cases.DEFAULT,), help="repeatable")
    return made


if __name__ == "__main__":
    sys.stdout.write(summary(uvloop.run(measure(parser().parse_args()))))
