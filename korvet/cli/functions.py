"""`korvet functions`: load, list and delete the Redis functions that append records.

Korvet has two libraries of them: see korvet/scripts/inlined.py.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.redis_target import store
from korvet.config.broker_config import StartError
from korvet.scripts import inlined
from korvet.scripts.call import Arg
from korvet.store.errors import StoreError
from korvet.store.sync_store import SyncStore

app = o.group()


@o.command(app, "load")
def load(target: o.Target) -> None:
    """Load the functions into a Redis, on every master of a cluster.

    `korvet_v1` is for your own FCALL, `korvet_steps_` with a checksum for pipelines of the Python
    library. Needs Redis 7.0 or Valkey, which keep them in their files and replicas. The functions
    of an earlier version remain; those of this version are replaced.
    """
    with store(target) as reached:
        for text in inlined.texts().values():
            for server, name in _ask(reached, "LOAD", "REPLACE", text):
                table_output.line(f"{name.decode()} loaded at {server}")


@o.command(app, "list")
def list_(target: o.Target, out: o.Output) -> None:
    """List the versions on each server.

    The state of a version is `current` if its code is that of this Korvet, `other` if not. A server
    without this Korvet's version has the state `missing`.
    """
    with store(target) as reached:
        found = _ask(reached, "LIST", "LIBRARYNAME", "korvet_*", "WITHCODE")
    out.listing(
        ("server", "library", "state", "functions"),
        [row for server, libraries in found for row in _rows(server, libraries)],
    )


@o.command(app, "delete")
def delete(
    target: o.Target,
    library: Annotated[
        str,
        typer.Argument(metavar="[LIBRARY]", help="A name of `list`; by default this version's."),
    ] = "",
) -> None:
    """Delete a version's functions, on every master of a cluster."""
    if library and not library.startswith(inlined.LIBRARIES):
        raise typer.BadParameter(
            f"{library!r} is no library of Korvet: {inlined.library_name()} is one"
        )
    deleted = []
    names = [library] if library else list(inlined.texts())
    with store(target) as reached:
        for name in names:
            found = _ask(reached, "DELETE", name, allowed="Library not found")
            deleted += [(name, at) for at, reply in found if not isinstance(reply, StoreError)]
    if not deleted:
        raise StartError(f"There is no library {' or '.join(names)}.")
    for name, server in deleted:
        table_output.line(f"{name} deleted at {server}")


@o.command(app, "show")
def show(
    library: Annotated[
        str, typer.Argument(metavar="[LIBRARY]", help="A name that `load` prints.")
    ] = inlined.library_name(),
) -> None:
    """Print the text for FUNCTION LOAD.

    For servers that another program sets up: `redis-cli -x FUNCTION LOAD REPLACE` reads it.
    """
    texts = inlined.texts()
    if library not in texts:
        raise typer.BadParameter(f"this Korvet has {' and '.join(texts)}, not {library}")
    typer.echo(texts[library], nl=False)


def _ask(reached: SyncStore, *words: Arg, allowed: str = "\n") -> list[tuple[str, Any]]:
    """Return every master's reply to a FUNCTION command, or its error if that says `allowed`."""
    found = reached.on_masters("FUNCTION", *words)
    for _, reply in found:
        if "unknown command" in str(reply):
            raise StartError(
                "This Redis has no functions: they need Redis 7.0 or Valkey. `korvet scripts "
                "library` prints Lua for scripts of your own, which this Redis runs."
            )
        if isinstance(reply, StoreError) and allowed not in str(reply):
            raise reply
    return found


def _rows(server: str, libraries: list[list[Any]]) -> Iterator[tuple[str, str, str, str]]:
    missing = inlined.texts()
    for library in libraries:
        values = dict(zip(library[::2], library[1::2], strict=True))
        name, code = values[b"library_name"].decode(), values[b"library_code"].decode()
        functions = sorted(row[1].decode() for row in values[b"functions"])
        is_current = name in missing and inlined.checksum_in(code) == inlined.checksum_in(
            missing.pop(name)
        )
        yield server, name, "current" if is_current else "other", " ".join(functions)
    for name in missing:
        yield server, name, "missing", ""
