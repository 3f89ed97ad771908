"""Generate the table of commands of the command-line page."""

from collections.abc import Iterator
from typing import Any

from korvet.cli import COMMANDS, load
from korvet.cli.options import summary


def render() -> str:
    """Return every command with its summary as a table."""
    rows = ["| Command | What it does |", "|---|---|"]
    rows += [
        f"| `{name}` | {text} |"
        for each in COMMANDS
        for name, text in _commands(load(each), f"korvet {each}")
    ]
    return "\n".join(rows) + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the summary of each command without subcommands."""
    found = getattr(command, "commands", {})
    for word, each in found.items():
        yield from _commands(each, f"{name} {word}")
    if not found:
        yield name, summary(command.help)
