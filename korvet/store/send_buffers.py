"""Set the send buffers of sockets: their size, and what becomes of their content at the end.

The size is that of a Redis that this process has started, on its end of Unix sockets. Such a socket
takes 208 KiB by default, and its sender continues once three quarters of that are read. A reply of
1 MB makes both processes wait eight times, which costs more than its copies. Only the owner of a
socket can set its buffer, and Redis has no setting for it.

Rules
- Linux only, and only for a child of this process: `pidfd_getfd` gives a second descriptor of the
  child's socket. Where the system refuses that, the buffers stay as they are.
- A buffer is a limit: memory is used only by what the peer has not read yet.
"""

import ctypes
import os
import socket
import struct
import sys
from contextlib import closing, suppress

SEND_BYTES = 768 << 10
"""The kernel doubles it. More hardly reads faster, and others wait longer for their turn."""
_PIDFD_GETFD = 438
"""Number of the system call: Python has no function for it."""
_PEER = struct.Struct("3i")
_NO_LINGER = struct.pack("ii", 1, 0)


def discard_at_close(connection: socket.socket | None) -> None:
    """Let the kernel discard what it has not delivered when the socket closes."""
    # A socket of fakeredis has no options.
    if connection is not None and hasattr(connection, "setsockopt"):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def enlarge(connection: socket.socket) -> None:
    """Enlarge the buffers of the Redis at the other end, if it is a child of this process."""
    if sys.platform != "linux" or connection.family != socket.AF_UNIX:
        return
    with suppress(OSError, ValueError):
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid: int = _PEER.unpack(peer)[0]
        if _parent_of(pid) == os.getpid():
            _enlarge_all(pid)


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def _enlarge_all(pid: int) -> None:
    """Enlarge the buffer of every connected Unix socket of the process."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            descriptor = call(_PIDFD_GETFD, process, int(name), 0)
            if descriptor < 0:
                return
            with closing(socket.socket(fileno=descriptor)) as sock:
                option = (socket.SOL_SOCKET, socket.SO_SNDBUF)
                if sock.family == socket.AF_UNIX and sock.getsockopt(*option) < SEND_BYTES:
                    sock.setsockopt(*option, SEND_BYTES)
    finally:
        os.close(process)
