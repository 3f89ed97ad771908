"""Options that several commands share."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import typer

from korvet.cli import completion
from korvet.cli.target import Target as Target
from korvet.cli.target import target_of
from korvet.config.broker_config import OPTIONS, checked_namespace
from korvet.config.setting import StartError

Redis = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help=OPTIONS["redis"], show_default=False)
]
RedisServerPath = Annotated[
    str | None, typer.Option("--redis-server", metavar="PATH", help=OPTIONS["redis-server"])
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
    typer.Option("--set", metavar="NAME=VALUE", help="A broker setting by Kafka's name. Repeat."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="Print the names of a table's columns.")
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", help="Only this partition. Repeat."),
]
FORMATS = (
    "text: values. json: whole records. Or a format with %k (key), %s (value), %h (headers), "
    "%t (topic), %p (partition), %o (offset), %T (timestamp), %K and %S (lengths)."
)
Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", help="Print it again at this interval.", min=0.1),
]
TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)
]
TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="The topics' names.", autocompletion=completion.topics),
]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=completion.groups)
]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP...", help="The groups' ids.", autocompletion=completion.groups),
]
TopicConfigs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic config. Repeat."),
]
POSITIONS = (
    "earliest, latest, an offset, a time (ISO 8601, UTC by default) or an age (15m, 2h, 1d)."
)


def text(option: str, metavar: str) -> typer.models.OptionInfo:
    """Make an option whose help is in the table of options."""
    return typer.Option(f"--{option}", metavar=metavar, help=OPTIONS[option], show_default=False)  # type: ignore[no-any-return]


LogLevel = Annotated[str | None, text("log-level", "LEVEL")]
LogFormat = Annotated[str | None, text("log-format", "FORMAT")]


GLOBAL: dict[str, Any] = {
    "redis": Redis,
    "data_dir": DataDir,
    "namespace": Namespace,
    "config": ConfigFile,
    "set_": Sets,
    "log_level": LogLevel,
    "log_format": LogFormat,
}


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with the global options; the function gets them as one `target`.

    They are accepted before or after the command; an option of the command with the same name has
    priority after it. Without a parameter `target` they have no effect and are not in the help. A
    function with a parameter `context` reads them there: it is registered as it is.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(function, eval_str=True).parameters)
        if "context" in own:
            app.command(name)(function)
            return function
        has_target = own.pop("target", None) is not None
        added = {
            each: inspect.Parameter(
                each,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=annotation if has_target else _hidden(annotation),
            )
            for each, annotation in GLOBAL.items()
            if each not in own
        }
        context = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        kept = {
            each: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each, parameter in own.items()
        }

        @functools.wraps(function)
        def run(*, context: typer.Context, **given: Any) -> None:
            values = {each: given.pop(each) for each in added}
            if has_target:
                given["target"] = target_of(values, context.find_root().params)
            function(**given)

        parameters = [context, *kept.values(), *added.values()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(run)
        return function

    return register


def _hidden(annotation: Any) -> Any:
    """Return the annotation of an option that the help leaves out."""
    hidden = copy.copy(annotation.__metadata__[0])
    hidden.hidden = True
    return Annotated[annotation.__origin__, hidden]


def assignments(option: str, texts: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each NAME=VALUE of an option."""
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{option} needs NAME=VALUE, not {text!r}")
        yield name.strip(), value.strip()


def check_format(text: str) -> None:
    """Raise BadParameter for a word that is neither a format's name nor has % codes."""
    if "%" not in text and "\\" not in text:
        raise typer.BadParameter(
            f"--format must be text, json or a format with codes such as %k and %s, not {text!r}"
        )


def chosen_partitions(topic: str, count: int, wanted: list[int] | None) -> list[int]:
    """Return the partitions that --partition chooses, all by default. Raises StartError."""
    if any(not 0 <= number < count for number in wanted or ()):
        raise StartError(f"{topic} has partitions 0 to {count - 1}.")
    return sorted(set(wanted)) if wanted else list(range(count))
