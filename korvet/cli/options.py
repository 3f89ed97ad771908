"""Options that several commands share."""

from typing import Annotated

import typer

from korvet.config.broker_config import OPTIONS, checked_namespace

Redis = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help=OPTIONS["redis"], show_default=False)
]
RedisServerPath = Annotated[
    str | None,
    typer.Option("--redis-server", metavar="PATH", help=OPTIONS["redis-server"]),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help=OPTIONS["data-dir"] + " Default ./korvet-data."),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help=OPTIONS["namespace"] + " Default korvet.",
        callback=lambda text: text and checked_namespace(text),
    ),
]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML file with options and settings."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A broker setting by Kafka's name; repeatable."
    ),
]
PLACES = (
    "earliest, latest, an offset, a time (ISO 8601, UTC unless it says otherwise) or an age "
    "(15m, 2h, 1d)."
)


def text(option: str, metavar: str) -> typer.models.OptionInfo:
    """An option whose sentence stands in the config table."""
    return typer.Option(f"--{option}", metavar=metavar, help=OPTIONS[option], show_default=False)  # type: ignore[no-any-return]
