"""Stores over redis-py clients that the caller made: what the library's two faces run on.

Rules
- The client's address and credentials are used, on connections of the store's own: RESP2,
  undecoded replies, no retries. redis-py repeats a command after a broken connection by default,
  which would append a batch twice.
- Commands submitted in one event-loop iteration leave in one pipeline, in their order.
- `InlineStore` never suspends, so `run_inline` needs neither an event loop nor a thread.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Protocol, TypeVar

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from korvet.scripts.call import Arg, Call, Reply
from korvet.store.calls import IS_INLINE, AsyncCalls, fail, resolve
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.handshake import parse_info
from korvet.store.predecessors import Predecessors
from korvet.store.redis_py_calls import (
    UNAVAILABLE,
    error_of,
    eval_of,
    evalsha_of,
    plain_arg,
    reply_of,
)
from korvet.store.sync_store import SyncStore

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
_ADDED_BY_POOL = ("himport_registry", "maint_notifications", "orig_", "oss_cluster")
"""Prefixes of connection options that redis-py puts into a pool for its own use."""


class LibraryStore(AsyncCalls, Protocol):
    """A store as the library uses it; AsyncStore is one too."""

    def submit_command(self, *command: Any) -> Any: ...
    async def accept(self, run: str) -> None: ...
    async def close(self) -> None: ...


class WithoutDecisions:
    """The part of a store that only brokers use: they have the settings."""

    _accept: Callable[[str], Coroutine[Any, Any, None]] | None = None

    async def accept(self, run: str) -> None:
        """Do what is done before the first command to a server, by its run id."""
        if self._accept is not None:
            await self._accept(run)

    async def command(self, *command: Arg) -> Any:
        raise NotImplementedError

    async def info(self, section: str) -> dict[str, tuple[str, dict[str, str]]]:
        """Return the INFO section of a server, on a cluster of any one."""
        return {"": ("", parse_info(await self.command("INFO", section)))}

    def run_of(self, key: str) -> str:
        """Return an empty run id."""
        return ""

    async def until_durable(
        self, key: str, run: str, topics: Collection[str] | None = None
    ) -> None:
        """Wait for nothing."""


class InlineStore(WithoutDecisions):
    """A SyncStore behind coroutines that never suspend."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store
        self._submitted: list[_InlineReply] = []

    @classmethod
    def over(cls, client: redis.Redis) -> "InlineStore":
        """Make a store with the client's address and credentials."""
        options = _options(client, Retry(NoBackoff(), 0), Predecessors().greet)
        pool = redis.ConnectionPool(**options)
        return cls(SyncStore(redis.Redis.from_pool(pool)))

    @classmethod
    def connect(cls, url: str) -> "InlineStore":
        """Make a store for the URL. Nothing is sent before the first call."""
        return cls(SyncStore.connect(url))

    def accept_servers(self, accept: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Run `accept` with the run id of each server before the first command to it."""
        self._accept = accept
        self._store.accept_servers(lambda run: run_inline(accept(run)))

    @property
    def is_cluster(self) -> bool:
        return self._store.is_cluster

    async def run(self, call: Call[R]) -> R:
        """Return the call's reply."""
        return self._store.run(call)

    async def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """Return the replies in the order of the calls."""
        return self._store.run_many(calls)

    async def command(self, *command: Arg) -> Any:
        """Return the raw reply to a plain command."""
        return self._store.command(*command)

    def submit_command(self, *command: Arg) -> "_InlineReply":
        """Return an awaitable; the first one awaited sends all submitted so far."""
        reply = _InlineReply(self, command)
        self._submitted.append(reply)
        return reply

    def send_submitted(self) -> None:
        """Send the submitted commands in one round trip and distribute their replies."""
        sent, self._submitted = self._submitted, []
        try:
            values = self._store.commands(each.command for each in sent)
        except StoreError as error:
            values = [error] * len(sent)
        for reply, value in zip(sent, values, strict=True):
            reply.value, reply.is_sent = value, True

    def pubsub(self) -> Any:
        """Return redis-py's subscriptions, on a further connection."""
        return self._store.pubsub()

    async def close(self) -> None:
        """Close the connections."""
        self._store.close()


class _InlineReply:
    """The reply to a submitted command."""

    def __init__(self, store: InlineStore, command: Sequence[Arg]) -> None:
        self.command = command
        self.value: Any = None
        self.is_sent = False
        self._store = store

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()  # an __await__ is a generator, also if it never suspends
        if not self.is_sent:
            self._store.send_submitted()
        if isinstance(self.value, StoreError):
            raise self.value
        return self.value

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Ignore the callback: a reply that is not awaited has no error to report."""


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over an InlineStore and return its result."""
    token = IS_INLINE.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        IS_INLINE.reset(token)
    work.close()
    raise RuntimeError("the coroutine suspended: it waits for something other than the store")


def iterate_inline(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate an async generator over an InlineStore."""
    try:
        while True:
            try:
                yield run_inline(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        run_inline(items.aclose())


class ClientStore(WithoutDecisions):
    """A store over a redis.asyncio client's address and credentials."""

    is_cluster = False

    def __init__(self, client: redis.asyncio.Redis) -> None:
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        self._predecessors = Predecessors()
        options = _options(client, retry, self._predecessors.greet_async)
        pool = redis.asyncio.ConnectionPool(**options)
        self._client: Any = redis.asyncio.Redis(connection_pool=pool)
        self._client.response_callbacks = {}
        self._submitted: list[tuple[Sequence[Any], asyncio.Future[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def accept_servers(self, accept: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Run `accept` with the run id of each server before the first command to it."""
        self._accept = self._predecessors.accept_server = accept

    async def run(self, call: Call[R]) -> R:
        """Return the call's reply."""
        return reply_of(call, await self._evaluate(call))

    async def run_many(self, calls: Iterable[Call[R]]) -> list[R]:
        """Return the replies in the order of the calls; raise the first failure after the last."""
        todo = list(calls)
        replies = await self._pipeline([evalsha_of(call) for call in todo])
        # NOSCRIPT says that nothing was done.
        raws = [
            await self._evaluate(call) if isinstance(reply, NoScriptError) else reply
            for call, reply in zip(todo, replies, strict=True)
        ]
        return [reply_of(call, raw) for call, raw in zip(todo, raws, strict=True)]

    async def command(self, *command: Arg) -> Any:
        """Return the raw reply to a plain command."""
        return await self.submit_command(*command)

    def submit_command(self, *command: Arg) -> "asyncio.Future[Any]":
        """Send a command in this event-loop iteration's pipeline; the future gets the raw reply."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._submitted.append((tuple(map(plain_arg, command)), future))
        if len(self._submitted) == 1:
            loop.call_soon(self._start)
        return future

    def pubsub(self) -> Any:
        """Return redis-py's subscriptions, on a further connection."""
        return self._client.pubsub()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.connection_pool.disconnect()

    def _start(self) -> None:
        task = asyncio.get_running_loop().create_task(self._send_submitted())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_submitted(self) -> None:
        sent, self._submitted = self._submitted, []
        try:
            replies = await self._pipeline([command for command, _ in sent])
        except StoreError as error:
            for _, future in sent:
                fail(future, error)
            return
        for (command, future), reply in zip(sent, replies, strict=True):
            if isinstance(reply, Exception):
                fail(future, error_of(command, reply))
            else:
                resolve(future, reply)

    async def _evaluate(self, call: Call[Any]) -> Any:
        """Return the raw reply or Redis's error, loading the script if Redis does not have it."""
        (reply,) = await self._pipeline([evalsha_of(call)])
        if isinstance(reply, NoScriptError):
            (reply,) = await self._pipeline([eval_of(call)])
        return reply

    async def _pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
        except UNAVAILABLE as error:
            if commands[0][0] in ("EVALSHA", "EVAL"):
                await self._predecessors.wait_async(self._client)
            raise StoreUnavailable(f"no answer from Redis: {error}") from error
        return replies


class PubSubListener:
    """The news of channels, by the subscriptions of redis-py: hints, as those of a Notifier."""

    def __init__(self, open_pubsub: Callable[[], Any]) -> None:
        self._open = open_pubsub
        self._pubsub: Any = None
        self._channels: set[str] = set()

    async def listen(self, channels: set[str]) -> None:
        """Subscribe to these channels alone. Raises StoreUnavailable."""
        try:
            if self._pubsub is None:
                self._pubsub, self._channels = self._open(), set()
            if gone := self._channels - channels:
                await result_of(self._pubsub.unsubscribe(*gone))
            if new := channels - self._channels:
                await result_of(self._pubsub.subscribe(*new))
            self._channels = channels
        except UNAVAILABLE as error:
            await self.close()
            raise StoreUnavailable(f"no answer from Redis: {error}") from error

    async def wait(self, timeout_s: float) -> set[str]:
        """Return the channels with news, after that time at the latest.

        A channel has news once Redis has confirmed it, and all have if the connection breaks.
        """
        changed: set[str] = set()
        try:
            while message := await result_of(self._pubsub.get_message(timeout=timeout_s)):
                changed.add(message["channel"].decode())
                timeout_s = 0.0
        except UNAVAILABLE:
            await self.close()
            return self._channels
        return changed

    async def close(self) -> None:
        """Close the connection."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await result_of(getattr(pubsub, "aclose", pubsub.close)())


async def result_of(value: Any) -> Any:
    """Return what redis-py returned, or what redis.asyncio will return."""
    return await value if inspect.isawaitable(value) else value


def _options(client: Any, retry: object, greet: object) -> dict[str, Any]:
    """Return the client's pool options, for undecoded RESP2 replies and without retries."""
    pool = getattr(client, "connection_pool", None)
    if pool is None or hasattr(pool, "service_name"):
        raise TypeError(
            f"{type(client).__name__} is not supported: pass a Redis client for one server, or "
            "use connect(URL) for a Redis Cluster or Sentinels."
        )
    options = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith(_ADDED_BY_POOL)
    }
    return {
        "redis_connect_func": greet,
        **options,
        "connection_class": pool.connection_class,
        "decode_responses": False,
        "protocol": 2,
        "retry": retry,
        "retry_on_error": [],
    }
