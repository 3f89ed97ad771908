"""`korvet consume TOPIC`: print records from a position to the end, or follow the topic."""

import os
import stat
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from korvet.base.errors import ErrorCode
from korvet.cli import avro_records, record_template
from korvet.cli import options as o
from korvet.cli.avro_records import AvroReader
from korvet.cli.broker_log import BrokerLog, Log, on_any_log
from korvet.cli.kafka_requests import Via
from korvet.cli.record_reader import Reader
from korvet.cli.table_output import progress
from korvet.config.broker_config import StartError
from korvet.library import record_lines
from korvet.library.values import KorvetError, LostRecords, StoredRecord
from korvet.store.notifications import Notifier

_RECHECK_S = 0.2
_LEVELS = ("read_uncommitted", "read_committed")


def consume(
    name: o.TopicName,
    via: Via,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help=f"Begin here: {o.POSITIONS} Default: the group's offsets, else earliest.",
            show_default=False,
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
    max_records: Annotated[
        int | None, typer.Option("--max", metavar="N", help="Stop after N records.", min=1)
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
    schema: avro_records.SchemaFile = None,
    key_schema: avro_records.KeySchemaFile = None,
    registry: avro_records.RegistryUrl = None,
) -> None:
    """Print a topic's records.

    Partition by partition, each in the order of its offsets. With --group it commits without
    being a member: a group that has members refuses it. Avro is printed as JSON.
    """
    avro = avro_records.reader(via.target, registry, key_schema, schema)
    write = _writer(format_, avro)
    start = None if from_ is None else o.position("--from", from_)
    stop = None if to is None else o.position("--to", to)
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
            max_records=max_records,
            matches=_by_key(None if key is None else key.encode(), avro),
            committed=isolation == "read_committed",
            group=group,
        )
        await reader.seek(numbers, start, stop)
        await _read(log, reader, name, numbers if follow else None)

    on_any_log(run, via)
    if avro is not None and avro.has_failed:
        raise typer.Exit(1)


def _by_key(wanted: bytes | None, avro: AvroReader | None) -> Callable[[StoredRecord], bool]:
    """Return the filter of --key."""
    if wanted is None:
        return lambda record: True
    if avro is None:
        return lambda record: record.key == wanted
    return lambda record: avro.matches(record, wanted)


async def _read(log: Log, reader: Reader, name: str, followed: list[int] | None) -> None:
    """Print the records to the end, then those that arrive in the partitions to be followed."""
    try:
        with progress(f"from {name}", reader.records, shown=_writes_file()) as advance:
            await _explained(log, reader, name, advance)
        if followed is not None:
            await _follow(log, reader, name, followed)
    except BrokenPipeError:
        raise  # what the reader of our output has not read is not committed
    except BaseException:
        await reader.commit()
        raise
    await reader.commit()


async def _follow(log: Log, reader: Reader, name: str, numbers: list[int]) -> None:
    async def read(wait: Callable[[], Awaitable[object]]) -> None:
        while not reader.is_done:
            await _explained(log, reader, name, lambda count: None)
            await reader.commit()
            await wait()

    if isinstance(log, BrokerLog):
        await read(lambda: log.wait(name, reader.positions))
        return
    channels = [log.keys.partition(name, number).channel for number in numbers]
    async with await Notifier.connect(log.url) as notifier, notifier.listen(channels) as wake:
        await read(lambda: wake.wait(_RECHECK_S))


async def _explained(log: Log, reader: Reader, name: str, advance: Callable[[int], None]) -> None:
    """Read to the end. Raises StartError with the offsets of a partition that has others."""
    try:
        await reader.read_to_end(advance)
    except KorvetError as error:
        if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        ends, at = (await log.offsets(name))[reader.reading], reader.positions[reader.reading]
        if isinstance(error, LostRecords) and at <= ends.latest:
            raise StartError(str(error)) from None
        raise StartError(
            f"Partition {reader.reading} of {name} cannot be read from offset {at}: it holds "
            f"{ends.earliest} to {ends.latest}."
        ) from None


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


def _writes_file() -> bool:
    """Return whether stdout is a file: anything else may show the records on the terminal, where
    a progress bar would overwrite them."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False
