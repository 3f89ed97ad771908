"""Generate the table of commands of the command-line page."""

from collections.abc import Iterator
from typing import Any

import typer

from korvet.cli import app
from korvet.cli.help_text import summary


def render() -> str:
    """Return every command with its summary as a table."""
    rows = ["| Command | What it does |", "|---|---|"]
    rows += [f"| `{name}` | {text} |" for name, text in _commands(typer.main.get_command(app))]
    return "\n".join(rows) + "\n"


def _commands(command: Any, name: str = "korvet") -> Iterator[tuple[str, str]]:
    """Yield the name and the summary of each command without subcommands."""
    found = getattr(command, "commands", {})
    for word, each in found.items():
        yield from _commands(each, f"{name} {word}")
    if not found:
        yield name, summary(command.help)
