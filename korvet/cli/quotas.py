"""`korvet quotas`: list, set and remove the quotas of users, client ids and addresses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from korvet.admin.requests import alter_quotas
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import Requests, Via
from korvet.security.quotas import CLIENT_ID, CONNECTIONS, ENTITY_TYPES, IP, OF_CLIENTS, USER
from korvet.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

app = o.group()

DEFAULT = "(default)"
_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True)
class Entity(o.Options):
    """The options that name an entity."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")] = None
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="Of clients with this id.")
    ] = None
    ip: Annotated[
        str | None,
        typer.Option("--ip", metavar="ADDRESS", help="Of connections from this address."),
    ] = None
    default: Annotated[
        list[str] | None,
        typer.Option(
            "--default",
            metavar="TYPE",
            help="Of each user, client-id or ip without another quota. Repeat.",
        ),
    ] = None

    def parts(self) -> dict[str, str | None]:
        """Return the names of the entity by type, None for a default."""
        defaults = self.default or ()
        unknown = [kind for kind in defaults if kind not in ENTITY_TYPES]
        if unknown:
            raise typer.BadParameter(
                f"--default must be one of {', '.join(ENTITY_TYPES)}, not {unknown[0]!r}"
            )
        given = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {kind: name for kind, name in given.items() if name is not None or kind in defaults}


_Quotas = Annotated[
    list[str],
    typer.Argument(metavar="NAME=VALUE...", help=f"{', '.join(OF_CLIENTS)} or {CONNECTIONS}."),
]
_Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The quotas.")]


@o.command(app, "list")
def list_(via: Via, entity: Entity, out: o.Output) -> None:
    """List quotas: all, or those of the entities that have these names."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.parts().items()
    ]

    async def run(requests: Requests) -> list[table_output.Row]:
        rows: list[table_output.Row] = []
        for entry in await read(requests, components):
            of = {row.entity_type: row.entity_name or DEFAULT for row in entry.entity}
            names = [of.get(kind) for kind in ENTITY_TYPES]
            rows += [(*names, each.key, shown(each.value)) for each in entry.values]
        return sorted(rows, key=lambda row: [str(part or "") for part in row])

    columns = (*(kind.replace("-", "_") for kind in ENTITY_TYPES), "quota", "value")
    out.listing(columns, via.run(run))


@o.command(app, "set")
def set_(quotas: _Quotas, via: Via, entity: Entity) -> None:
    """Set quotas of one entity. They hold for all brokers together, within a second.

    Rates are bytes, partitions or connections a second; request_percentage is of one core.
    """
    values = [(name, number(name, value)) for name, value in o.assignments("a quota", quotas)]
    _alter(via, entity, values)
    table_output.line(f"set {', '.join(name for name, _ in values)}")


@o.command(app, "remove")
def remove(names: _Names, via: Via, entity: Entity) -> None:
    """Remove quotas of one entity."""
    _alter(via, entity, [(name, None) for name in names])
    table_output.line(f"removed {', '.join(names)}")


def _alter(via: Via, entity: Entity, quotas: Sequence[tuple[str, float | None]]) -> None:
    """Change quotas of one entity. Raises BadParameter if none is named."""
    parts = entity.parts()
    if not parts:
        raise typer.BadParameter("whose quota: use --user, --client-id, --ip or --default")

    via.run(lambda requests: alter(requests, parts, quotas))


async def read(requests: Requests, components: list[ComponentData]) -> Sequence[Any]:
    """Return the entities with these components, all without, and their quotas."""
    answer = await requests.call(DescribeClientQuotasRequest(components=components, strict=False))
    check(answer)
    return answer.entries or ()


async def alter(
    requests: Requests,
    entity: Mapping[str, str | None],
    quotas: Iterable[tuple[str, float | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Change quotas of one entity; None removes one."""
    request = alter_quotas(entity, quotas, validate_only=validate_only)
    for row in (await requests.call(request)).entries:
        check(row)


def shown(value: float) -> float | int:
    """Return a quota as it is printed."""
    return int(value) if value.is_integer() else value


def number(name: str, text: str) -> float:
    """Return the value of a quota. Raises BadParameter."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name} must be a number, not {text!r}") from None
