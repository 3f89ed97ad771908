"""Listeners: bound first, served when the broker is ready; and the sockets of the ops port."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

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


_BACKLOG = 128


def bind_ops(where: Address | Path, *, or_free: bool = False) -> list[socket.socket]:
    """Listen on an address or a unix socket. Raises StartError if it is in use.

    `or_free`: take a free port of the host if the port is in use.
    """
    try:
        if isinstance(where, Path):
            return [_listen_unix(where)]
        try:
            return _listen(where)
        except OSError as error:
            if not or_free or error.errno != errno.EADDRINUSE:
                raise
            return _listen(Address(where.host, 0))
    except OSError as error:
        if isinstance(where, Address):
            raise unserved("--ops", where, error) from None
        raise StartError(f"{where} cannot be served: {error.strerror or error}.") from None


def url_of(sockets: Sequence[socket.socket], *, tls: bool) -> str:
    """Return the URL of listening sockets."""
    return f"http{'s' * tls}://{Address(*sockets[0].getsockname()[:2])}"


def _listen(where: Address) -> list[socket.socket]:
    """Listen on every address of the host that this machine has."""
    rows = socket.getaddrinfo(
        where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    port, found, missing = where.port, [], None
    with ExitStack() as opened:
        for family, kind, protocol, _, address in dict.fromkeys(rows):
            try:
                each = opened.enter_context(socket.socket(family, kind, protocol))
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                each.bind((address[0], port, *address[2:]))
            except OSError as error:
                # `localhost` has an IPv6 address also where IPv6 is off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                continue
            port = each.getsockname()[1]
            found.append(_listening(each))
        if missing is not None and not found:
            raise missing
        opened.pop_all()
    return found


def _listen_unix(where: Path) -> socket.socket:
    where.unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(str(where))
        where.chmod(0o600)
    except BaseException:
        found.close()
        raise
    return _listening(found)


def _listening(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.listen(_BACKLOG)
    return sock
