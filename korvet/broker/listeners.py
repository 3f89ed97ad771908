"""Ports: bound first, served when everything else is ready; or one sentence that says why not."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from korvet.config.broker_config import Address, Config
from korvet.config.setting import StartError

BACKLOG = 1024


async def bind(
    option: str, where: Address, config: Config, accept: Callable[[], asyncio.BaseProtocol]
) -> asyncio.base_events.Server:
    """The port is ours, and serves nobody yet."""
    try:
        return await asyncio.get_running_loop().create_server(
            accept,
            where.host,
            where.port,
            backlog=BACKLOG,
            reuse_port=config.workers > 1 or None,
            start_serving=False,
        )
    except OSError as error:
        raise unserved(option, where, error) from None


async def open_to_all(option: str, where: Address, server: asyncio.base_events.Server) -> None:
    """The port serves. Two may bind the same one as long as neither serves: the second is refused
    now, of which uvloop tells nobody but by a socket that is gone."""
    try:
        await server.start_serving()
        if None not in server.sockets:
            return
    except OSError as error:
        raise unserved(option, where, error) from None
    raise unserved(option, where, OSError(errno.EADDRINUSE, ""))


def unserved(option: str, where: Address, error: OSError) -> StartError:
    """What to tell of an address that cannot be listened on."""
    why = error.strerror or str(error)
    # A name's errors have numbers of their own, on macOS among those of files.
    number = 0 if isinstance(error, socket.gaierror) else error.errno or 0
    if number in errno.errorcode:
        why = os.strerror(number)  # without what the event loop says around it
    advice = "name one of this machine's addresses"
    if number == errno.EADDRINUSE:
        advice = "choose another port, or stop whoever has it"
    elif number in (errno.EACCES, errno.EPERM):
        advice = "choose a port from 1024 on"
    return StartError(f"{option} {where} cannot be served: {why}; {advice}.")
