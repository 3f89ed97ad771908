"""The command line: `korvet` serves, `korvet COMMAND` performs one task and exits.

Rules
- Exit code 0: done. 1: a check found a problem. 2: failed; one sentence on stderr says why.
- Modules import only typer at the top, and the rest when a command runs: serving starts quickly.
- Global options are accepted before or after the command.
"""

import traceback
from collections.abc import Sequence

import typer

from korvet.cli import (
    acls,
    backup,
    bench,
    brokers,
    check,
    consume,
    doctor,
    groups,
    options,
    pipeline,
    produce,
    queues,
    quickstart,
    redis_acl,
    restore,
    schedule,
    scripts,
    segments,
    serve,
    serve_from,
    settings,
    top,
    topic_changes,
    topics,
    users,
)
from korvet.cli.errors import complain, sentence
from korvet.cli.help_text import EXIT_CODES, Group

app = typer.Typer(
    name="korvet",
    cls=Group,
    epilog=EXIT_CODES,
    help="A Kafka-protocol broker that keeps its log in Redis Streams. Without a command it serves "
    "clients. Global options are accepted before or after a command.",
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback(invoke_without_command=True)(serve.serve)
app.add_typer(topics.app, name="topics")
options.command(topics.app, "alter")(topic_changes.alter)
options.command(topics.app, "add-partitions")(topic_changes.add_partitions)
options.command(topics.app, "trim")(topic_changes.trim)
options.command(topics.app, "repair")(topic_changes.repair)
app.add_typer(groups.app, name="groups")
app.add_typer(queues.app, name="queues")
app.add_typer(schedule.app, name="schedule")
app.add_typer(brokers.app, name="brokers")
app.add_typer(scripts.app, name="scripts")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(segments.app, name="segments")
options.command(app, "produce")(produce.produce)
options.command(app, "consume")(consume.consume)
options.command(app, "top")(top.top)
options.command(app, "quickstart")(quickstart.quickstart)
options.command(app, "doctor")(doctor.doctor)
options.command(app, "backup")(backup.backup)
options.command(app, "restore")(restore.restore)
app.command("serve")(serve_from.serve_from)
options.command(app, "redis-acl")(redis_acl.redis_acl)
options.command(app, "bench")(bench.bench)
app.command("check")(check.check)
options.command(app, "settings")(settings.settings)


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
    import os
    import sys

    # The interpreter flushes stdout at exit, which would fail on the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
