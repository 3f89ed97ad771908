"""`korvet schedule`: list and cancel the records that wait until they are due."""

from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_requests import on_log
from korvet.config.broker_config import StartError
from korvet.library.async_korvet import AsyncKorvet
from korvet.topics.table import Topic

app = o.group()

PER_CALL = 100
"""Max rows of one call."""
_COLUMNS = ("partition", "number", "due", "id", "records", "bytes")


@o.command(app, "list")
def list_(
    name: o.TopicName,
    target: o.Target,
    out: o.Output,
    partition: o.Partitions = None,
    max_rows: Annotated[
        int, typer.Option("--max", "-n", metavar="N", help="Max rows per partition.", min=1)
    ] = 1000,
) -> None:
    """List a topic's scheduled records, per partition in the order in which they are due."""

    async def rows(log: AsyncKorvet) -> list[table_output.Row]:
        topic = await log.find_topic(name)
        return [
            row
            for number in o.chosen_partitions(name, topic.partitions, partition)
            for row in await _rows(log, topic, number, max_rows)
        ]

    out.listing(_COLUMNS, on_log(rows, target))


@o.command(app, "cancel")
def cancel(
    name: o.TopicName,
    target: o.Target,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The record's korvet-schedule-id.")
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--number", metavar="N", help="The number that `list` prints; needs --partition.", min=0
        ),
    ] = None,
    partition: o.Partitions = None,
) -> None:
    """Remove a scheduled record before it is due."""
    if (id_ is None) == (number is None) or id_ == "":
        raise StartError("Give --id ID, or --number N with --partition N.")
    if number is not None and len(partition or ()) != 1:
        raise StartError("--number needs one --partition: each partition counts from 0.")

    async def run(log: AsyncKorvet) -> int:
        topic = await log.find_topic(name)
        cancelled = 0
        for each in o.chosen_partitions(name, topic.partitions, partition):
            call = topic.partition(each).schedule_cancel(
                id=(id_ or "").encode("utf-8", "surrogateescape"),
                number=-1 if number is None else number,
            )
            cancelled += (await log.store.run(call)).cancelled
        return cancelled

    cancelled = on_log(run, target)
    if not cancelled:
        which = f"the id {id_!r}" if number is None else f"the number {number}"
        raise StartError(
            f"Topic {name!r} has no scheduled record with {which}: it was appended or cancelled."
        )
    table_output.line(f"cancelled {cancelled}")


async def _rows(
    log: AsyncKorvet, topic: Topic, partition: int, max_rows: int
) -> list[table_output.Row]:
    """Return the first rows of a partition."""

    found: list[table_output.Row] = []
    delayed = 0
    while len(found) < max_rows:
        count = min(PER_CALL, max_rows - len(found))
        reply = await log.store.run(
            topic.partition(partition).schedule_list(
                timed=len(found) - delayed, delayed=delayed, most=count
            )
        )
        delayed += reply.delayed
        flat = reply.rows
        found += (_row(partition, *flat[at : at + 5]) for at in range(0, len(flat), 5))
        if not flat:
            break
    return found


def _row(partition: int, *row: int | bytes) -> table_output.Row:
    number, due, id_, records, size = row
    assert isinstance(id_, bytes)
    time = table_output.moment(int(due))
    return (partition, number, time, id_.decode(errors="replace") or None, records, size)
