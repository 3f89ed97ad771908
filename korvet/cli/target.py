"""The Redis, namespace and settings that the global options select."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from korvet.base import logfmt
from korvet.config.broker_config import OPTIONS, Config, load
from korvet.config.values import Settings

BROKERS_VARIABLE = "KORVET_BROKERS"
GLOBAL_NAMES = ("redis", "data_dir", "namespace", "config", "set_", "log_level", "log_format")
"""Parameters of the options that every command has."""


class Target(NamedTuple):
    """The Redis a command works on, the namespace there, and the settings it was given."""

    redis: str | None
    data_dir: str
    namespace: str
    settings: Settings
    is_named: bool = False
    """Whether the command line names the Redis or its data directory."""


def target_of(after: Mapping[str, Any], before: Mapping[str, Any]) -> Target:
    """Read the options given after the command, else those before it."""
    given = {name: after.get(name) or before.get(name) for name in GLOBAL_NAMES}
    given["set_"] = [*(before.get("set_") or ()), *(after.get("set_") or ())]
    here = given["data_dir"] is not None and given["redis"] is None
    # A data directory that was named has priority over the environment's Redis.
    config = load_config(given, {} if here else os.environ)
    # A command's output is its result: what a broker logs as information would hide it.
    level = "warning" if given["log_level"] is None else config.log_level
    logfmt.setup(level, config.log_format)
    redis = None if here else config.redis
    is_named = here or given["redis"] is not None
    return Target(redis, config.data_dir, config.namespace, config.settings, is_named)


def make_files_private() -> None:
    """Let this process create files and directories that only its user may read."""
    os.umask(os.umask(0o077) | 0o077)


def load_config(given: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Load the configuration that the parameters of a command give."""
    file = given.get("config")
    options = {}
    for option in OPTIONS:
        value = given.get(option.replace("-", "_"))
        options[option] = value if isinstance(value, str) else ",".join(value or ()) or None
    return load(
        options,
        file=None if file is None else Path(file),
        sets=given.get("set_") or (),
        environ=environ,
    )
