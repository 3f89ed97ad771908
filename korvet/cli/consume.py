"""`korvet consume TOPIC`: print records from a position to the end, or follow the topic."""

import os
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import record_template
from korvet.cli.avro_records import AvroOptions, AvroReader
from korvet.cli.broker_log import Log, on_any_log
from korvet.cli.kafka_requests import Via
from korvet.cli.record_reader import Newest, Reader
from korvet.library import record_lines
from korvet.library.values import StoredRecord
from korvet.log.position import Position

_NEWEST = re.compile(r"-([1-9]\d{0,8})")
_LEVELS = ("read_uncommitted", "read_committed")


def consume(
    name: o.TopicName,
    via: Via,
    options: AvroOptions,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help=f"Begin here: {o.POSITIONS} -N: at the newest N records of each partition. "
            "Default: the group's offsets, else earliest.",
            show_default=False,
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            metavar="N",
            help="Begin at the newest N records of all partitions together.",
            min=1,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="POSITION", help="End before this position.", show_default=False
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help=o.FORMATS)
    ] = "text",
    partition: o.Partitions = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="Only records with this key.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="REGEX",
            help="Only records with this regular expression of Python in key or value.",
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", help="Stop after N records.", min=1)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="At the end, wait for new records.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            autocompletion=o.complete_groups,
            help="Begin at this group's offsets and commit what was printed.",
        ),
    ] = None,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation-level",
            metavar="LEVEL",
            help="read_uncommitted, or read_committed: without aborted transactions.",
        ),
    ] = _LEVELS[0],
) -> None:
    """Print a topic's records.

    The partitions are merged by timestamp, each in the order of its offsets: of their next records
    the oldest is printed. With --group it commits without being a member: a group that has members
    refuses it. --tail and --from -N count the records before --key and --grep choose among them.
    Avro is printed as JSON.
    """
    avro = options.reader(via.target)
    write = _writer(format_, avro)
    start = _start(from_, tail)
    stop = None if to is None else o.position("--to", to)
    matches = _filter(None if key is None else key.encode(), grep, avro)
    if isolation not in _LEVELS:
        raise typer.BadParameter(
            f"--isolation-level must be {' or '.join(_LEVELS)}, not {isolation!r}"
        )
    if follow and to is not None:
        raise typer.BadParameter("--follow waits for records without end: leave out --to")

    async def run(log: Log) -> None:
        numbers = o.chosen_partitions(name, (await log.topic(name)).partitions, partition)
        reader = Reader(
            log,
            name,
            write,
            matches,
            max_records,
            isolation == "read_committed",
            group,
        )
        await reader.seek(numbers, start, stop)
        await reader.run(numbers if follow else None)

    on_any_log(run, via)
    if avro is not None and avro.has_failed:
        raise typer.Exit(1)


def _start(from_: str | None, tail: int | None) -> Position | Newest | None:
    """Return the start that --from or --tail gives. Raises BadParameter."""
    if tail is not None:
        if from_ is not None:
            raise typer.BadParameter("--tail N says where to begin: leave out --from")
        return Newest(tail, is_total=True)
    newest = _NEWEST.fullmatch(from_ or "")
    if newest:
        return Newest(int(newest[1]), is_total=False)
    return None if from_ is None else o.position("--from", from_)


def _filter(
    key: bytes | None, grep: str | None, avro: AvroReader | None
) -> Callable[[StoredRecord], bool]:
    """Return the filter of --key and --grep. Raises BadParameter."""
    try:
        found = None if grep is None else re.compile(os.fsencode(grep))
    except re.error as error:
        raise typer.BadParameter(f"--grep: {grep!r} is no regular expression: {error}") from None

    def matches(record: StoredRecord) -> bool:
        if key is not None and not (avro.matches(record, key) if avro else record.key == key):
            return False
        if found is None:
            return True
        shown = avro.texts(record) if avro else record
        return any(found.search(part) for part in (shown.key, shown.value) if part is not None)

    return matches


def _writer(text: str, avro: AvroReader | None) -> Callable[[StoredRecord], None]:
    """Return a function that prints a record in the format of --format."""
    if text not in ("json", "text"):
        o.check_format(text)
    encode: Callable[[StoredRecord], bytes]
    if text == "json":
        encode = record_lines.to_json if avro is None else avro.to_json
    else:
        encode = record_template.writer("%s\\n" if text == "text" else text)

    def write(record: StoredRecord) -> None:
        is_text = avro is not None and text != "json"
        sys.stdout.buffer.write(encode(avro.texts(record) if avro and is_text else record))

    return write
