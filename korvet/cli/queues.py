"""`korvet queues`: list, describe and move share groups; put dead letters back."""

from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import queue_replay, queue_reset, queue_view, table_output
from korvet.cli.admin_client import on_log
from korvet.cli.help_text import group
from korvet.cli.live import show
from korvet.cli.topic_positions import To, parse_positions

app = group()

_Name = Annotated[str, typer.Argument(metavar="GROUP", help="The share group's id.")]


@o.command(app, "list")
def list_(target: o.Target, json: o.Json = False, header: o.Header = True) -> None:
    """List share groups with state, members and the records that are left.

    Available and acquired records are in delivery; the lag counts these and all later ones.
    """
    rows = on_log(queue_view.summaries, target)
    table_output.listing(queue_view.SUMMARY, rows, as_json=json, header=header)


@o.command(app, "describe")
def describe(
    name: _Name,
    target: o.Target,
    watch: o.Watch = None,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Print a share group's members, partitions and delivered records.

    A lock ends at `ends`. Records without a member were delivered and are available again, from
    `ends` on.
    """
    show(lambda log: queue_view.read(log, name), target, watch=watch, as_json=json, header=header)


@o.command(app, "reset")
def reset(
    name: _Name,
    target: o.Target,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[=POSITION]",
            help="A topic, and its position if it differs from --to. Repeat. "
            "Default: all topics that the group has read.",
        ),
    ] = [],  # noqa: B006
    to: To = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where the group would move; change nothing.")
    ] = False,
    json: o.Json = False,
    header: o.Header = True,
) -> None:
    """Move a share group to a position in topics.

    The group must have no members. All records from the position on are available again, with no
    deliveries counted; `records` says how many there are.
    """
    if not topic and to is None:
        raise typer.BadParameter(f"give --to POSITION: {o.POSITIONS}")
    wanted = parse_positions(topic or ["*"], to)
    rows = on_log(lambda log: queue_reset.reset(log, name, wanted, dry_run=dry_run), target)
    table_output.listing(queue_reset.COLUMNS, rows, as_json=json, header=header)


@o.command(app, "replay")
def replay(
    queue: Annotated[
        str, typer.Argument(metavar="DLQ", help="The topic that is the dead letter queue.")
    ],
    target: o.Target,
    json: o.Json = False,
) -> None:
    """Put the records of a dead letter queue back into the partitions they came from.

    Each record is put back once, also if the command is ended and repeated. It continues after the
    dead letters of the last replay: the committed offsets of the group korvet.replay.
    """
    done = on_log(lambda log: queue_replay.Replay(log, queue).run(), target)
    if json:
        table_output.document(done)
        return
    table_output.line(f"{done.records} records put back")
    if done.gone:
        table_output.line(f"{done.gone} records are gone: neither the queue nor the log has them")
    if done.not_dead_letters:
        table_output.line(f"{done.not_dead_letters} records of {queue} are no dead letters")
