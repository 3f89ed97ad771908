"""The command line: `korvet` serves, `korvet COMMAND` performs one task and exits.

Rules
- Exit code 0: done. 1: a check found a problem. 2: failed; one sentence on stderr says why.
- A command's module is imported when the command is run, and imports all at its top. `serve` and
  what it imports at the top is light: it shows --help, and Redis starts before the rest is there.
- Global options are accepted before or after the command.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand

from korvet.cli import options, serve
from korvet.cli.errors import complain, sentence

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "produce": "Append each line of stdin as a record.",
        "consume": "Print a topic's records.",
        "top": "Watch rates of topics, lag of groups and the load of Redis.",
        "quickstart": "Show the tour with the commands of the clients on this machine.",
        "doctor": "Check the Redis a broker would use.",
        "backup": "Write topics, records, groups and users to a directory or a bucket.",
        "restore": "Rebuild an empty Redis from a backup or a remote store.",
        "serve": "Serve a backup or a remote store read-only; without --from, be a broker.",
        "redis-acl": "Print or create the Redis user that Korvet needs.",
        "bench": "Measure a running broker.",
        "check": "Validate a configuration and the scripts.",
        "settings": "List the settings of brokers, topics and groups.",
        "topics": "Create, list, change, trim and delete topics.",
        "groups": "List, move, change and delete consumer groups.",
        "copy": "Copy a topic's records to another topic, also from or to other brokers.",
        "apply": "Make topics, rules, quotas and users as a file lists them.",
        "queues": "Show share groups, which read topics as queues.",
        "transactions": "List, describe and abort transactions.",
        "schedule": "List and cancel scheduled records.",
        "tables": "Read the newest value of each key of a topic; compare it with the log.",
        "brokers": "List the brokers that share a Redis, and change their settings.",
        "scripts": "List, export and load the Lua scripts.",
        "functions": "Load, list, show and delete the Redis functions that append records.",
        "profile": "Create, use, list and delete profiles: brokers, user and TLS under a name.",
        "users": "Add, change, list and delete users of SASL listeners.",
        "quotas": "List, set and remove the quotas of users and clients.",
        "acls": "List, add and delete the ACL rules that authorize clients.",
        "pipeline": "Run Spark jobs: archive, replay, verify.",
        "segments": "List, show and verify segments of tiered storage.",
    }
)
"""The commands with the sentences of --help."""
_MODULES = {"serve": "restore", "check": "settings", "redis-acl": "doctor"}
"""The modules of commands that have another name."""


def load(name: str) -> Any:
    """Import the module of a command and return the command.

    The module has an `app` with subcommands, or a function with the name of the command.
    """
    module = import_module(f"korvet.cli.{_MODULES.get(name, name)}")
    if hasattr(module, "app"):
        command = typer.main.get_group(module.app)
        command.name, command.help = name, COMMANDS[name]
        return command
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    stem = "serve_from" if name == "serve" else name.replace("-", "_")
    options.command(single, name)(getattr(module, stem))
    return typer.main.get_command(single)


class Program(options.Group):
    """The program, which imports the module of the command that is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the global options. `serve` without --from is the program without a command."""
        given = list(args)
        unparsed: list[str] = super().parse_args(ctx, args)
        is_from = any(word.partition("=")[0] in ("--from", "-h", "--help") for word in unparsed)
        if ctx._protected_args != ["serve"] or is_from:
            return unparsed
        ctx.params, ctx._protected_args, ctx.args = {}, [], []
        del given[len(given) - len(unparsed) - 1]
        return list(super().parse_args(ctx, given))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names, with its name and arguments."""
        if args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="korvet",
    cls=Program,
    epilog=options.EXIT_CODES,
    help="A Kafka-protocol broker that keeps its log in Redis Streams. Without a command it serves "
    "clients. Global options are accepted before or after a command.",
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(invoke_without_command=True)(serve.serve)

FAULT = 3
"""The exit code after an error of Korvet itself: systemd starts it again, unlike after 2."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors are written to stderr."""
    try:
        code = app(args=list(arguments), prog_name="korvet", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # a prompt turns Ctrl-C into Abort
        return 130
    except SystemExit as end:
        # The reader of our output has closed it: `korvet consume orders | head`. Typer would exit
        # with code 1, which means that a check found a problem.
        if isinstance(end.__context__, BrokenPipeError):
            return _discard_output()
        raise
    except Exception as error:
        words = sentence(error)
        if words is None:
            # Not raised: Python would exit with code 1, which means that a check found a problem.
            traceback.print_exception(error)
            return FAULT
        complain(words)
        return 2
    return code if isinstance(code, int) else 0


def _discard_output() -> int:
    # The interpreter flushes stdout at exit, which would fail on the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
