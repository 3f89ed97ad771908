"""Configs of topics, groups, queues and brokers: what their commands print and change."""

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import typer

from korvet.admin import requests as admin
from korvet.admin.config_edits import ConfigResourceType
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import Requests, Via
from korvet.config.setting import Source

Configs = Annotated[
    list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A config. Repeat.")
]
Deleted = Annotated[
    list[str] | None,
    typer.Option("--delete-config", metavar="NAME", help="Return a config to its default. Repeat."),
]
All = Annotated[bool, typer.Option("--all", help="Configs with default values too.")]


_COLUMNS = ("name", "value", "source")
UNCHANGED = (Source.DEFAULT, Source.STATIC_BROKER)
"""Sources of values that no command has set."""


class Resource(NamedTuple):
    """A resource that has configs. `broker` is the one that is asked, None for any."""

    kind: ConfigResourceType
    name: str
    broker: int | None = None

    def list(self, via: Via, all_: bool, out: o.Output) -> None:
        """Print the configs that are set for the resource, or all."""
        asked = admin.describe_configs(self.kind, [self.name])

        async def run(requests: Requests) -> Sequence[table_output.Row]:
            answer = await requests.call(asked, self.broker)
            (found,) = answer.results
            check(found)
            return [
                (row.name, row.value, Source(row.config_source).name.lower())
                for row in found.configs
                if all_ or row.config_source not in UNCHANGED
            ]

        rows = via.run(run, node_id=self.broker or 0)
        out.listing(_COLUMNS, rows)

    def alter(self, via: Via, config: Sequence[str] | None, delete: Sequence[str] | None) -> None:
        """Change the configs, all or none."""
        edits: list[tuple[str, str | None]] = [*o.assignments("--config", config)]
        edits += [(key, None) for key in delete or ()]
        if not edits:
            raise typer.BadParameter("no change is given: use --config or --delete-config")
        via.run(lambda requests: self.send(requests, edits), node_id=self.broker or 0)
        names = ", ".join(name for name, _ in edits)
        table_output.line(f"altered {self.name or 'all brokers'}: {names}")

    async def send(
        self,
        requests: Requests,
        edits: Iterable[tuple[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Send changes of the configs; None returns one to its default."""
        request = admin.alter_configs(self.kind, self.name, edits, validate_only=validate_only)
        for row in (await requests.call(request, self.broker)).responses:
            check(row)


def add_group_commands(app: typer.Typer) -> None:
    """Add `configs` and `alter` to the commands of groups."""

    @o.command(app, "configs")
    def configs(name: o.GroupName, via: Via, out: o.Output, all_: All = False) -> None:
        """List the configs that are set for a group."""
        Resource(ConfigResourceType.GROUP, name).list(via, all_, out)

    @o.command(app, "alter")
    def alter(name: o.GroupName, via: Via, config: Configs = None, delete: Deleted = None) -> None:
        """Change a group's configs.

        All changes are applied, or none. `korvet settings --of group` describes them. The group
        need not exist yet.
        """
        Resource(ConfigResourceType.GROUP, name).alter(via, config, delete)
