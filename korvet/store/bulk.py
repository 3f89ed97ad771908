"""A large reply as the bytes that Redis sent, for whoever can read them without an object a value.

Rules
- An ECHO of sixteen random bytes goes behind the command, and again behind what follows it: where
  they come back the reply ends, and all replies. Nothing else is searched for.
- The bytes stand in one buffer, which the next reply overwrites.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import hiredis
import redis

FIRST_BUFFER = 1 << 20
_LONGEST_READ = 1 << 20


class _Asked(NamedTuple):
    """Commands whose replies are on their way."""

    pool: Any
    connection: Any
    mark: bytes
    more: int


class Bulk:
    """Takes large replies, one after another. The next can be asked for while one is in use."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BUFFER)
        self._asked: _Asked | None = None

    def ask(self, client: Any, command: Sequence[Any], then: Sequence[Sequence[Any]]) -> None:
        """The commands are on their way; `reply` waits for what Redis says to them.

        Raises what redis-py raises when the connection breaks; it is then closed.
        """
        self.forget()
        token = os.urandom(16)
        echo = ("ECHO", token)
        pool = client.connection_pool
        connection = pool.get_connection()
        self._asked = _Asked(pool, connection, b"$16\r\n%b\r\n" % token, len(then))
        try:
            connection.send_packed_command(connection.pack_commands([command, echo, *then, echo]))
        except BaseException:
            self.forget()
            raise

    def reply(self) -> tuple[memoryview, list[Any]]:
        """The reply to the command as bytes, and those to what was sent behind it parsed.

        Raises what redis-py raises when the connection breaks; it is then closed.
        """
        assert self._asked is not None
        asked = self._asked
        try:
            found = self._receive(asked)
        except BaseException:
            self.forget()
            raise
        self._asked = None
        asked.pool.release(asked.connection)
        return found

    def forget(self) -> None:
        """Nobody waits for a reply; one that is on its way is lost with its connection."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.connection.disconnect()
            asked.pool.release(asked.connection)

    def _receive(self, asked: _Asked) -> tuple[memoryview, list[Any]]:
        # redis-py has no reply without parsing; nothing waits in its parser between two commands.
        socket, mark = asked.connection._sock, asked.mark
        filled = 0
        while filled < len(mark) or not self._buffer.startswith(mark, filled - len(mark), filled):
            filled = self._read(socket, filled)
        behind = filled - len(mark)
        end = self._buffer.rfind(mark, 0, behind)
        reader = hiredis.Reader()
        reader.feed(bytes(self._buffer[end + len(mark) : behind]))
        found = [reader.gets() for _ in range(asked.more)]
        return memoryview(self._buffer)[:end].toreadonly(), found

    def _read(self, socket: Any, filled: int) -> int:
        """How much the buffer holds after another read."""
        if filled == len(self._buffer):
            larger = bytearray(2 * filled)
            larger[:filled] = self._buffer
            self._buffer = larger
        room = memoryview(self._buffer)[filled : filled + _LONGEST_READ]
        received = socket.recv_into(room)
        if not received:
            raise redis.ConnectionError("Redis closed the connection")
        return filled + int(received)


def parsed(reply: memoryview) -> Any:
    """The reply as redis-py would give it."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return reader.gets()
