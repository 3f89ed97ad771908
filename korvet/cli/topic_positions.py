"""Options of commands that move a group: topics, and positions in them."""

import os
from datetime import UTC, datetime
from typing import Annotated

import typer

from korvet.cli import completion
from korvet.cli import options as o
from korvet.config.broker_config import StartError
from korvet.log.position import BadPosition, Position, parse_position

Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[=POSITION]",
        autocompletion=completion.topics,
        help="A topic, and its position if it differs from --to. Repeat.",
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="POSITION", help=o.POSITIONS)]


def position(option: str, text: str) -> Position:
    """Parse the position of an option. Raises BadParameter."""
    try:
        return parse_position(text, datetime.now(UTC))
    except BadPosition as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def parse_positions(topics: list[str], to: str | None) -> dict[str, Position]:
    """Parse each topic's position before anything is read or changed."""
    now, found = datetime.now(UTC), {}
    for text in topics:
        name, _, own = text.partition("=")
        position = own or to
        if position is None:
            raise StartError(
                f"The position in {name!r} is missing: give --to POSITION or "
                f"--topic {name}=POSITION."
            )
        try:
            found[name] = parse_position(position, now)
        except BadPosition as error:
            raise StartError(f"{'--topic' if own else '--to'}: {error}") from None
    return found


def check_group_name(name: str) -> None:
    """Raise StartError if no group can have the name."""
    if not name:
        raise StartError("A group needs a name.")
    try:
        name.encode()
    except UnicodeEncodeError:
        # Responses to clients hold group ids as UTF-8: one that is not breaks every listing.
        raise StartError(f"A group's name is UTF-8, not {os.fsencode(name)!r}.") from None
