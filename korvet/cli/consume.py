"""`korvet consume TOPIC`: print records from a position to the end, or follow the topic."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from korvet.cli import options as o

if TYPE_CHECKING:
    from korvet.cli.admin_client import CommandLog
    from korvet.library.record_calls import Position
    from korvet.library.values import StoredRecord

_RECHECK_S = 0.2


def consume(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    target: o.Target,
    from_: Annotated[
        str, typer.Option("--from", metavar="POSITION", help=o.POSITIONS)
    ] = "earliest",
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="text: values. json: whole records.")
    ] = "text",
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Read this partition only.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", help="Stop after N records.", min=1)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="At the end, wait for new records.")
    ] = False,
) -> None:
    """Print a topic's records.

    Partition by partition, each in the order of its offsets.
    """
    from korvet.cli.admin_client import on_log
    from korvet.cli.record_format import to_json
    from korvet.log.position import BadPosition, parse_position

    if format_ not in ("text", "json"):
        raise typer.BadParameter(f"--format must be text or json, not {format_!r}")
    try:
        position = parse_position(from_, datetime.now(UTC))
    except BadPosition as error:
        raise typer.BadParameter(f"--from: {error}") from None

    def write(record: "StoredRecord") -> None:
        if format_ == "json":
            sys.stdout.buffer.write(to_json(record))
        else:
            sys.stdout.buffer.write((record.value or b"") + b"\n")

    async def run(log: "CommandLog") -> None:
        numbers = _partitions(name, (await log.topic(name)).partitions, partition)
        reader = _Reader(log, name, write, most)
        await reader.seek(numbers, position)
        await reader.read_to_end()
        if follow:
            await _follow(log, reader, [log.keys.partition(name, n).channel for n in numbers])

    on_log(run, target)


async def _follow(log: "CommandLog", reader: "_Reader", channels: list[str]) -> None:
    from korvet.store.notifications import Notifier

    async with await Notifier.connect(log.url) as wake, wake.listen(channels) as bell:
        while not reader.is_done:
            await reader.read_to_end()
            await bell.wait(_RECHECK_S)


class _Reader:
    """The next offset of each partition, and how many records are still to be printed."""

    def __init__(
        self,
        log: "CommandLog",
        topic: str,
        write: "Callable[[StoredRecord], None]",
        most: int | None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._write = write
        self._left = most
        self._offsets: dict[int, int] = {}
        self._records = 0

    @property
    def is_done(self) -> bool:
        """Return whether as many records were printed as --max allows."""
        return self._left == 0

    async def seek(self, numbers: list[int], position: "Position") -> None:
        """Set each partition's next offset to the position."""
        for number, ends in enumerate(await self._log.offsets(self._topic)):
            if number not in numbers:
                continue
            self._records += ends.records
            # An offset out of range is reported when it is read.
            self._offsets[number] = (
                position
                if isinstance(position, int)
                else await self._log.find_offset(self._topic, number, position)
            )

    async def read_to_end(self) -> None:
        """Print the records that are there now, as many as --max allows."""
        from korvet.cli.progress import progress

        with progress(f"from {self._topic}", self._records, shown=_writes_file()) as advance:
            for number in self._offsets:
                while not self.is_done and await self._read(number, advance):
                    pass
        sys.stdout.flush()

    async def _read(self, number: int, advance: Callable[[int], None]) -> bool:
        """Print the next records of a partition; return whether there may be more."""
        from korvet.config.broker_config import StartError
        from korvet.errors import ErrorCode
        from korvet.library.values import KorvetError

        offset = self._offsets[number]
        try:
            found = await self._log.fetch(self._topic, number, offset)
        except KorvetError as error:
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            ends = (await self._log.offsets(self._topic))[number]
            raise StartError(
                f"Partition {number} of {self._topic} cannot be read from offset {offset}: "
                f"it holds {ends.earliest} to {ends.latest}."
            ) from None
        records = found.records
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        for record in records:
            self._write(record)
        advance(len(records))
        self._offsets[number] = found.next_offset
        return found.next_offset != offset


def _writes_file() -> bool:
    """Return whether stdout is a file: anything else may show the records on the terminal, where
    a progress bar would overwrite them."""
    import os
    import stat

    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


def _partitions(topic: str, count: int, wanted: int | None) -> list[int]:
    from korvet.config.broker_config import StartError

    if wanted is None:
        return list(range(count))
    if not 0 <= wanted < count:
        raise StartError(f"{topic} has partitions 0 to {count - 1}.")
    return [wanted]
