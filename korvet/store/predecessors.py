"""End the broken connections of redis-py clients on the server, as `reconnect` does for the broker.

A connection that redis-py has closed may have delivered calls that the server has not run yet. Each
new connection first ends (CLIENT KILL) those of the same client that broke. A store waits for that
before it reports a call's failure: the call cannot run any more then.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.exceptions import ResponseError

from korvet.store.errors import StoreError
from korvet.store.handshake import kill_refused, parse_info
from korvet.store.reconnect import HELD_S
from korvet.store.redis_py_calls import UNAVAILABLE
from korvet.store.send_buffers import discard_at_close

AGAIN_S = 0.1
"""Seconds between two attempts to connect."""

_Steps = Generator[tuple[Any, ...], Any, None]
"""Commands to send on a new connection, the last one empty; each gets its reply or the error."""


class Predecessors:
    """The connections of one redis-py client; `greet` or `greet_async` is its connect function."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[str, int]] = {}
        """Connection to the server's run id and its number there."""
        self._given_up: set[Any] = set()
        self.accept_server: Callable[[str], Any] | None = None
        """Called with the server's run id before the first command; it may raise StoreError."""

    @classmethod
    def of(cls, client: Any) -> "Predecessors | None":
        """Return those of the client; None for one that another program made."""
        pool = getattr(client, "connection_pool", None)
        greet = pool.connection_kwargs.get("redis_connect_func") if pool is not None else None
        found = getattr(greet, "__self__", None)
        return found if isinstance(found, cls) else None

    @property
    def waited_for(self) -> bool:
        """Return whether a connection broke that may still deliver calls."""
        return any(is_broken(each) and each not in self._given_up for each in self._known)

    def greet(self, connection: Any) -> None:
        """Set up a new connection."""
        connection.on_connect()
        discard_at_close(connection._sock)
        steps = self._steps(connection)
        command = next(steps)
        while command:
            connection.send_command(*command)
            try:
                reply = connection.read_response()
            except ResponseError as error:
                reply = error
            command = steps.send(reply)
        if self.accept_server is not None:
            with _refusals():
                self.accept_server(self._run_of(connection))

    async def greet_async(self, connection: Any) -> None:
        """Set up a new connection of redis.asyncio."""
        await connection.on_connect()
        discard_at_close(connection._writer.get_extra_info("socket"))
        steps = self._steps(connection)
        command = next(steps)
        while command:
            await connection.send_command(*command)
            try:
                reply = await connection.read_response()
            except ResponseError as error:
                reply = error
            command = steps.send(reply)
        if self.accept_server is not None:
            with _refusals():
                await self.accept_server(self._run_of(connection))

    def _run_of(self, connection: Any) -> str:
        return self._known[connection][0] if connection in self._known else ""

    def _steps(self, connection: Any) -> _Steps:
        number = yield ("CLIENT", "ID")
        info = yield ("INFO", "server")
        run = parse_info(info).get("run_id", "") if isinstance(info, bytes) else ""
        for other in [each for each in self._known if each is connection or is_broken(each)]:
            its_run, its_number = self._known[other]
            if run and run == its_run:
                reply = yield ("CLIENT", "KILL", "ID", its_number)
                if isinstance(reply, Exception):
                    kill_refused(str(reply))
            del self._known[other]
            self._given_up.discard(other)
        if isinstance(number, int):
            self._known[connection] = (run, number)
        yield ()

    def wait(self, client: Any, is_used: Callable[[], bool]) -> None:
        """Wait until the broken connections have been ended, for at most HELD_S.

        The wait ends if the server is gone or no longer used: then they change nothing.
        """
        until = time.monotonic() + HELD_S
        while self.waited_for and time.monotonic() < until:
            try:
                client.execute_command("PING")  # on a new connection
            except (*UNAVAILABLE, redis.RedisError) as error:
                if is_gone(client, error) or not is_used():
                    break
                time.sleep(AGAIN_S)
        self._give_up()

    async def wait_async(self, client: Any) -> None:
        """Do as `wait` for a client of redis.asyncio."""
        until = time.monotonic() + HELD_S
        while self.waited_for and time.monotonic() < until:
            try:
                await client.execute_command("PING")
            except (*UNAVAILABLE, redis.RedisError) as error:
                if is_gone(client, error):
                    break
                await asyncio.sleep(AGAIN_S)
        self._give_up()

    def _give_up(self) -> None:
        self._given_up = {each for each in self._known if is_broken(each)}


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise a StoreError as redis-py's, which closes the connection then."""
    try:
        yield
    except StoreError as error:
        raise redis.ConnectionError(str(error)) from error


def is_broken(connection: Any) -> bool:
    """Return whether redis-py has closed the connection."""
    return getattr(connection, "_sock", None) is None and not getattr(connection, "_writer", None)


def is_gone(client: Any, error: BaseException) -> bool:
    """Return whether the error shows that the process behind a Unix socket has ended."""
    return "path" in client.connection_pool.connection_kwargs and isinstance(
        error.__context__, ConnectionRefusedError | FileNotFoundError
    )
