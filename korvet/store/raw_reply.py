"""A large reply as the bytes that Redis sent, for callers that decode without an object per value.

Rules
- An ECHO of sixteen random bytes follows the command, and another one the commands after it: the
  echoed bytes mark the end of the reply and of all replies. Nothing else is searched for.
- All bytes are in one buffer, which the next reply overwrites.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import hiredis
import redis

FIRST_BUFFER = 1 << 20
_LONGEST_READ = 1 << 20
_TOKEN = 16


class _Asked(NamedTuple):
    """Commands whose replies are in flight."""

    pool: Any
    connection: Any
    first: bytes
    """The bytes that mark the end of the first reply."""
    last: bytes
    """The bytes that mark the end of all replies."""
    more: int


class RawReply:
    """Takes large replies, one after another. The next one can be requested while one is in use."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BUFFER)
        self.asked: _Asked | None = None
        """What is in flight."""

    def ask(self, client: Any, command: Sequence[Any], then: Sequence[Sequence[Any]]) -> None:
        """Send the commands; `reply` waits for the replies.

        Raises redis-py's exception if the connection breaks; it is then closed.
        """
        self.forget()
        first, last = os.urandom(_TOKEN), os.urandom(_TOKEN)
        pool = client.connection_pool
        connection = pool.get_connection()
        self.asked = _Asked(pool, connection, _echoed(first), _echoed(last), len(then))
        commands = [command, ("ECHO", first), *then, ("ECHO", last)]
        try:
            connection.send_packed_command(connection.pack_commands(commands))
        except BaseException:
            self.forget()
            raise

    def reply(self) -> tuple[memoryview, list[Any]]:
        """Return the first reply as bytes and the replies of the commands after it parsed.

        Raises redis-py's exception if the connection breaks; it is then closed.
        """
        assert self.asked is not None
        asked = self.asked
        try:
            found = self._receive(asked)
        except BaseException:
            self.forget()
            raise
        self.asked = None
        asked.pool.release(asked.connection)
        return found

    def forget(self) -> None:
        """Drop the reply in flight, together with its connection."""
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.connection.disconnect()
            asked.pool.release(asked.connection)

    def _receive(self, asked: _Asked) -> tuple[memoryview, list[Any]]:
        # redis-py has no reply without parsing; its parser holds no bytes between two commands.
        socket, last = asked.connection._sock, asked.last
        filled = ends = 0
        while not self._buffer.startswith(last, ends, filled):
            filled = self._read(socket, filled)
            ends = max(0, filled - len(last))
        end = self._buffer.rfind(asked.first, 0, ends)
        reader = hiredis.Reader()
        reader.feed(bytes(self._buffer[end + len(asked.first) : ends]))
        found = [reader.gets() for _ in range(asked.more)]
        return memoryview(self._buffer)[:end].toreadonly(), found

    def _read(self, socket: Any, filled: int) -> int:
        """Read from the socket; return the length of the buffer's content."""
        if filled == len(self._buffer):
            larger = bytearray(2 * filled)
            larger[:filled] = self._buffer
            self._buffer = larger
        room = memoryview(self._buffer)[filled : filled + _LONGEST_READ]
        received = socket.recv_into(room)
        if not received:
            raise redis.ConnectionError("Redis closed the connection")
        return filled + int(received)


def _echoed(token: bytes) -> bytes:
    """Return the reply to an ECHO."""
    return b"$%d\r\n%b\r\n" % (len(token), token)


def parsed(reply: memoryview) -> Any:
    """Parse a reply as redis-py does."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return reader.gets()
