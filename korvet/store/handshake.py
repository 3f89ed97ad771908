"""The handshake of a new Redis connection, and the properties of its server in INFO."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from korvet.base import logfmt
from korvet.scripts.call import Arg
from korvet.store.address import Address
from korvet.store.connection import PendingCommand, PipelinedConnection
from korvet.store.errors import CommandFailed, HandshakeRefused, RedisTooOld, StoreRefused

OLDEST = (6, 2)
LATE_CALLS = "a call of a connection that broke may run after newer calls"
KILL_HINT = "permit client|kill: `korvet redis-acl` prints the rule of the Redis user"

log = logfmt.get("store")


@dataclass(frozen=True)
class Server:
    """The properties that a server reported in its handshake."""

    name: str
    version: str
    cluster: bool
    info: Mapping[str, str]

    @property
    def history(self) -> str:
        """Return the run id; of a promoted replica also the id of its history since then.

        A former master keeps its run id if it becomes a replica and is promoted again.
        """
        run, promoted = self.info.get("run_id", ""), self.info.get("master_replid2", "0")
        return run if not promoted.strip("0") else f"{run}:{self.info.get('master_replid')}"


def describe_server(info: Mapping[str, str]) -> Server:
    """Return the program and version that the fields of INFO name."""
    valkey = info.get("valkey_version")
    return Server(
        name="Valkey" if valkey else "Redis",
        version=valkey or info.get("redis_version", "unknown"),
        cluster=info.get("cluster_enabled") == "1",
        info=info,
    )


def parse_info(reply: bytes) -> dict[str, str]:
    """Parse the `name:value` lines of an INFO reply."""
    rows = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in rows if colon}


def online_replicas(info: Mapping[str, str]) -> int:
    """Return how many replicas of a server are online, from its INFO."""
    return sum(
        "state=online" in value
        for name, value in info.items()
        if name.startswith("slave") and name[5:].isdigit()
    )


def why_writes_are_refused(info: Mapping[str, str]) -> str:
    """Return why a server refuses writes, from its INFO; empty if it does not.

    A full memory is no reason here: reads, and what frees memory, continue.
    """
    if info.get("aof_last_write_status", "ok") != "ok":
        return "the last write or sync of the append-only file failed: is the disk full?"
    if info.get("min_slaves_good_slaves") == "0":
        return (
            "min-replicas-to-write wants more replicas than are connected; "
            "Korvet sets it to 1 on its own Redis if its disk fails or is full: see the log"
        )
    return ""


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
