"""Measure brokers: a running one, two of them, a start, or (without words) a fresh Korvet."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks import cases, fresh, legacy, report, startup
from benchmarks.load import Target


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True)

    run = verbs.add_parser("run", help="the cases against a running broker, one JSON line each")
    run.add_argument("address", metavar="HOST:PORT")
    run.add_argument(
        "--pid",
        type=int,
        action="append",
        default=[],
        help="broker process; its children count too",
    )
    run.add_argument("--redis", metavar="URL", help="the broker's Redis, for the memory case")
    run.add_argument("--label", default="broker")
    _bounds(run)

    compare = verbs.add_parser(
        "compare", help="a Markdown table of two brokers, or of two files of lines"
    )
    compare.add_argument("ours", metavar="HOST:PORT|FILE")
    compare.add_argument("theirs", metavar="HOST:PORT|FILE")
    compare.add_argument("--pid", type=int, action="append", default=[])
    compare.add_argument("--other-pid", type=int, action="append", default=[])
    compare.add_argument("--labels", nargs=2, default=("ours", "theirs"))
    _bounds(compare)

    start = verbs.add_parser("start", help="seconds to the first Metadata reply, memory at rest")
    start.add_argument("address", metavar="HOST:PORT")
    start.add_argument("command", nargs=argparse.REMAINDER)

    own = verbs.add_parser(
        "fresh", help="every case on a fresh Korvet: both layouts, append-only file on and off"
    )
    own.add_argument("--format", action="append", choices=("record", "batch"))
    own.add_argument("--aof", action="append", choices=("on", "off"))
    own.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    _bounds(own, cases.ALL)

    groups = verbs.add_parser(
        "groups", help="join, heartbeats, commits, idempotence: a fresh Korvet, no append-only file"
    )
    _bounds(groups, (*cases.GROUPS, "pidem"))
    groups.set_defaults(format=["batch"], aof=["off"], set=["group.initial.rebalance.delay.ms=0"])

    old = verbs.add_parser("legacy", help="Kafka 0.7 and 0.8 beside today's protocol, fresh Korvet")
    old.add_argument("--redis", metavar="URL", help="instead of a server of its own")
    old.add_argument("--seconds", type=float, default=5.0)
    old.add_argument("--megabytes", type=int, default=400)

    table = verbs.add_parser("table", help="a Markdown table of files of JSON lines")
    table.add_argument("files", nargs="+", type=Path)
    return top


def _bounds(verb: argparse.ArgumentParser, names: Sequence[str] = cases.DEFAULT) -> None:
    verb.add_argument("--case", action="append", choices=cases.ALL, help="only these; repeatable")
    verb.add_argument("--rounds", type=int, default=1, help="the whole list this many times")
    verb.add_argument("--seconds", type=float, default=5.0, help="longest timed part of a case")
    verb.add_argument("--megabytes", type=int, default=400, help="most payload a case produces")
    verb.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="topic config"
    )
    verb.set_defaults(names=names)


def target(options: argparse.Namespace, address: str, pids: Sequence[int]) -> Target:
    """The broker at `address` under the bounds of the command line."""
    pairs = [tuple(text.split("=", 1)) for text in options.config]
    configs = tuple((name, value) for name, value in pairs)
    return Target(address, tuple(pids), options.seconds, options.megabytes, configs)


async def run(
    options: argparse.Namespace, broker: Target, label: str, store: str | None
) -> list[report.Line]:
    """Every line measured, printed as it came."""
    lines: list[report.Line] = []
    for _ in range(options.rounds):
        async for line in cases.run(options.case or options.names, broker, label, store):
            report.emit(line)
            lines.append(line)
    return lines


async def compare(options: argparse.Namespace) -> str:
    """The ratio table; files are read, addresses are measured."""
    sides = []
    for place, pids, label in (
        (options.ours, options.pid, options.labels[0]),
        (options.theirs, options.other_pid, options.labels[1]),
    ):
        if _is_address(place):
            sides.append(await run(options, target(options, place, pids), label, None))
        else:
            sides.append(report.load(Path(place)))
    return report.ratios(sides[0], sides[1], tuple(options.labels))


def _is_address(place: str) -> bool:
    return place.rpartition(":")[2].isdigit()


async def own(options: argparse.Namespace) -> str:
    """The table of all columns asked for."""
    lines: list[report.Line] = []
    for layout in options.format or ("batch", "record"):
        for aof in options.aof or ("on", "off"):
            column = fresh.Column(layout, aof == "on", tuple(options.set))
            async with fresh.korvet(column) as running:
                broker = target(options, running.address, running.pids)
                lines += await run(options, broker, column.label, running.store)
            lines.append(await _start(column))
    return report.table(lines)


async def _start(column: fresh.Column) -> report.Line:
    figures = await fresh.first_start(column)
    line = {"case": "start", "label": column.label, **figures}
    report.emit(line)
    return line


async def main(options: argparse.Namespace) -> str:
    """The text to print at the end."""
    match options.verb:
        case "run":
            await run(
                options, target(options, options.address, options.pid), options.label, options.redis
            )
        case "compare":
            return await compare(options)
        case "start":
            command = [word for word in options.command if word != "--"]
            report.emit({"case": "start", **await startup.start(options.address, command)})
        case "fresh" | "groups":
            return await own(options)
        case "legacy":
            lines: list[report.Line] = []
            async for line in legacy.run(options.seconds, options.megabytes, options.redis):
                report.emit(line)
                lines.append(line)
            return legacy.summary(lines)
        case "table":
            return report.table([line for path in options.files for line in report.load(path)])
    return ""


sys.stdout.write(uvloop.run(main(parser().parse_args(sys.argv[1:] or ["fresh"]))))
