"""Apps with subcommands, the options that commands share, and the values of options.

The options are read before the command's module runs: nothing heavy is imported here.
"""

import copy
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from korvet.cli import table_output
from korvet.cli.target import BROKERS_VARIABLE, target_of
from korvet.cli.target import Target as Target
from korvet.config.broker_config import OPTIONS, checked_namespace
from korvet.config.setting import StartError, in_milliseconds
from korvet.log.position import BadPosition, Position, parse_position

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


# Names for shell completion, from a Redis that runs already.


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics whose names begin with `incomplete`."""
    return [name for name in _known(context, "topics") if name.startswith(incomplete)]


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups whose ids begin with `incomplete`."""
    from korvet.scripts.call import decode_group

    found = map(decode_group, _known(context, "groups"))
    return [name for name in found if name.startswith(incomplete)]


def _known(context: typer.Context, table: str) -> list[str]:
    """Return the names in a table; none if there is no answer, which a shell cannot show."""
    from korvet.cli.redis_target import running
    from korvet.scripts.keys import Keys
    from korvet.store.sync_store import SyncStore

    try:
        target = target_of(context.params, context.find_root().params)
        url = running(target)
        if url is None:
            return []
        keys = Keys(target.namespace)
        with SyncStore.connect(url) as store:
            names = store.command("HKEYS", keys.topics() if table == "topics" else keys.groups())
    except Exception:
        return []
    return sorted(name.decode() for name in names if name[:1] != b":")


# Options.

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
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topics)
]
TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="The topics' names.", autocompletion=complete_topics),
]
GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=complete_groups)
]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP...", help="The groups' ids.", autocompletion=complete_groups),
]
TopicConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A topic config: times in ms, or as 7d, 12h. Repeat.",
    ),
]
POSITIONS = (
    "earliest, latest, an offset, a time (ISO 8601, UTC by default) or an age (15m, 2h, 1d)."
)
TopicPositions = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[=POSITION]",
        autocompletion=complete_topics,
        help="A topic, and its position if it differs from --to. Repeat.",
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="POSITION", help=POSITIONS)]


class Options:
    """The base of options that a command gets as one parameter: a dataclass, a field for each."""


@dataclass(frozen=True)
class Output(Options):
    """The options of commands that print rows."""

    json: Json = False
    header: Header = True

    def listing(self, columns: Sequence[str], rows: Iterable[table_output.Row]) -> None:
        """Print rows as a table, or as a JSON array of objects with the columns as names."""
        if self.json:
            table_output.document(table_output.objects(columns, rows))
        else:
            table_output.table(columns, rows, header=self.header)


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
OF_BROKERS: dict[str, Any] = {
    "brokers": Annotated[
        str | None,
        typer.Option(
            "--brokers",
            metavar="HOST:PORT",
            help=f"Kafka brokers to ask, also Apache Kafka's (or {BROKERS_VARIABLE}), in place of "
            "the Redis.",
            show_default=False,
        ),
    ],
    "client_config": Annotated[
        str | None,
        typer.Option(
            "--client-config",
            metavar="FILE",
            help="With --brokers: librdkafka's settings, NAME=VALUE in lines, for TLS and SASL.",
            show_default=False,
        ),
    ],
    "profile": Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="The brokers of this profile: see `korvet profile`.",
            show_default=False,
        ),
    ],
}
"""Options of commands whose requests go to brokers or to the Redis."""


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with the global options; the function gets them as one `target`.

    They are accepted before or after the command; an option of the command with the same name has
    priority after it. A parameter `via` has the options of brokers too. Without either they have
    no effect and are not in the help. A parameter whose type is a subclass of `Options` has the
    options of its fields, after those of the function. A function with a parameter `context` reads
    the global options there: it is registered as it is.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(function, eval_str=True).parameters)
        if "context" in own:
            app.command(name)(function)
            return function
        via = own.pop("via", None)
        has_target = own.pop("target", None) is not None or via is not None
        groups = {
            each: parameter.annotation
            for each, parameter in own.items()
            if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Options)
        }
        fields = {each: inspect.signature(kind).parameters for each, kind in groups.items()}
        for each in groups:
            del own[each]
            own |= fields[each]
        options = {**(OF_BROKERS if via else {}), **GLOBAL}
        added = {
            each: inspect.Parameter(
                each,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=annotation if has_target else _hidden(annotation),
            )
            for each, annotation in options.items()
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
                target = target_of(values, context.find_root().params)
                if via is not None:
                    given["via"] = via.annotation(target, *(values[each] for each in OF_BROKERS))
                else:
                    given["target"] = target
            for each, kind in groups.items():
                given[each] = kind(**{field: given.pop(field) for field in fields[each]})
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
    """Yield the name and the value of each NAME=VALUE of an option.

    A config in milliseconds may be an age, such as 7d: brokers get the milliseconds.
    """
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{option} needs NAME=VALUE, not {text!r}")
        yield name.strip(), in_milliseconds(name.strip(), value.strip())


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


# Positions, and names.


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


# Passwords: from stdin or a prompt, never from an argument.


def read_password() -> str:
    """Ask for a password on a terminal, else read the first line of stdin. Raises StartError."""
    return ask_password() if sys.stdin.isatty() else password_on_stdin()


def ask_password() -> str:
    """Ask for a password, twice. Raises StartError."""
    return _checked(str(typer.prompt("Password", hide_input=True, confirmation_prompt=True)))


def password_on_stdin() -> str:
    """Read the first line of stdin. Raises StartError."""
    try:
        return _checked(sys.stdin.buffer.readline().decode().rstrip("\r\n"))
    except UnicodeDecodeError:
        raise StartError("The password on stdin is not UTF-8.") from None


def _checked(password: str) -> str:
    if not password:
        raise StartError("The password must not be empty: write it to stdin.")
    return password
