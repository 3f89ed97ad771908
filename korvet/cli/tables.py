"""`korvet tables`: read the newest values of a topic's keys, compare them with its log."""

import hashlib
import sys
from collections.abc import Collection
from typing import Annotated

import typer

from korvet.base.bounded import chunks
from korvet.cli import options as o
from korvet.cli import record_template, table_output
from korvet.cli.kafka_requests import on_log
from korvet.config.broker_config import StartError
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.record_calls import FETCH_BYTES
from korvet.library.session import check
from korvet.library.tables import AsyncTable
from korvet.library.values import StoredRecord
from korvet.log.layouts import layout_of, records_in
from korvet.log.read_result import ReadRequest
from korvet.topics.table import Topic

app = o.group()

AT_ONCE = 100
"""Keys of one HMGET."""
_COLUMNS = ("partition", "equal", "wrong", "not_in_log")
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", help="Only this partition.", min=0)
]


@o.command(app, "get")
def get(
    name: o.TopicName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key.")],
    target: o.Target,
    partition: Partition = None,
) -> None:
    """Print the newest value of a key.

    The exit code is 1 if it has none.
    """

    async def run(log: AsyncKorvet) -> bytes | None:
        table = await log.table(name)
        return await table.get(key.encode("utf-8", "surrogateescape"), partition)

    value = on_log(run, target)
    if value is None:
        raise typer.Exit(1)
    sys.stdout.buffer.write(value + b"\n")


@o.command(app, "scan")
def scan(
    name: o.TopicName,
    target: o.Target,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="%k is the key, %s the value, %p the partition"
        ),
    ] = "%k\\t%s\\n",
) -> None:
    """Print every key and its newest value, in no order.

    Keys that are appended meanwhile may be left out, or printed twice.
    """
    encode = record_template.writer(format_)

    async def run(log: AsyncKorvet) -> None:
        table = await log.table(name)
        async for number, key, value in table.rows():
            record = StoredRecord(name, number, -1, -1, key, value, ())
            sys.stdout.buffer.write(encode(record))

    on_log(run, target)


@o.command(app, "verify")
def verify(
    name: o.TopicName, target: o.Target, out: o.Output, partition: o.Partitions = None
) -> None:
    """Compare the table with the records of the log; needs memory for a hash of each key's value.

    Keys that are not in the log have a newest record that retention, `topics trim` or XTRIM has
    removed, or another program wrote them. The exit code is 1 if a value is wrong.
    """

    async def run(log: AsyncKorvet) -> list[table_output.Row]:
        table = await log.table(name)
        topic = await log.find_topic(name)
        return [
            await _compare(log, table, topic, number)
            for number in o.chosen_partitions(name, topic.partitions, partition)
        ]

    rows = on_log(run, target)
    out.listing(_COLUMNS, rows)
    if any(row[2] for row in rows):
        raise typer.Exit(1)


@o.command(app, "rebuild")
def rebuild(name: o.TopicName, target: o.Target, partition: o.Partitions = None) -> None:
    """Empty the table, and add the records that Redis has.

    Until that is done keys are missing. Those that `verify` counts as not in the log are removed.
    """

    async def run(log: AsyncKorvet) -> None:
        table = await log.table(name)
        topic = await log.find_topic(name)
        for number in o.chosen_partitions(name, topic.partitions, partition):
            reply = await log.store.run(topic.partition(number).set_table(action="rebuild"))
            check(reply.error, f"Partition {number} of {name!r} has no table")
            await table.fill(topic, number)
            keys = await log.store.command("HLEN", topic.partition(number).table)
            table_output.line(f"partition {number} has {keys} keys")

    on_log(run, target)


def _hash(value: bytes | None) -> bytes | None:
    """Return a hash of a value, None for none."""
    return None if value is None else hashlib.blake2b(value, digest_size=16).digest()


class _Fold:
    """The newest value of each key of a partition's log, as hashes."""

    def __init__(self, log: AsyncKorvet, topic: Topic, number: int, start: int) -> None:
        self._log = log
        self._topic = topic
        self._number = number
        self._offset = start
        self.values: dict[bytes, bytes | None] = {}

    async def read(self, keys: Collection[bytes] = ()) -> set[tuple[bytes, bytes | None]]:
        """Read to the end; return these keys with all values that they had.

        From the last stable offset on records of transactions are left out.
        """
        values: set[tuple[bytes, bytes | None]] = set()
        self._offset = await self._read(self._offset, keys, values, committed=True)
        await self._read(self._offset, keys, values, committed=False)
        return values

    async def _read(
        self,
        offset: int,
        keys: Collection[bytes],
        values: set[tuple[bytes, bytes | None]],
        *,
        committed: bool,
    ) -> int:
        layout = layout_of(self._topic)
        while True:
            request = ReadRequest(
                self._topic, self._number, offset, FETCH_BYTES, committed=committed, decompress=True
            )
            part = await self._log.reader.read(request)
            if part.error:
                raise StartError(
                    f"Partition {self._number} of {self._topic.name} cannot be read from offset "
                    f"{offset}: records were removed meanwhile, or are in the remote store only."
                )
            entries = part.entries
            if not entries:
                return offset
            offset = entries[-1].last + 1
            if not committed:
                entries = [entry for entry in entries if not layout.is_transactional(entry)]
            for _, _, key, value, _ in records_in(self._topic, entries, part.aborted):
                if key is not None:
                    self.values[key] = _hash(value)
                    if key in keys:
                        values.add((key, self.values[key]))


async def _compare(
    log: AsyncKorvet, table: AsyncTable, topic: Topic, number: int
) -> table_output.Row:
    """Return the numbers of keys whose value is that of the log, is another one, not in the log."""
    await table.fill(topic, number)
    bounds = await log.store.run(topic.partition(number).list_offsets())
    fold = _Fold(log, topic, number, max(bounds.local_first, 0))
    await fold.read()
    missing = {key for key, value in fold.values.items() if value is not None}
    equal, gone, suspects = 0, 0, set[bytes]()
    async for _, key, value in table.rows((number,)):
        missing.discard(key)
        if key not in fold.values:
            gone += 1
        elif fold.values[key] == _hash(value):
            equal += 1
        else:
            suspects.add(key)
    wrong = 0
    for keys in chunks(sorted(suspects | missing), AT_ONCE):
        known = {(key, fold.values[key]) for key in keys}
        found = await log.store.command("HMGET", topic.partition(number).table, *keys)
        # A record that was appended since the log was read may be in the table.
        known |= await fold.read(set(keys))
        same = sum((key, _hash(value)) in known for key, value in zip(keys, found, strict=True))
        equal, wrong = equal + same, wrong + len(keys) - same
    return number, equal, wrong, gone
