"""`korvet topics add-partitions`, `trim` and `repair`."""

from typing import Annotated
from uuid import uuid4

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog, on_log
from korvet.cli.broker_log import Log, on_any_log
from korvet.cli.kafka_requests import Via
from korvet.config.setting import StartError
from korvet.scripts.keys import Partition

SPENT = "appends fail"
"""What `_repair` returns for a partition whose ids are exhausted."""


def add_partitions(
    name: o.TopicName,
    count: Annotated[
        int, typer.Argument(metavar="N", help="Number of partitions that the topic then has.")
    ],
    via: Via,
) -> None:
    """Raise a topic's number of partitions.

    Records stay where they are: a key may go to another partition from then on.
    """
    on_any_log(lambda log: log.add_partitions(name, count), via)
    table_output.line(f"{name} has {count} partitions")


def trim(
    name: o.TopicName,
    before: Annotated[str, typer.Option("--before", metavar="POSITION", help=o.POSITIONS)],
    via: Via,
    partition: o.Partitions = None,
    header: o.Header = True,
) -> None:
    """Delete a topic's records below a position.

    In topics of layout `batch` readers start at the position, and the batch that reaches past it
    stays in Redis.
    """
    wanted = o.position("--before", before)

    async def run(log: Log) -> list[table_output.Row]:
        count = (await log.topic(name)).partitions
        first = [part.earliest for part in await log.offsets(name)]
        rows: list[table_output.Row] = []
        for number in o.chosen_partitions(name, count, partition):
            offset = await log.find_offset(name, number, wanted)
            rows.append((number, first[number], await log.delete_records(name, number, offset)))
        return rows

    rows = on_any_log(run, via)
    table_output.table(("partition", "started_at", "starts_at"), rows, header=header)


def repair(
    name: o.TopicName,
    target: o.Target,
    partition: o.Partitions = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete them. Without it they are only counted.")
    ] = False,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Delete the entries of other programs whose ids can have no offset.

    No client reads them, and they use memory until retention reaches them. Records are appended
    above them. Ids of other programs that are lower than the next record's stay refused by Redis:
    it moves no stream back.

    An entry at the greatest ids leaves none for appends. Then the partition's stream is replaced
    with a copy that ends at its last record. Redis needs memory for the copy until then.
    """

    async def run(log: CommandLog) -> list[table_output.Row]:
        topic = await log.find_topic(name)
        rows: list[table_output.Row] = []
        for number in o.chosen_partitions(name, topic.partitions, partition):
            rows.append((number, *await _repair(log, topic.partition(number), yes=yes)))
        return rows

    rows = on_log(run, target)
    columns = ("partition", "without_offset", "bytes", "done")
    table_output.listing(columns, rows, as_json=json, header=header)
    if not yes and any(row[1] or row[3] != "-" for row in rows):
        table_output.note("nothing is deleted: give --yes to delete these entries")


async def repair_spent(log: CommandLog) -> list[str]:
    """Repair each partition that refuses appends; return a sentence for each."""
    done = []
    for each in await log.topics():
        topic = await log.find_topic(each.name)
        for number in range(topic.partitions):
            part = topic.partition(number)
            if (await _repair(log, part, yes=False))[2] == SPENT:
                entries, _, _ = await _repair(log, part, yes=True)
                done.append(
                    f"{topic.name}-{number} accepts appends again: its stream was copied without "
                    f"{entries} entries that had no offset"
                )
    return done


async def _repair(log: CommandLog, partition: Partition, *, yes: bool) -> tuple[int, int, str]:
    """Count the partition's entries without an offset, and their bytes; return what was done.

    With `yes` they are deleted.
    """
    entries, size, after, more, done = 0, 0, b"", 1, "-"
    while more:
        more = (await log.store.run(partition.number_entries())).more
    while True:
        reply = await log.store.run(partition.drop_unnumbered(after=after, delete=int(yes)))
        entries, size, after = entries + reply.entries, size + reply.size, reply.last
        if not after:
            break
    if yes and entries:
        done = "deleted"
    if reply.spent and yes:
        await _rebuild(log, partition)
        done = "copied"
    elif reply.spent:
        done = SPENT
    return entries, size, done


async def _rebuild(log: CommandLog, partition: Partition) -> None:
    """Replace the partition's stream with a copy: its ids are exhausted."""
    token, length, more = uuid4().hex, 0, 1
    while more:
        reply = await log.store.run(partition.rebuild(token=token, length=length, at_most=500))
        if reply.error:
            raise StartError(f"{partition.stream} was changed meanwhile: repeat the command")
        length, more = reply.length, reply.more
        if reply.oversized_id:
            at, options = reply.oversized_id, ("NOMKSTREAM",) if length else ()
            for _, fields in await log.store.submit_command("XRANGE", partition.stream, at, at):
                await log.store.submit_command("XADD", partition.compacted, *options, at, *fields)
            length += 1
