"""`korvet serve --from`: a read-only broker over a remote store, with a private Redis."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec

from korvet.cli import options as o
from korvet.cli.backup import store_url
from korvet.cli.restore import ClusterId, From


def serve_from(
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
    from korvet import logfmt
    from korvet.cli import restore
    from korvet.cli.broker_process import run_broker
    from korvet.cli.start_lines import Announcement, announce_console
    from korvet.config.broker_config import load
    from korvet.embedded_redis.server import RedisServer

    from_ = store_url(from_)
    given = {
        "listen": ",".join(listen) if listen else None,
        "advertise": ",".join(advertise) if advertise else None,
        "ops": ops,
        "redis-server": redis_server,
        "log-level": log_level,
        "log-format": log_format,
    }
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": from_,
        "auto.create.topics.enable": "false",
    }
    sets = [*(set_ or ()), *(f"{name}={value}" for name, value in settings.items())]
    file = None if config is None else Path(config)
    # Not the environment's Redis: this command has its own.
    environ = {name: value for name, value in os.environ.items() if name == "PATH"}
    loaded = load(given, file=file, sets=sets, environ=environ)
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
        said = Announcement(private, f"{from_}, read-only; groups are forgotten at the end")
        run_broker(private, said.listening, server, announce_console=announce_console)
