"""`korvet scripts`: what the Lua scripts are, and whether a Redis has them."""

from typing import TYPE_CHECKING, Annotated

import typer

from korvet.cli import options as o
from korvet.cli import table_output

if TYPE_CHECKING:
    from korvet.scripts.bundle import Bundle

app = typer.Typer(help="The Lua scripts: list, show, load into a Redis, check against the lock.")


@app.command("list")
def list_() -> None:
    """Print every script: name, version, sha1, reads or writes, what is true afterwards."""
    table_output.table(
        ("name", "version", "sha1", "mode", "afterwards"),
        ((b.name, b.version, b.sha1, _mode(b), b.contract.sentence) for b in _bundles()),
    )


@app.command("show")
def show_(
    name: Annotated[str, typer.Argument(help="A script's name, such as log.append.")],
    contract: Annotated[
        bool, typer.Option("--contract", help="Print what it takes, answers and promises instead.")
    ] = False,
) -> None:
    """Print a script as Redis gets it, ready for `redis-cli --eval`, or its contract."""
    from korvet.scripts import bundle
    from korvet.scripts.contract import header_lines

    known = bundle.names()
    if name not in known:
        raise typer.BadParameter(f"there is no script {name!r}; there are {', '.join(known)}")
    if contract:
        for line in header_lines(bundle.source(name)):
            table_output.line(line.removeprefix(" "))
        return
    typer.echo(bundle.load(name).text, nl=False)


@app.command("load")
def load(redis: o.Redis = None, data_dir: o.DataDir = None) -> None:
    """Put every script into a Redis and see that it has them (SCRIPT EXISTS)."""
    from korvet.cli.redis_target import store
    from korvet.config.broker_config import StartError

    bundles = _bundles()
    with store(redis, data_dir) as reached:
        for each in bundles:
            sha1 = reached.command("SCRIPT", "LOAD", each.text)
            if sha1 != each.sha1.encode():
                raise StartError(f"Redis has {each.name} under {sha1!r}, not {each.sha1}.")
        there = reached.command("SCRIPT", "EXISTS", *(each.sha1 for each in bundles))
    missing = [each.name for each, here in zip(bundles, there, strict=True) if not here]
    if missing:
        raise StartError(f"Redis lost scripts as they were loaded: {', '.join(missing)}.")
    table_output.line(f"{len(bundles)} scripts loaded")


@app.command("check")
def check() -> None:
    """Hold the scripts to lua/scripts.lock; exit code 1 when one is not as locked."""
    from korvet.scripts import bundle, lock

    root = bundle.default_root()
    found = lock.conflicts(root) + lock.stale(root)
    for problem in found:
        table_output.line(problem)
    if found:
        raise typer.Exit(1)
    table_output.line(f"{len(bundle.names())} scripts are as locked")


def _bundles() -> "list[Bundle]":
    from korvet.scripts import bundle

    return [bundle.load(name) for name in bundle.names()]


def _mode(bundle: "Bundle") -> str:
    return "writes" if bundle.contract.writes else "reads"
