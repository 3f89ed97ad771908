"""Which Redis a command talks to: the one named, a running broker's, or one started for it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from korvet.config.broker_config import REDIS_VARIABLE, StartError, redis_url
from korvet.embedded_redis.server import RedisServer
from korvet.embedded_redis.socket import ask, socket_path
from korvet.store.sync_store import SyncStore

_DATA_DIR = "./korvet-data"


@contextmanager
def url(redis: str | None, data_dir: str | None) -> Iterator[str]:
    """The URL of that Redis; a server started for the command is stopped behind it."""
    named = redis or (os.environ.get(REDIS_VARIABLE) if data_dir is None else None)
    if named:
        yield redis_url(named)
        return
    directory = Path(data_dir or _DATA_DIR).absolute()
    socket = socket_path(directory)
    if ask(socket, b"PING"):
        yield f"unix://{socket}"
        return
    if not any((directory / name).exists() for name in ("appendonlydir", "appendonly.aof")):
        raise StartError(
            f"There is no Korvet data in {directory}: start `korvet` there, "
            "or name a Redis with --redis URL."
        )
    with RedisServer.launch(directory) as server:
        yield server.url


@contextmanager
def store(redis: str | None, data_dir: str | None) -> Iterator[SyncStore]:
    """A store on that Redis."""
    with url(redis, data_dir) as where, SyncStore.connect(where) as found:
        yield found
