"""`korvet produce TOPIC`: append the lines of stdin as records."""

import asyncio
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer

from korvet.cli import avro_records, record_template, table_output
from korvet.cli import options as o
from korvet.cli.broker_log import MAX_BATCH_BYTES, BrokerLog
from korvet.cli.kafka_requests import Requests, Via, on_log
from korvet.cli.table_output import progress
from korvet.config.broker_config import StartError
from korvet.library import record_lines
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import Record

T = TypeVar("T")
_Placed = tuple[int | None, Record]
_Append = Callable[[list[_Placed]], Awaitable[int]]
_READ_BYTES = 1 << 18


def produce(
    name: o.TopicName,
    via: Via,
    options: avro_records.AvroOptions,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help=f"What a line is. {o.FORMATS}")
    ] = "text",
    separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="Splits a line into key and value."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The key of records that name none.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header. Repeat."),
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", "-Z", help="An empty value is null: a tombstone.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="Append to this partition.")
    ] = None,
) -> None:
    """Append each line of stdin as a record.

    Equal keys go to one partition, as with Kafka's own producers. With a schema or a registry the
    values are read as JSON and appended as Avro.
    """
    avro = options.encoders(name, via.target)
    parse = _parser(format_, separator, avro)
    added = _Additions(
        partition, None if key is None else key.encode(), _headers(header or ()), tombstones
    )

    async def run(append: _Append, max_line: int) -> int:
        sent, at = 0, 0
        encode = avro_records.encoding(avro, lambda: at)
        total = _size_of_stdin()
        if sys.stdin.isatty():
            table_output.note("each line is a record; Ctrl-D ends")
        with progress(f"to {name}", total, shown=total is not None) as advance:
            reader = _Lines(max_line)
            while (lines := await _in_thread(reader.read)) is not None:
                records = []
                for line in filter(None, lines):
                    at += 1
                    number, record = added.to(*parse(line, at))
                    records.append((number, encode(record)))
                sent += await append(records)
                advance(reader.read_bytes)
        return sent

    async def here(log: AsyncKorvet) -> int:
        async def append(records: list[_Placed]) -> int:
            return sum(each.records for each in await log.produce_to(name, records))

        return await run(append, (await log.find_topic(name)).policy.max_message_bytes)

    async def by_brokers(requests: Requests) -> int:
        log = BrokerLog(requests)
        await log.topic(name)
        return await run(partial(log.produce_to, name), MAX_BATCH_BYTES)

    sent = via.run(by_brokers) if via.has_brokers else on_log(here, via.target)
    typer.echo(f"{sent} record{'s' * (sent != 1)} appended to {name}", err=True)


def _parser(
    text: str, separator: str | None, avro: Collection[str]
) -> Callable[[bytes, int], tuple[int | None, Record]]:
    """Return a function that reads a line in the format of --format."""
    if text == "json":
        return partial(record_lines.from_json, parts=avro)
    if text == "text":
        divider = separator.encode() if separator else None
        return lambda line, number: (None, record_lines.from_text(line, divider))
    o.check_format(text)
    return record_template.reader(text)


def _headers(texts: Iterable[str]) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--header needs NAME=VALUE, not {text!r}")
        found.append((name, value.encode()))
    return found


class _Additions(NamedTuple):
    """Parts that the options add to each record."""

    partition: int | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    tombstones: bool

    def to(self, partition: int | None, record: Record) -> tuple[int | None, Record]:
        """Return the partition that the record goes to, and the record with the additions."""
        changed = msgspec.structs.replace(
            record,
            value=None if self.tombstones and not record.value else record.value,
            key=self.key if record.key is None else record.key,
            headers=[*record.headers, *self.headers],
        )
        return partition if self.partition is None else self.partition, changed


async def _in_thread(read: Callable[[], T]) -> T:
    """Run `read` in a daemon thread: a terminal may send no more lines, and Ctrl-C must end us."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            settle = partial(_settle, future, read(), None)
        except Exception as error:
            settle = partial(_settle, future, None, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle)

    Thread(target=work, daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Lines:
    """Whole lines of stdin, as soon as they arrive: `tail -f` may write them."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._partial_line = b""
        self.read_bytes = 0

    def read(self) -> list[bytes] | None:
        """Return the lines of the next piece; None at the end."""
        piece = os.read(sys.stdin.fileno(), _READ_BYTES)
        self.read_bytes = len(piece)
        if not piece:
            last, self._partial_line = self._partial_line, b""
            return [last] if last else None
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        if len(self._partial_line) > self._longest:
            raise StartError(f"A line is longer than max.message.bytes ({self._longest}).")
        return lines


def _size_of_stdin() -> int | None:
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
