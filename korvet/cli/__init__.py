"""The command line: `korvet` serves, `korvet COMMAND` does one small thing and exits.

Rules
- Exit code 0: done. 1: looked, and found something wrong. 2: could not; one sentence says why.
- Modules here import only typer at the top; what a command needs is imported when it runs, so that
  serving starts quickly.
"""

import traceback
from collections.abc import Sequence

import typer

from korvet.cli import check, consume, doctor, groups, pipeline, produce, scripts, serve, topics
from korvet.cli.errors import complain, sentence

app = typer.Typer(
    name="korvet",
    help="Speaks the Kafka protocol and keeps the log in Redis Streams. No command: it serves.",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback(invoke_without_command=True)(serve.serve)
app.add_typer(scripts.app, name="scripts")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(pipeline.app, name="pipeline")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("doctor")(doctor.doctor)
app.command("check")(check.check)


def run(arguments: Sequence[str]) -> int:
    """The exit code of the command line; what went wrong is on stderr by then."""
    try:
        code = app(args=list(arguments), prog_name="korvet", standalone_mode=False)
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        # Whoever read our output has had enough: `korvet consume orders | head`. Typer makes code 1
        # of it, by which we say that something was found.
        if isinstance(end.__context__, BrokenPipeError):
            return _hang_up()
        raise
    except Exception as error:
        words = sentence(error)
        if words is None:
            # Not raised: Python's own exit code would say that something was found.
            traceback.print_exception(error)
        else:
            complain(words)
        return 2
    return code if isinstance(code, int) else 0


def _hang_up() -> int:
    import os
    import sys

    # The interpreter flushes stdout once more at exit, and would complain then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
