"""`korvet` without a command: serve Kafka clients until a signal stops it."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from korvet.cli import options as o
from korvet.cli.options import GLOBAL
from korvet.cli.start_lines import Announcement, announce_console, announce_legacy
from korvet.cli.target import load_config, make_files_private
from korvet.config.broker_config import REDIS_VARIABLE, Config, ConfigError

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer


def serve(
    context: typer.Context,
    listen: Annotated[list[str] | None, o.text("listen", "[PROTOCOL://]HOST:PORT")] = None,
    advertise: Annotated[list[str] | None, o.text("advertise", "[PROTOCOL://]HOST:PORT")] = None,
    legacy_listen: Annotated[str | None, o.text("legacy-listen", "HOST:PORT")] = None,
    zookeeper: Annotated[str | None, o.text("zookeeper", "HOST:PORT")] = None,
    ops: Annotated[str | None, o.text("ops", "HOST:PORT")] = None,
    redis: o.Redis = None,
    redis_server: o.RedisServerPath = None,
    data_dir: o.DataDir = None,
    node_id: Annotated[str | None, o.text("node-id", "N")] = None,
    namespace: o.Namespace = None,
    workers: Annotated[str | None, o.text("workers", "N")] = None,
    preset: Annotated[str | None, o.text("preset", "kafka|redis")] = None,
    config: o.ConfigFile = None,
    set_: o.Sets = None,
    log_level: o.LogLevel = None,
    log_format: o.LogFormat = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Serve Kafka clients. Without --redis, start a Redis with its data in --data-dir."""
    if version:
        from korvet import __version__

        typer.echo(f"korvet {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    loaded = load_config(context.params, os.environ)
    run(loaded, is_password_listed=redis is not None and "@" in redis)


def run(config: Config, *, is_password_listed: bool = False) -> None:
    """Serve until a signal. Raises StartError if serving cannot start.

    `is_password_listed`: the command line has the password of Redis, which `ps` shows.
    """
    from korvet.base import logfmt

    make_files_private()
    logfmt.setup(config.log_level, config.log_format)
    if is_password_listed:
        logfmt.get("serve").warning(
            "the Redis password is in the process list", advice=f"set {REDIS_VARIABLE} instead"
        )
    with _redis(config) as (reachable, server):
        if config.workers > 1:
            from korvet.cli.worker_pool import supervise

            supervise(reachable, server)
        else:
            from korvet.cli.broker_process import run_broker

            said = Announcement(reachable, server)
            run_broker(
                reachable,
                said.listening,
                server,
                announce_legacy=announce_legacy,
                announce_console=announce_console,
            )


@contextmanager
def _redis(config: Config) -> "Iterator[tuple[Config, RedisServer | None]]":
    """Yield a config that names a running Redis, and the server if it is embedded."""
    if config.redis is not None:
        yield _with_node_id(config), None
        return
    from korvet.embedded_redis.server import RedisServer

    server = RedisServer.launch(config.data_dir, binary=config.redis_server)
    try:
        # Redis loads its data while this process imports the broker.
        importlib.import_module("korvet.broker.server")
        server.wait_ready()
        yield _embedded(config, server), server
    finally:
        server.stop()


def _with_node_id(config: Config) -> Config:
    """Return the configuration with a free node id, unless one is given or Redis is away."""
    if config.node_id_is_chosen:
        return config
    from korvet.broker.server import claim_node_id
    from korvet.store.errors import StoreError

    try:
        return claim_node_id(config)
    except StoreError:
        return config  # the broker reports why, and claims one when Redis is there


def _embedded(config: Config, server: "RedisServer") -> Config:
    """Return the configuration with the embedded server and its defaults."""
    from korvet.embedded_redis.defaults import defaults

    settings = config.settings.with_defaults(defaults(config.settings, server.data_dir))
    return msgspec.structs.replace(
        config,
        redis=server.url,
        redis_lost_nothing=server.note_boot(),
        settings=settings,
        node_id_is_chosen=True,
    )


def _refuse_options(context: typer.Context) -> None:
    """Raise ConfigError for an option before a command that only the broker has."""
    given = [name for name, value in context.params.items() if value and name not in GLOBAL]
    if given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} is an option of the broker: "
            f"`korvet {context.invoked_subcommand}` does not take it."
        )
