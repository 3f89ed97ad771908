"""`korvet check`: validate a configuration and the scripts' lock without starting anything."""

import os

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.target import load_config
from korvet.embedded_redis.binary import find
from korvet.scripts import bundle, lock
from korvet.store.address import parse


def check(context: typer.Context, config: o.ConfigFile = None, set_: o.Sets = None) -> None:
    """Validate a configuration and the scripts.

    Reads the file and the settings as a broker would, compares the scripts with their lock, and
    starts nothing.
    """
    before = context.find_root().params
    sets = [*(before["set_"] or ()), *(set_ or ())]
    found = load_config({"config": config or before["config"], "set_": sets}, os.environ)
    if found.redis is None:
        table_output.line(f"embedded Redis: {find(found.redis_server)}")
    else:
        table_output.line(f"Redis: {parse(found.redis)}")
    given = [value for value in found.settings if not value.is_default]
    table_output.line(f"configuration: valid, {len(given)} settings given")
    for value in given:
        table_output.line(f"  {value.name} = {value.value}")
        if not value.setting.effect:
            table_output.line("    is accepted and has no effect")
    root = bundle.default_root()
    problems = lock.conflicts(root) + lock.stale(root)
    for problem in problems:
        table_output.line(f"scripts: {problem}")
    if problems:
        raise typer.Exit(1)
    table_output.line(f"scripts: {len(bundle.names())} as locked")
