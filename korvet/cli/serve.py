"""`korvet` without a command: read the options, have a Redis, serve until told to stop."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from korvet.cli import options as o
from korvet.cli.announcing import announce, announce_legacy
from korvet.config.broker_config import Config, ConfigError, load

if TYPE_CHECKING:
    from korvet.embedded_redis.server import RedisServer


def serve(
    context: typer.Context,
    listen: Annotated[str | None, o.text("listen", "HOST:PORT")] = None,
    advertise: Annotated[str | None, o.text("advertise", "HOST:PORT")] = None,
    legacy_listen: Annotated[str | None, o.text("legacy-listen", "HOST:PORT")] = None,
    zookeeper: Annotated[str | None, o.text("zookeeper", "HOST:PORT")] = None,
    ops: Annotated[str | None, o.text("ops", "HOST:PORT")] = None,
    redis: o.Redis = None,
    redis_server: o.RedisServerPath = None,
    data_dir: o.DataDir = None,
    node_id: Annotated[str | None, o.text("node-id", "N")] = None,
    namespace: o.Namespace = None,
    workers: Annotated[str | None, o.text("workers", "N")] = None,
    config: o.ConfigFile = None,
    set_: o.Sets = None,
    log_level: Annotated[str | None, o.text("log-level", "LEVEL")] = None,
    log_format: Annotated[str | None, o.text("log-format", "FORMAT")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Serve Kafka clients. Without --redis, on a Redis of our own under --data-dir."""
    if version:
        from korvet import __version__

        typer.echo(f"korvet {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    given = {
        "listen": listen,
        "advertise": advertise,
        "legacy-listen": legacy_listen,
        "zookeeper": zookeeper,
        "ops": ops,
        "redis": redis,
        "redis-server": redis_server,
        "data-dir": data_dir,
        "node-id": node_id,
        "namespace": namespace,
        "workers": workers,
        "log-level": log_level,
        "log-format": log_format,
    }
    file = None if config is None else Path(config)
    run(load(given, file=file, sets=set_ or (), environ=os.environ))


def run(config: Config) -> None:
    """The broker has served and stopped. StartError when it could not begin."""
    from korvet import logfmt

    logfmt.setup(config.log_level, config.log_format)
    with _redis(config) as (reachable, server):
        if config.workers > 1:
            from korvet.cli.worker_pool import supervise

            supervise(reachable, server)
        else:
            from korvet.cli.broker_process import run_broker

            run_broker(reachable, announce, server, announce_legacy=announce_legacy)


@contextmanager
def _redis(config: Config) -> "Iterator[tuple[Config, RedisServer | None]]":
    """A config that names a running Redis, and the server when it is our own."""
    if config.redis is not None:
        yield config, None
        return
    from korvet.embedded_redis.server import RedisServer

    server = RedisServer.launch(config.data_dir, binary=config.redis_server)
    try:
        # The server loads its log while we load ourselves.
        importlib.import_module("korvet.broker.server")
        server.wait_ready()
        yield msgspec.structs.replace(config, redis=server.url), server
    finally:
        server.stop()


def _refuse_options(context: typer.Context) -> None:
    given = [name for name, value in context.params.items() if value]
    if given:
        raise ConfigError(
            f"Options stand behind the command: korvet {context.invoked_subcommand} ... "
            f"--{given[0].replace('_', '-').strip('-')} VALUE."
        )
