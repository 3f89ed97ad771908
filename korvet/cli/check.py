"""`korvet check`: is this configuration right, are the scripts as locked? Starts nothing."""

import os
from pathlib import Path

import typer

from korvet.cli import options as o
from korvet.cli import show


def check(config: o.ConfigFile = None, set_: o.Sets = None) -> None:
    """Validate a configuration file, settings and the scripts' lock, and exit."""
    from korvet.config import load
    from korvet.redis_binary import find
    from korvet.scripts import bundle, lock
    from korvet.store.address import parse

    file = None if config is None else Path(config)
    found = load({}, file=file, sets=set_ or (), environ=os.environ)
    if found.redis is None:
        show.line(f"own Redis: {find(found.redis_server)}")
    else:
        show.line(f"Redis: {parse(found.redis)}")
    given = [value for value in found.settings if not value.is_default]
    show.line(f"configuration: valid, {len(given)} settings given")
    for value in given:
        show.line(f"  {value.name} = {value.value}")
        if not value.setting.effect:
            show.line("    is accepted and has no effect")
    root = bundle.default_root()
    problems = lock.conflicts(root) + lock.stale(root)
    for problem in problems:
        show.line(f"scripts: {problem}")
    if problems:
        raise typer.Exit(1)
    show.line(f"scripts: {len(bundle.names())} as locked")
