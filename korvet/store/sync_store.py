"""The store of Spark workers and the command line: one redis-py client, one call after another.

By default redis-py sends a command again when a connection breaks. `SyncStore.connect` turns that
off. Callers that pass their own client must do the same (`retry=Retry(NoBackoff(), 0)`), or an
append can happen twice. Callers whose calls may all happen twice set `patience_s`.

`StoreUnavailable` means the same as in `async_store`, unless the caller passed its own client.
"""

import copy
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import redis
from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError

from korvet.base.synced_files import IDENT, SyncedFiles
from korvet.scripts.call import Arg, Call, Reply, Script
from korvet.scripts.keys import write_before_wait
from korvet.store.address import Address, parse
from korvet.store.errors import REPLICA_CODES, RedisUnreachable, StoreRefused, StoreUnavailable
from korvet.store.predecessors import Predecessors
from korvet.store.raw_reply import RawReply
from korvet.store.redis_clients import SyncCluster, open_client, open_master
from korvet.store.redis_py_calls import (
    UNAVAILABLE,
    error_of,
    eval_of,
    evalsha_of,
    plain_arg,
    reply_of,
)
from korvet.store.slots import whole

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

_LASTING = frozenset({"MISCONF", "OOM"})
"""Refusals that a retry does not fix: an operator has to act."""
_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds before each retry; the last one repeats."""

logger = logging.getLogger("korvet.store")


class SyncStore:
    """Runs calls on a redis-py client, or on one with its interface (fakeredis)."""

    patience_s: float = 0.0
    """Seconds for which calls are sent again while Redis is unavailable."""

    def __init__(self, client: Any, address: Address | None = None, where: object = None) -> None:
        self._client = client
        self._address = address
        self._where = f" at {where or address}" if where or address else ""
        # A second client on the same connections, whose replies are as Redis sent them.
        self._raw = copy.copy(client)
        self._loaded: set[Script[Any]] = set()
        self._raw.response_callbacks = {}
        self._bulk = RawReply()
        self._wanted: tuple[Sequence[Arg], list[Sequence[Arg]]] | None = None
        self._pause: Callable[[float], object] = time.sleep
        self._accept_server: Callable[[str], object] | None = None

    @classmethod
    def connect(cls, url: str) -> Self:
        """Return a store for the URL, which may name Sentinels or a cluster.

        Nothing is sent before the first call. Raises BadAddress.
        """
        location = parse(url)
        if location.kind == "cluster":
            return cls(SyncCluster(location.seeds, open_client), where=location)
        if location.kind == "sentinel":
            return cls(open_master(location), where=location)
        return cls(open_client(location.seeds[0]), location.seeds[0])

    def accept_servers(self, accept: Callable[[str], object]) -> None:
        """Call `accept` with the run id of each server before the first command to it.

        It may raise StoreError. A client that another program made has no such call.
        """
        self._accept_server = accept
        if isinstance(self._raw, SyncCluster):
            self._raw.accept_server = accept
        elif (predecessors := Predecessors.of(self._raw)) is not None:
            predecessors.accept_server = accept

    @property
    def is_cluster(self) -> bool:
        """Return whether this is known to be a Redis Cluster."""
        return isinstance(self._raw, SyncCluster)

    def close(self) -> None:
        """Close the connections."""
        self._bulk.forget()
        self._raw.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, call: Call[R]) -> R:
        """Run the call and return its reply."""
        return self._patiently(lambda: reply_of(call, self._send(call)), call.script.writes)

    def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """Return the replies in the order of the calls, in one round trip (on a cluster, one each).

        The first failure is raised after every call has been answered.
        """
        todo = list(calls)
        writes = any(call.script.writes for call in todo)
        return self._patiently(lambda: self._run_many(todo), writes)

    def _run_many(self, todo: Sequence[Call[R]]) -> list[R]:
        is_cluster = isinstance(self._raw, SyncCluster)
        raws = list(map(self._send, todo)) if is_cluster else self._send_many(todo)
        return [reply_of(call, raw) for call, raw in zip(todo, raws, strict=True)]

    def command(self, *command: Arg) -> Any:
        """Return the raw reply to a plain command: bytes, int, None or a list of these."""
        words = tuple(map(plain_arg, command))
        return self._patiently(lambda: self._command(words))

    def _command(self, command: Sequence[Any]) -> Any:
        try:
            return self._execute(*command)
        except ResponseError as error:
            raise error_of(command, error) from error

    def pubsub(self) -> Any:
        """Return redis-py's subscriptions, on a further connection.

        In a cluster each node publishes the messages of all.
        """
        client = self._raw
        return (client.masters()[0][1] if isinstance(client, SyncCluster) else client).pubsub()

    def on_masters(self, *command: Arg) -> list[tuple[str, Any]]:
        """Return each master's address, and its raw reply to a plain command or its error."""
        words = tuple(map(plain_arg, command))
        return self._patiently(lambda: self._on_masters(words))

    def _on_masters(self, words: Sequence[Any]) -> list[tuple[str, Any]]:
        if not self.is_cluster and b"cluster_enabled:1" in self._command(("INFO", "cluster")):
            self._use_cluster()
        if isinstance(self._raw, SyncCluster):
            masters = self._raw.masters()
        else:
            masters = [(self._where.removeprefix(" at ") or "Redis", self._raw)]
        replies: list[tuple[str, Any]] = []
        for name, client in masters:
            try:
                replies.append((name, client.execute_command(*words)))
            except ResponseError as error:
                replies.append((name, error_of((*words[:2], f"at {name}"), error)))
        return replies

    def commands(self, commands: Iterable[Sequence[Arg]]) -> list[Any]:
        """Return the raw replies in order, in one round trip (on a cluster, one each)."""
        todo = [tuple(map(plain_arg, command)) for command in commands]
        return self._patiently(lambda: self._commands(todo))

    def _commands(self, todo: Sequence[Sequence[Any]]) -> list[Any]:
        if isinstance(self._raw, SyncCluster):
            return [self._command(command) for command in todo]
        pipeline = self._raw.pipeline(transaction=False)
        for command in todo:
            pipeline.execute_command(*command)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        for command, reply in zip(todo, replies, strict=True):
            if isinstance(reply, Exception):
                raise error_of(command, reply) from reply
        return replies

    def ask_copied(
        self, command: Sequence[Arg], replicas: int, limit_s: float, *, fsync: bool = False
    ) -> tuple[Any, bool]:
        """Return the raw reply to a command of one key, and whether that server's data is durable.

        The second value is true if that many replicas, and with `fsync` its append-only file, have
        within the time everything that the answering server had.
        """
        words = tuple(map(plain_arg, command))
        return self._patiently(lambda: self._ask_copied(words, replicas, limit_s, fsync))

    def _ask_copied(
        self, command: Sequence[Any], replicas: int, limit_s: float, fsync: bool
    ) -> tuple[Any, bool]:
        client = self._raw
        if isinstance(client, SyncCluster):
            self._command(command)  # from now on the key's node is known
            client = client.client_of(command)
        files = _embedded_files(client) if fsync else None
        # All on one connection: WAIT covers writes of its connection, see `replica_wait`.
        pipeline = client.pipeline(transaction=False)
        pipeline.execute_command(*command)
        pipeline.execute_command(*write_before_wait(str(command[1])))
        pipeline.execute_command("WAIT", replicas, int(limit_s * 1000))
        if fsync and files is None:
            pipeline.execute_command("WAITAOF", 1, 0, int(limit_s * 1000))
        try:
            reply, _, count, *synced = pipeline.execute()
        except AskError as error:  # or MOVED: the slot migrates to another node
            raise self._unavailable(error) from error
        except ResponseError as error:
            raise error_of(command, error) from error
        if files is not None:
            with closing(files):
                files.sync()
        return reply, count >= replicas and all(local for local, _ in synced)

    def ask_bulk(self, command: Sequence[Arg], then: Iterable[Sequence[Arg]] = ()) -> None:
        """Send a plain command and others after it; `bulk_reply` waits for the replies.

        One reply can be in use while the next is in flight. All keys are in one slot.
        """
        self._wanted = (command, list(then))
        self._patiently(self._ask_wanted)

    def bulk_reply(self) -> tuple[memoryview, list[Any]] | None:
        """Return the reply to the last command as raw bytes, and the replies of those after it.

        The bytes are valid until the next such reply. None if Redis refused: `command` says why.
        """
        reply, more = self._patiently(self._wanted_reply)
        if reply[0] == ord("-") or any(isinstance(each, Exception) for each in more):
            return None
        return reply, more

    def _ask_wanted(self) -> None:
        assert self._wanted is not None
        client = self._raw
        if isinstance(client, SyncCluster):
            client = client.client_of(self._wanted[0])
        self._bulk.ask(client, *self._wanted)

    def _wanted_reply(self) -> tuple[memoryview, list[Any]]:
        if self._bulk.asked is None:
            self._ask_wanted()
        return self._bulk.reply()

    def forget_bulk(self) -> None:
        """Drop what was requested and not waited for."""
        self._bulk.forget()

    def _patiently(self, ask: Callable[[], T], writes: bool = False) -> T:
        """Return the result of `ask`, with retries. redis-py's exceptions become StoreErrors.

        With `writes`, a failure is raised once what was sent cannot run any more: see
        `predecessors`.
        """
        began, tries = time.monotonic(), 0
        while True:
            try:
                try:
                    return ask()
                except UNAVAILABLE as error:
                    if writes:
                        self._end_broken()
                    raise self._unavailable(error) from error
            except StoreUnavailable as error:
                code = error.code if isinstance(error, StoreRefused) else ""
                if code in REPLICA_CODES:
                    self._leave()
                lasting = code in _LASTING or isinstance(error, RedisUnreachable)
                if lasting or time.monotonic() - began >= self.patience_s:
                    raise
                if tries == 1:
                    logger.warning("%s; retrying for up to %d s", error, self.patience_s)
                self._pause(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1

    def _end_broken(self) -> None:
        """Wait until what was sent on broken connections cannot run any more, within a limit."""
        raw = self._raw
        for client in raw.clients if isinstance(raw, SyncCluster) else [raw]:
            is_used = partial(raw.uses, client) if client is not raw else lambda: True
            if (predecessors := Predecessors.of(client)) is not None:
                predecessors.wait(client, is_used)

    def _unavailable(self, error: object) -> StoreUnavailable:
        if isinstance(error, redis.AuthenticationError):
            # A retry does not make a password right.
            return RedisUnreachable(f"Redis{self._where} refused user or password: {error}")
        return StoreUnavailable(f"no answer from Redis{self._where}: {error}")

    def look_again(self) -> None:
        """Connect again before the next command, to the current master.

        An old master may stay up for a long time and answer reads.
        """
        if isinstance(self._raw, SyncCluster):
            self._raw.forget()
        else:
            self._leave()

    def _leave(self) -> None:
        """Open another connection for the next command."""
        pool = getattr(self._raw, "connection_pool", None)  # a cluster has its own map
        if pool is not None:
            pool.disconnect(inuse_connections=False)

    def _send(self, call: Call[Any]) -> Any:
        """Return the raw reply, or the error that Redis answered."""
        call = whole(call) if self.is_cluster else call
        try:
            try:
                return self._execute(*evalsha_of(call))
            except NoScriptError:
                return self._execute(*eval_of(call))
        except ResponseError as error:
            return error

    def _send_many(self, calls: Sequence[Call[Any]]) -> list[Any]:
        pipeline = self._raw.pipeline(transaction=False)
        scripts = [s for s in dict.fromkeys(call.script for call in calls) if s not in self._loaded]
        for script in scripts:
            pipeline.script_load(script.text)
        for call in calls:
            pipeline.execute_command(*evalsha_of(call))
        raws = pipeline.execute(raise_on_error=False)[len(scripts) :]
        self._loaded.update(scripts)
        # After these two errors nothing was executed.
        again = (NoScriptError, MovedError)
        return [
            self._send(call) if isinstance(raw, again) else raw
            for call, raw in zip(calls, raws, strict=True)
        ]

    def _execute(self, *command: Any) -> Any:
        try:
            return self._raw.execute_command(*command)
        except MovedError:
            # The URL names one node of a cluster: use the cluster client from now on.
            if self._address is None or isinstance(self._raw, SyncCluster):
                raise
            self._use_cluster()
            return self._raw.execute_command(*command)

    def _use_cluster(self) -> None:
        """Use the cluster of which the URL named one node."""
        if self._address is not None:
            self._raw = SyncCluster([self._address], open_client)
            self._raw.accept_server = self._accept_server


def _embedded_files(client: Any) -> SyncedFiles | None:
    """Return the files of a server that syncs nothing itself, None of another one."""
    try:
        found = client.execute_command("CONFIG", "GET", "*")
    except ResponseError:  # the user may lack the right to ask
        return None
    settings = dict(zip(found[::2], found[1::2], strict=True))
    if (settings[b"syslog-ident"], settings[b"appendfsync"]) != (IDENT.encode(), b"no"):
        return None
    return SyncedFiles(Path(os.fsdecode(settings[b"dir"])))
