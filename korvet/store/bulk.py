"""A large reply as the bytes that Redis sent, for whoever can read them without an object a value.

Rules
- An ECHO of sixteen random bytes goes behind the command: where they come back, the reply ends.
- What comes behind the ECHO is parsed as usual, and so the connection stays in step.
- The bytes stand in one buffer, which the next reply overwrites.
"""

import os
from collections.abc import Sequence
from typing import Any

import hiredis
import redis

FIRST_BUFFER = 1 << 20
_LONGEST_READ = 1 << 20


class Bulk:
    """Takes large replies, one after another."""

    def __init__(self) -> None:
        self._buffer = bytearray(FIRST_BUFFER)

    def ask(
        self, client: Any, command: Sequence[Any], then: Sequence[Sequence[Any]]
    ) -> tuple[memoryview, list[Any]]:
        """The reply to the command as bytes, and those to `then` parsed.

        Raises what redis-py raises when the connection breaks; it is then closed.
        """
        token = os.urandom(16)
        connection = client.connection_pool.get_connection()
        try:
            connection.send_packed_command(
                connection.pack_commands([command, ("ECHO", token), *then])
            )
            return self._receive(connection, b"$16\r\n%b\r\n" % token, len(then))
        except BaseException:
            connection.disconnect()
            raise
        finally:
            client.connection_pool.release(connection)

    def _receive(self, connection: Any, mark: bytes, more: int) -> tuple[memoryview, list[Any]]:
        # redis-py has no reply without parsing; nothing waits in its parser between two commands.
        socket = connection._sock
        filled = 0
        while True:
            before, filled = filled, self._read(socket, filled)
            end = self._buffer.find(mark, max(0, before - len(mark)), filled)
            if end >= 0:
                break
        reader = hiredis.Reader()
        reader.feed(bytes(self._buffer[end + len(mark) : filled]))
        found: list[Any] = []
        while len(found) < more:
            reply = reader.gets()
            if reply is not False:
                found.append(reply)
                continue
            before, filled = filled, self._read(socket, filled)
            reader.feed(bytes(self._buffer[before:filled]))
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
