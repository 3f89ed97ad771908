"""The list of commands in --help: whole sentences at any width, and the exit codes."""

from typing import Any

import typer
from typer.core import TyperGroup

EXIT_CODES = (
    "Exit codes: 0 done, 1 a check found a problem, 2 failed (one sentence on stderr says why), "
    "130 ended by Ctrl-C."
)


class Group(TyperGroup):
    """A command with subcommands, whose summaries are wrapped and not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the first sentence of each command."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, summary(each.help)) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def summary(help_text: str | None) -> str:
    """Return the first paragraph of a command's help, on one line."""
    return " ".join((help_text or "").split("\n\n")[0].split())


def group() -> typer.Typer:
    """Make the app of a command with subcommands."""
    return typer.Typer(cls=Group, rich_markup_mode=None)
