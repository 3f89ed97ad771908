"""The handshake of a new Redis connection: authentication, properties, version."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from korvet.base import logfmt
from korvet.scripts.call import Arg
from korvet.store.address import Address
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import CommandFailed, HandshakeRefused, RedisTooOld, StoreRefused
from korvet.store.server_info import Server, describe_server, parse_info

OLDEST = (6, 2)
LATE_CALLS = "a call of a connection that broke may run after newer calls"
KILL_HINT = "permit client|kill: `korvet redis-acl` prints the rule of the Redis user"

log = logfmt.get("store")


@dataclass(frozen=True)
class ConnectOptions:
    """Options of new connections."""

    client_name: str = "korvet"
    connect_s: float = 5.0
    timeout_s: float = 30.0


async def ask(pipeline: PipelinedConnection, *command: Arg) -> Any:
    """Return the reply to one plain command on this very connection."""
    future = asyncio.get_running_loop().create_future()
    pipeline.send(PendingCommand(future, command=command))
    return await future


async def handshake(
    pipeline: PipelinedConnection, address: Address, options: ConnectOptions
) -> Server:
    """Authenticate, name the connection, select the database, check the server's version."""
    try:
        if address.password is not None:
            user = [address.username] if address.username else []
            await ask(pipeline, "AUTH", *user, address.password)
        if address.db:
            await ask(pipeline, "SELECT", address.db)
        await ask(pipeline, "CLIENT", "SETNAME", options.client_name)
        number = await ask(pipeline, "CLIENT", "ID")
        info: dict[str, str] = {}
        for section in ("server", "cluster", "replication"):
            info |= parse_info(await ask(pipeline, "INFO", section))
        await _wait_until_loaded(pipeline)
        await _limit_values(pipeline)
    except CommandFailed as error:
        raise HandshakeRefused(
            f"Redis at {address} refused {error.command}: {error.message}"
        ) from error
    pipeline.identity = (info.get("run_id", ""), number)
    server = describe_server(info)
    numbers = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2])
    if numbers < OLDEST:
        raise RedisTooOld(
            f"{server.name} {server.version} at {address} is too old: "
            "Redis 6.2 or newer, or Valkey 7.2 or newer is needed"
        )
    return server


async def end_connection(pipeline: PipelinedConnection, number: int) -> None:
    """End the connection of that number on the server; what it still holds never runs."""
    try:
        await ask(pipeline, "CLIENT", "KILL", "ID", number)
    except CommandFailed as error:
        kill_refused(str(error))


@cache
def kill_refused(reason: str) -> None:
    """Log once that connections cannot be ended on the server."""
    log.warning("client kill refused", reason=reason, effect=LATE_CALLS, hint=KILL_HINT)


async def _limit_values(pipeline: PipelinedConnection) -> None:
    """Take the server's limit of a value; its default if this user may not read settings."""
    with suppress(CommandFailed, StoreRefused):
        found = await ask(pipeline, "CONFIG", "GET", "proto-max-bulk-len")
        if len(found) == 2 and isinstance(found[1], bytes) and found[1].isdigit():
            pipeline.limit_values(int(found[1]))


async def _wait_until_loaded(pipeline: PipelinedConnection) -> None:
    while True:
        try:
            await ask(pipeline, "PING")
        except StoreRefused as error:
            if error.code != "LOADING":
                return  # A replica without its master is accepted: calls report the error.
        else:
            return
        await asyncio.sleep(0.05)
