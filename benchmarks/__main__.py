"""Measure a running broker, compare two, time a start, or (the default) run a fresh Korvet."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import uvloop

from benchmarks import cases, fresh, legacy, report, startup
from korvet.testing.bench.load import Target


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command_name", required=True)

    run = commands.add_parser("run", help="measure a running broker; print one JSON line per case")
    run.add_argument("address", metavar="HOST:PORT")
    run.add_argument(
        "--pid",
        type=int,
        action="append",
        default=[],
        help="process id of the broker; its children are included; repeatable",
    )
    run.add_argument(
        "--redis", metavar="URL", help="the broker's Redis, for the cases memory and compact"
    )
    run.add_argument("--label", default="broker")
    _limits(run)

    compare = commands.add_parser(
        "compare", help="print a Markdown table of two brokers or two files of JSON lines"
    )
    compare.add_argument("ours", metavar="HOST:PORT|FILE")
    compare.add_argument("theirs", metavar="HOST:PORT|FILE")
    compare.add_argument("--pid", type=int, action="append", default=[])
    compare.add_argument("--other-pid", type=int, action="append", default=[])
    compare.add_argument("--labels", nargs=2, default=("ours", "theirs"))
    _limits(compare)

    start = commands.add_parser(
        "start", help="measure seconds to the first Metadata response, and idle memory"
    )
    start.add_argument("address", metavar="HOST:PORT")
    start.add_argument("command", nargs=argparse.REMAINDER)

    fresh_command = commands.add_parser(
        "fresh", help="measure a fresh Korvet: both layouts, append-only file on and off"
    )
    fresh_command.add_argument("--format", action="append", choices=("record", "batch"))
    fresh_command.add_argument("--aof", action="append", choices=("on", "off"))
    fresh_command.add_argument("--tls", action="store_true", help="also measure each over TLS")
    fresh_command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    fresh_command.add_argument(
        "--remote", default="", metavar="URL|PROGRAM", help="remote store, or gofakes3 to start"
    )
    _limits(fresh_command, cases.ALL)

    groups = commands.add_parser(
        "groups", help="measure groups and idempotence on a fresh Korvet without append-only file"
    )
    _limits(groups, (*cases.GROUPS, "pidem"))
    groups.set_defaults(
        format=["batch"],
        aof=["off"],
        tls=False,
        remote="",
        set=["group.initial.rebalance.delay.ms=0"],
    )

    legacy_command = commands.add_parser(
        "legacy", help="compare Kafka 0.7, 0.8 and current protocol on a fresh Korvet"
    )
    legacy_command.add_argument(
        "--redis", metavar="URL", help="use this Redis, not an embedded server"
    )
    legacy_command.add_argument("--seconds", type=float, default=5.0)
    legacy_command.add_argument("--megabytes", type=int, default=400)

    table = commands.add_parser("table", help="print a Markdown table of files of JSON lines")
    table.add_argument("files", nargs="+", type=Path)
    return top


def _limits(command: argparse.ArgumentParser, names: Sequence[str] = cases.DEFAULT) -> None:
    command.add_argument(
        "--case", action="append", choices=cases.ALL, help="run only this case; repeatable"
    )
    command.add_argument("--rounds", type=int, default=1, help="number of times to run the list")
    command.add_argument(
        "--seconds", type=float, default=5.0, help="max duration of the timed part of a case, s"
    )
    command.add_argument(
        "--megabytes", type=int, default=400, help="max payload that a case produces, MB"
    )
    command.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="topic config; repeatable",
    )
    command.set_defaults(names=names)


def target(options: argparse.Namespace, address: str, pids: Sequence[int]) -> Target:
    """Return the broker at `address` with the limits of the command line."""
    pairs = [tuple(text.split("=", 1)) for text in options.config]
    configs = tuple((name, value) for name, value in pairs)
    return Target(address, tuple(pids), options.seconds, options.megabytes, configs)


async def run(
    options: argparse.Namespace, broker: Target, label: str, store: str | None
) -> list[report.Line]:
    """Run the selected cases, print each line and return them all."""
    lines: list[report.Line] = []
    for _ in range(options.rounds):
        async for line in cases.run(options.case or options.names, broker, label, store):
            report.emit(line)
            lines.append(line)
    return lines


async def compare(options: argparse.Namespace) -> str:
    """Return the ratio table of two sides: measure an address, read a file."""
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


async def run_fresh(options: argparse.Namespace) -> str:
    """Measure a fresh Korvet for each selected column and return the table."""
    lines: list[report.Line] = []
    over_tls = (False, True) if options.tls else (False,)
    for layout, aof, tls in product(
        options.format or ("batch", "record"), options.aof or ("on", "off"), over_tls
    ):
        tiered = bool(set(options.case or ()) & cases.TIERED)
        remote = options.remote if tiered else ""
        column = fresh.Column(layout, aof == "on", tuple(options.set), tls, tiered, remote)
        async with fresh.korvet(column) as running:
            broker = target(options, running.address, running.pids)
            broker = replace(broker, is_tiered=tiered)
            if layout != "batch":
                broker = replace(broker, cache_bytes=0)
            lines += await run(options, broker, column.label, running.store)
        if not tls:
            lines.append(await _start(replace(column, remote="")))
    return report.table(lines)


async def _start(column: fresh.Column) -> report.Line:
    figures = await fresh.first_start(column)
    line = {"case": "start", "label": column.label, **figures}
    report.emit(line)
    return line


async def main(options: argparse.Namespace) -> str:
    """Run the command and return the text to print at its end."""
    match options.command_name:
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
            return await run_fresh(options)
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
