"""`korvet produce TOPIC`: lines of stdin become records, through the append script."""

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from korvet.cli import options as o

if TYPE_CHECKING:
    from korvet.cli.admin_client import Cluster
    from korvet.topics.table import Topic
    from korvet.wire.records import Headers, Record

T = TypeVar("T")
_READ = 1 << 18
_BATCH_RECORDS = 1000
_BATCH_BYTES = 1 << 18
_HEAD, _BESIDE, _BESIDE_HEADER = 61, 40, 10
"""Bytes of a batch, of a record and of a header beside what they hold, at most."""


def produce(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    format_: Annotated[
        str, typer.Option("--format", help="text: a line is a value; json: a line is a record.")
    ] = "text",
    separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="What stands before it is the key."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Where lines go.")
    ] = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Append every line of stdin; with keys to their partition, without in turn."""
    from korvet.cli.admin_client import on_cluster
    from korvet.cli.record_format import from_json, from_text

    if format_ not in ("text", "json"):
        raise typer.BadParameter(f"--format must be text or json, not {format_!r}")
    divider = separator.encode() if separator else None

    def parse(line: bytes, number: int) -> "tuple[int | None, Record]":
        if format_ == "json":
            return from_json(line, number)
        return None, from_text(line, divider)

    async def run(cluster: "Cluster") -> int:
        from korvet.cli.progress import progress

        topic = await cluster.topic(name)
        sender = _Sender(cluster, topic, partition)
        numbers = count(1)
        total = _size_of_stdin()
        with progress(f"to {name}", total, shown=total is not None) as advance:
            reader = _Lines(topic.policy.max_message_bytes)
            while (lines := await _aside(reader.read)) is not None:
                await sender.send(parse(line, next(numbers)) for line in lines if line)
                advance(reader.taken)
        return sender.sent

    sent = on_cluster(run, redis, data_dir, namespace)
    typer.echo(f"{sent} record{'s' * (sent != 1)} appended to {name}", err=True)


async def _aside(read: Callable[[], T]) -> T:
    """What `read` gives, from a thread of its own that nobody waits for when we are interrupted:
    a terminal may have nothing more to say."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            settle = partial(_settle, future, read(), None)
        except Exception as error:
            settle = partial(_settle, future, None, error)
        with suppress(RuntimeError):  # the loop is gone
            loop.call_soon_threadsafe(settle)

    Thread(target=work, daemon=True).start()
    return await future


def _settle(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Lines:
    """Whole lines of stdin, as soon as they are there: `tail -f` may stand before us."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self.taken = 0

    def read(self) -> list[bytes] | None:
        """The lines of the next piece; None at the end."""
        from korvet.config.broker_config import StartError

        piece = os.read(sys.stdin.fileno(), _READ)
        self.taken = len(piece)
        if not piece:
            last, self._rest = self._rest, b""
            return [last] if last else None
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > self._longest:
            raise StartError(f"A line is longer than max.message.bytes ({self._longest}).")
        return lines


class _Sender:
    """Turns records into batches per partition and appends them in one round trip each."""

    def __init__(self, cluster: "Cluster", topic: "Topic", fixed: int | None) -> None:
        from korvet.config.broker_config import StartError

        if fixed is not None and not 0 <= fixed < topic.partitions:
            raise StartError(f"{topic.name} has partitions 0 to {topic.partitions - 1}.")
        self._cluster = cluster
        self._topic = topic
        self._fixed = fixed
        # As far as it is up to us, no batch is larger than the topic takes.
        self._most = min(_BATCH_BYTES, topic.policy.max_message_bytes - _HEAD)
        self._turn = 0
        self.sent = 0

    async def send(self, lines: "Iterator[tuple[int | None, Record]]") -> None:
        """The records are appended, or an error says why the first one was not."""
        from time import time

        from korvet.config.broker_config import StartError
        from korvet.errors import ErrorCode
        from korvet.log.validator import prepare_append
        from korvet.wire import records
        from korvet.wire.records import BadBatch

        now = int(time() * 1000)
        calls, counts = [], []
        try:
            for number, batch in self._batches(lines, now):
                calls.append(
                    prepare_append(
                        self._cluster.keys,
                        self._topic,
                        number,
                        records.build(batch),
                        version=13,
                        now_ms=now,
                        settings=self._cluster.settings,
                    )
                )
                counts.append(len(batch))
        except BadBatch as bad:
            raise StartError(str(bad)) from None
        for reply, size in zip(await self._cluster.store.run_many(calls), counts, strict=True):
            if reply.error:
                raise StartError(f"{self._topic.name}: {ErrorCode(reply.error).message}")
            self.sent += size

    def _batches(
        self, lines: "Iterator[tuple[int | None, Record]]", now: int
    ) -> "Iterator[tuple[int, list[Record]]]":
        batches: dict[int, list[Record]] = {}
        sizes: dict[int, int] = {}
        for wanted, (_, timestamp, key, value, headers) in lines:
            number = self._partition(wanted, key)
            size = _size(key, value, headers)
            full = len(batches.get(number, ())) >= _BATCH_RECORDS
            if number in batches and (full or sizes[number] + size > self._most):
                yield number, batches.pop(number)
                self._turn += 1
            batch = batches.setdefault(number, [])
            time = now if timestamp < 0 else timestamp
            sizes[number] = size + (sizes[number] if batch else 0)
            batch.append((len(batch), time, key, value, headers))
        self._turn += 1
        yield from batches.items()

    def _partition(self, wanted: int | None, key: bytes | None) -> int:
        from aiokafka.partitioner import murmur2

        from korvet.config.broker_config import StartError

        if self._fixed is not None:
            return self._fixed
        if wanted is not None:
            if not 0 <= wanted < self._topic.partitions:
                raise StartError(f"{self._topic.name} has no partition {wanted}.")
            return wanted
        if key is not None:
            # As Kafka's own producers choose it: a key keeps its partition whoever sends it.
            return int((murmur2(key) & 0x7FFFFFFF) % self._topic.partitions)
        return self._turn % self._topic.partitions


def _size(key: bytes | None, value: bytes | None, headers: "Headers") -> int:
    """What a record adds to its batch, at most."""
    size = _BESIDE + len(key or b"") + len(value or b"")
    for name, held in headers:
        size += _BESIDE_HEADER + len(name.encode()) + len(held or b"")
    return size


def _size_of_stdin() -> int | None:
    status = os.fstat(sys.stdin.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
