"""The Redis a command uses: the one named, a running broker's, or one started for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from korvet.cli.target import Target
from korvet.config.broker_config import StartError
from korvet.embedded_redis.server import RedisServer
from korvet.embedded_redis.socket import ask, socket_path
from korvet.store.sync_store import SyncStore


def running(target: Target) -> str | None:
    """Return the URL of the target's Redis, None if it does not run."""
    if target.redis is not None:
        return target.redis
    socket = socket_path(Path(target.data_dir).absolute())
    return f"unix://{socket}" if ask(socket, b"PING") else None


@contextmanager
def url(target: Target, *, create: bool = False) -> Iterator[str]:
    """Yield the URL of the target's Redis; a server started for the command stops afterwards.

    With `create` a missing data directory is made. Raises StartError.
    """
    found = running(target)
    if found is not None:
        yield found
        return
    directory = Path(target.data_dir).absolute()
    if not create and not any(
        (directory / name).exists() for name in ("appendonlydir", "appendonly.aof")
    ):
        raise StartError(
            f"There is no Korvet data in {directory}: start `korvet` there, "
            "or name a Redis with --redis URL."
        )
    with RedisServer.launch(directory) as server:
        yield server.url


@contextmanager
def store(target: Target, *, create: bool = False) -> Iterator[SyncStore]:
    """Yield a store on the target's Redis, whose data directory may be made."""
    with url(target, create=create) as where, SyncStore.connect(where) as found:
        yield found
