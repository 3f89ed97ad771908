"""A large reply as the bytes that Redis sent, for whoever can read them without an object a value.

Rules
- An ECHO of sixteen random bytes goes behind the command, and one of others behind what follows it:
  where they come back the reply ends, and where all replies end. Nothing else is searched for.
- The bytes stand in one buffer, which the next reply overwrites.
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
    """Commands whose replies are on their way."""

    pool: Any
    connection: Any
    behind: bytes
    """What comes behind the reply to the first of them."""
    last: bytes
    """What comes behind all replies."""
    more: int


class RawReply:
    """Takes large replies, one after another. The next can be asked for while one is in use."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BUFFER)
        self._asked: _Asked | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a reply is on its way."""
        return self._asked is not None

    def ask(self, client: Any, command: Sequence[Any], then: Sequence[Sequence[Any]]) -> None:
        """The commands are on their way; `reply` waits for what Redis says to them.

        Raises what redis-py raises when the connection breaks; it is then closed.
        """
        self.forget()
        behind, last = os.urandom(_TOKEN), os.urandom(_TOKEN)
        pool = client.connection_pool
        connection = pool.get_connection()
        self._asked = _Asked(pool, connection, _echoed(behind), _echoed(last), len(then))
        commands = [command, ("ECHO", behind), *then, ("ECHO", last)]
        try:
            connection.send_packed_command(connection.pack_commands(commands))
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
        socket, last = asked.connection._sock, asked.last
        filled = ends = 0
        while not self._buffer.startswith(last, ends, filled):
            filled = self._read(socket, filled)
            ends = max(0, filled - len(last))
        end = self._buffer.rfind(asked.behind, 0, ends)
        reader = hiredis.Reader()
        reader.feed(bytes(self._buffer[end + len(asked.behind) : ends]))
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


def _echoed(token: bytes) -> bytes:
    """The reply to an ECHO."""
    return b"$%d\r\n%b\r\n" % (len(token), token)


def parsed(reply: memoryview) -> Any:
    """The reply as redis-py would give it."""
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    return reader.gets()
