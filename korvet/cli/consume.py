"""`korvet consume TOPIC`: records on stdout, from a place to the end, or for ever."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from korvet.cli import options as o

if TYPE_CHECKING:
    from korvet.cli.admin_client import Cluster
    from korvet.log.position import Place
    from korvet.scripts.log import ListOffsetsReply
    from korvet.topics.table import Topic
    from korvet.wire.records import Record

_READ = 1 << 20
_RECHECK_S = 0.2


def consume(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help=o.PLACES,
        ),
    ] = "earliest",
    format_: Annotated[
        str, typer.Option("--format", help="text: the values; json: whole records.")
    ] = "text",
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Only this one.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", help="Stop after so many.", min=1)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="At the end, wait for more.")
    ] = False,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Print a topic's records, partition by partition, in order within each."""
    from korvet.cli.admin_client import on_cluster
    from korvet.cli.record_format import to_json
    from korvet.log.position import BadPosition, parse_place

    if format_ not in ("text", "json"):
        raise typer.BadParameter(f"--format must be text or json, not {format_!r}")
    try:
        where = parse_place(from_, datetime.now(UTC))
    except BadPosition as error:
        raise typer.BadParameter(f"--from: {error}") from None

    def write(number: int, record: "Record") -> None:
        if format_ == "json":
            sys.stdout.buffer.write(to_json(name, number, record))
        else:
            sys.stdout.buffer.write((record[3] or b"") + b"\n")

    async def run(cluster: "Cluster") -> None:
        from korvet.store.notifications import Notifier

        topic = await cluster.topic(name)
        numbers = _partitions(topic, partition)
        tape = _Tape(cluster, topic, write, most)
        await tape.begin(numbers, where)
        if not follow:
            await tape.to_the_end()
            return
        channels = [cluster.keys.partition(name, number).channel for number in numbers]
        async with await Notifier.connect(cluster.url) as wake, wake.listen(channels) as bell:
            while not tape.full:
                await tape.to_the_end()
                await bell.wait(_RECHECK_S)

    on_cluster(run, redis, data_dir, namespace)


class _Tape:
    """Where each partition has been read to, and how many more records are wanted."""

    def __init__(
        self,
        cluster: "Cluster",
        topic: "Topic",
        write: "Callable[[int, Record], None]",
        most: int | None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._write = write
        self._left = most
        self._places: dict[int, int] = {}
        self._records = 0

    @property
    def full(self) -> bool:
        """Whether as many were written as were asked for."""
        return self._left == 0

    async def begin(self, numbers: list[int], where: "Place") -> None:
        """Each partition stands where reading begins."""
        from korvet.log.offset_for_time import find_time

        cluster, topic = self._cluster, self._topic
        for number in numbers:
            bounds = await self._bounds(number)
            self._records += bounds.records
            place = bounds.next
            if isinstance(where, datetime):
                moment = int(where.timestamp() * 1000)
                found = await find_time(
                    cluster.reader, cluster.store, cluster.keys, topic, number, moment
                )
                place = found[1] if found else bounds.next
            elif isinstance(where, int):
                place = where
            elif where == "earliest":
                place = bounds.first
            self._places[number] = place

    async def _bounds(self, number: int) -> "ListOffsetsReply":
        from korvet.scripts import log

        cluster, topic = self._cluster, self._topic
        call = log.list_offsets(cluster.keys, topic.name, number, topic_id=topic.id)
        return await cluster.store.run(call)

    async def to_the_end(self) -> None:
        """Everything that is there now has been written, up to the number asked for."""
        from korvet.cli.progress import progress

        shown = not sys.stdout.isatty()
        with progress(f"from {self._topic.name}", self._records, shown=shown) as advance:
            for number in self._places:
                while not self.full and await self._step(number, advance):
                    pass
        sys.stdout.flush()

    async def _step(self, number: int, advance: Callable[[int], None]) -> bool:
        """Whether there was more in the partition."""
        from korvet.config.broker_config import StartError
        from korvet.log.entry import records_in

        place = self._places[number]
        found = await self._cluster.reader.read(self._topic, number, place, _READ)
        if found.error:
            bounds = await self._bounds(number)
            raise StartError(
                f"Partition {number} of {self._topic.name} cannot be read from offset {place}: "
                f"{found.error.message} It holds {bounds.start} to {bounds.next}."
            )
        if not found.entries:
            return False
        records = [r for r in records_in(self._topic, found.entries) if r[0] >= place]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        for record in records:
            self._write(number, record)
        advance(len(records))
        self._places[number] = found.entries[-1].last + 1
        return True


def _partitions(topic: "Topic", wanted: int | None) -> list[int]:
    from korvet.config.broker_config import StartError

    if wanted is None:
        return list(range(topic.partitions))
    if not 0 <= wanted < topic.partitions:
        raise StartError(f"{topic.name} has partitions 0 to {topic.partitions - 1}.")
    return [wanted]
