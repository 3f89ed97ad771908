"""`korvet settings`: list the settings of brokers, topics and groups, and describe some.

`korvet check`: validate a configuration and the scripts' lock without starting anything.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.target import load_config
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from korvet.config.setting import Setting, find_setting, type_of
from korvet.config.topic_settings import TOPIC
from korvet.embedded_redis.binary import find
from korvet.scripts import bundle, lock
from korvet.store.address import parse

_KINDS = ("broker", "topic", "group")
_COLUMNS = ("of", "name", "default", "type", "changes", "description")


def settings(
    out: o.Output,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these settings.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="KIND", help="broker, topic or group.")
    ] = None,
) -> None:
    """List the settings of brokers, topics and groups.

    With names, print all that is known of each. Settings without an effect here are left out
    unless they are named.
    """
    if of is not None and of not in _KINDS:
        raise typer.BadParameter(f"--of must be broker, topic or group, not {of!r}")
    tables: dict[str, Mapping[str, Setting]] = dict(
        zip(_KINDS, (BROKER, TOPIC, GROUP), strict=True)
    )
    chosen = {kind: each for kind, each in tables.items() if of in (None, kind)}
    every = {name: each for table in chosen.values() for name, each in table.items()}
    for name in names or ():
        find_setting(every, name, "setting")
    rows = [
        _row(kind, each)
        for kind, table in chosen.items()
        for each in table.values()
        if (each.name in names if names else each.effect)
    ]
    if out.json or not names:
        out.listing(_COLUMNS, rows)
    else:
        _describe(rows)


def _row(kind: str, setting: Setting) -> tuple[str | None, ...]:
    changes = "while brokers run" if setting.dynamic else "at start"
    if setting.immutable:
        changes = "at creation"
    return kind, setting.name, setting.default, type_of(setting), changes, setting.documentation


def _describe(rows: Iterable[tuple[str | None, ...]]) -> None:
    """Print each setting as a paragraph."""
    for row in rows:
        kind, name, default, kind_of_value, changes, sentence = row
        table_output.line(f"{name} ({kind})")
        table_output.line(f"  {sentence}")
        table_output.line(f"  type: {kind_of_value}")
        table_output.line(f"  default: {'-' if default is None else default or 'empty'}")
        table_output.line(f"  changes: {changes}")


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
