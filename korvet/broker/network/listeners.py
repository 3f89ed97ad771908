"""Listeners: bound first, served when the broker is ready."""

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
    """Bind the port without serving it. Raises StartError."""
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
    """Serve the port. Raises StartError.

    Two processes may bind one port until one serves it: then the second one fails here. uvloop does
    not raise but removes the socket.
    """
    try:
        await server.start_serving()
        if None not in server.sockets:
            return
    except OSError as error:
        raise unserved(option, where, error) from None
    raise unserved(option, where, OSError(errno.EADDRINUSE, ""))


def unserved(option: str, where: Address, error: OSError) -> StartError:
    """Return the error for an address that cannot be served."""
    why = error.strerror or str(error)
    # Name resolution has separate error numbers; on macOS they overlap those of errno.
    number = 0 if isinstance(error, socket.gaierror) else error.errno or 0
    if number in errno.errorcode:
        why = os.strerror(number)  # without the event loop's text
    advice = "name one of this machine's addresses"
    if number == errno.EADDRINUSE:
        advice = "choose another port, or stop the process that uses it"
    elif number in (errno.EACCES, errno.EPERM):
        advice = "choose a port of 1024 or above"
    return StartError(f"{option} {where} cannot be served: {why}; {advice}.")
