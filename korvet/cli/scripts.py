"""`korvet scripts`: list, show, export, load and check the Lua scripts."""

from pathlib import Path
from typing import Annotated

import typer

from korvet import __version__
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.redis_target import store
from korvet.config.broker_config import StartError
from korvet.scripts import bundle, inlined, lock
from korvet.scripts.bundle import Bundle
from korvet.scripts.contract import header_lines
from korvet.scripts.export import contract_of
from korvet.scripts.export import export as write

app = o.group()

_MODES = {True: "writes", False: "reads"}


@o.command(app, "list")
def list_(out: o.Output) -> None:
    """List the scripts with version and SHA-1."""
    out.listing(
        ("name", "version", "sha1", "mode", "description"),
        [
            (b.name, b.version, b.sha1, _MODES[b.contract.writes], b.contract.sentence)
            for b in _bundles()
        ],
    )


@o.command(app, "show")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A script, such as log.append.")],
    contract: Annotated[
        bool, typer.Option("--contract", help="Print its contract in place of its text.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print its contract as JSON.")] = False,
) -> None:
    """Print a script's text or contract.

    The text is what Redis receives: pass it to `redis-cli --eval`.
    """
    known = bundle.names()
    if name not in known:
        raise typer.BadParameter(f"there is no script {name!r}; there are {', '.join(known)}")
    if json:
        table_output.document(contract_of(name))
    elif contract:
        for line in header_lines(bundle.source(name)):
            table_output.line(line.removeprefix(" "))
    else:
        typer.echo(bundle.load(name).text, nl=False)


@o.command(app, "library")
def library() -> None:
    """Print the Lua with which a script of your own appends records.

    Put the text in front of your script. Its first lines are its contract.
    """
    typer.echo(inlined.library(), nl=False)


@o.command(app, "export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Created if it does not exist.")],
) -> None:
    """Write the scripts and contracts to files.

    DIR gets each script's text, contract.json and its JSON Schema: what a client in another
    language needs to call them.
    """
    try:
        count = write(folder, __version__)
    except OSError as error:
        raise StartError(f"{error.filename or folder}: {error.strerror}.") from None
    table_output.line(f"{count} scripts and contract.json written to {folder}")


@o.command(app, "load")
def load(target: o.Target) -> None:
    """Load every script into a Redis."""
    bundles = _bundles()
    with store(target) as reached:
        for each in bundles:
            sha1 = reached.command("SCRIPT", "LOAD", each.text)
            if sha1 != each.sha1.encode():
                raise StartError(f"Redis has {each.name} under {sha1!r}, not {each.sha1}.")
        there = reached.command("SCRIPT", "EXISTS", *(each.sha1 for each in bundles))
    missing = [each.name for each, here in zip(bundles, there, strict=True) if not here]
    if missing:
        raise StartError(f"Redis lost scripts while they were loaded: {', '.join(missing)}.")
    table_output.line(f"{len(bundles)} scripts loaded")


@o.command(app, "check")
def check() -> None:
    """Compare the scripts with their lock.

    Exit code 1 if one differs from lua/scripts.lock.
    """
    root = bundle.default_root()
    found = lock.conflicts(root) + lock.stale(root)
    for problem in found:
        table_output.line(problem)
    if found:
        raise typer.Exit(1)
    table_output.line(f"{len(bundle.names())} scripts are as locked")


def _bundles() -> list[Bundle]:
    return [bundle.load(name) for name in bundle.names()]
