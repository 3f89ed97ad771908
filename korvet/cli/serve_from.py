"""`korvet serve --from`: a read-only broker over a remote store, with a private Redis."""

import asyncio
import tempfile
from typing import Annotated

import msgspec
import typer

from korvet.base import logfmt
from korvet.cli import options as o
from korvet.cli import restore
from korvet.cli.backup import store_url
from korvet.cli.broker_process import run_broker
from korvet.cli.restore import ClusterId, From
from korvet.cli.start_lines import Announcement, announce_console
from korvet.cli.target import load_config, make_files_private
from korvet.embedded_redis.server import RedisServer


def serve_from(
    context: typer.Context,
    from_: From,
    cluster_id: ClusterId = None,
    listen: Annotated[list[str] | None, o.text("listen", "[PROTOCOL://]HOST:PORT")] = None,
    advertise: Annotated[list[str] | None, o.text("advertise", "[PROTOCOL://]HOST:PORT")] = None,
    ops: Annotated[str | None, o.text("ops", "HOST:PORT")] = None,
    redis_server: o.RedisServerPath = None,
    config: o.ConfigFile = None,
    set_: o.Sets = None,
    log_level: o.LogLevel = None,
    log_format: o.LogFormat = None,
) -> None:
    """Serve a backup or a remote store read-only.

    The topics are those of the store at the start. Writes are refused with POLICY_VIOLATION.
    Consumer groups work, and are forgotten at the end.
    """
    make_files_private()
    from_ = store_url(from_)
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": from_,
        "auto.create.topics.enable": "false",
    }
    sets = [*(set_ or ()), *(f"{name}={value}" for name, value in settings.items())]
    # Not the environment's Redis: this command has its own.
    loaded = load_config({**context.params, "set_": sets}, {})
    logfmt.setup(loaded.log_level, loaded.log_format)
    with (
        tempfile.TemporaryDirectory(prefix="korvet-") as folder,
        RedisServer.launch(folder, binary=loaded.redis_server) as server,
    ):
        asyncio.run(
            restore.run(server.url, loaded.namespace, from_, cluster_id, None, only_segments=True)
        )
        private = msgspec.structs.replace(
            loaded, redis=server.url, data_dir=folder, workers=1, read_only=True
        )
        said = Announcement(private, data=f"{from_}, read-only; groups are forgotten at the end")
        run_broker(private, said.listening, server, announce_console=announce_console)
