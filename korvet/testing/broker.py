"""A Kafka broker in a thread of the test process, with its own Redis.

Rules
- One thread owns both: on Linux the kernel stops an embedded Redis when the thread that started
  it ends.
- `stop` and `start` keep the port, the data and the Redis server; `close` removes all three.
"""

import logging
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from difflib import get_close_matches
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self

import anyio
import anyio.from_thread
import anyio.to_thread

from korvet.apis import TABLE, Api
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.error_responses import refused
from korvet.config.broker_config import Config, load
from korvet.config.listeners import PLAINTEXT, Address, Listener
from korvet.embedded_redis.server import RedisServer
from korvet.library.korvet import Korvet
from korvet.scripts.keys import Keys
from korvet.security.credentials import DEFAULT_ITERATIONS, Mechanism, encode, from_password
from korvet.store.sync_store import SyncStore
from korvet.wire.schema import Message


class Faults:
    """The errors still to be returned, by API. Thread-safe: a test and the broker share it."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[ErrorCode]] = {}

    def add(self, api: str, error: ErrorCode | str, times: int = 1) -> None:
        """Return `error` to the next `times` requests of an API, such as `Produce`."""
        names = [row.name for row in TABLE]
        if api not in names:
            raise _unknown("API", api, names)
        codes = [code.name for code in ErrorCode]
        if isinstance(error, str) and error not in codes:
            raise _unknown("error code", error, codes)
        code = ErrorCode[error] if isinstance(error, str) else error
        self._waiting.setdefault(api, deque()).extend([code] * times)

    def clear(self) -> None:
        """Forget all errors that no request has met."""
        self._waiting.clear()

    def __bool__(self) -> bool:
        """Return whether any error is still to be returned."""
        return any(self._waiting.values())

    def response(self, api: Api, request: Message) -> Awaitable[Message | None] | None:
        """Return the API's response with the next error, or None if there is none for it."""
        waiting = self._waiting.get(api.name)
        return _respond(api, request, waiting.popleft()) if waiting else None


async def _respond(api: Api, request: Message, code: ErrorCode) -> Message:
    if api.name == "Produce" and getattr(request, "acks", None) == 0:
        # With acks=0 an error closes the connection, as in Kafka.
        raise CloseWithoutResponse(f"a test asked for {code.name}")
    return refused(api, request, code)


def _unknown(kind: str, name: str, known: list[str]) -> ValueError:
    near = get_close_matches(name, known, 1)
    return ValueError(f"There is no {kind} {name!r}{f'; did you mean {near[0]}?' if near else '.'}")


logger = logging.getLogger("korvet.testing")


class Broker:
    """A broker for tests, on free ports and in a temporary directory.

    `topics` are created at the first start, by name with their numbers of partitions; `settings`
    are the broker's, by Kafka's names. With `redis` it uses the server at that URL. `listeners`
    are names of listeners, such as SSL; the clients of `bootstrap_servers` use the first. With
    `users`, passwords by name, it is SASL_PLAINTEXT, with the mechanisms SCRAM and PLAIN.

    >>> with Broker(topics={"orders": 3}) as broker:
    ...     producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    ...     _ = producer.send("orders", b"hello", partition=0).get(10)
    ...     producer.close()
    ...     [record.value for record in broker.log.records("orders", 0)]
    [b'hello']
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        redis: str | None = None,
        node_id: int = 0,
        listeners: Sequence[str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._topics = dict(topics or {})
        self._users = dict(users or {})
        if listeners is None:
            listeners = (PLAINTEXT,) if users is None else ("SASL_PLAINTEXT",)
        self._sets = [
            f"{name}={value}"
            for name, value in {**_QUICK, **_sasl(users), **(settings or {})}.items()
        ]
        self._settings = dict(settings or {})
        self._listeners = dict.fromkeys(listeners, "127.0.0.1:0")
        self._options = {"redis": redis, "node-id": str(node_id), "ops": "off"}
        self._faults = Faults()
        self._owner: _Owner | None = None
        self._log: Korvet | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for a client's `bootstrap.servers`; the same after a restart."""
        return self.address(next(iter(self._listeners)))

    def address(self, listener: str) -> str:
        """Return HOST:PORT of the listener; the same after a restart."""
        if self._listeners[listener].endswith(":0"):
            raise RuntimeError("The broker has not been started: use `with Broker() as broker`.")
        return self._listeners[listener]

    @property
    def redis_url(self) -> str:
        """The URL of the broker's Redis."""
        return self._running().url

    @property
    def log(self) -> Korvet:
        """The broker's log, for what a test prepares or checks without a Kafka client."""
        if self._log is None:
            self._log = Korvet.connect(self.redis_url, settings=self._settings)
        return self._log

    def start(self) -> Self:
        """Serve clients; after `stop` at the same address, with the same data."""
        if self._owner is None:
            self._owner = _Owner(self._options["redis"])
        try:
            listen = ",".join(f"{name}://{where}" for name, where in self._listeners.items())
            options = {**self._options, "listen": listen, "redis": self._owner.url}
            self._add_users()
            config = load(options, sets=self._sets, environ={})
            bound = self._owner.serve(config, self._faults)
            self._listeners = dict(zip(self._listeners, map(str, bound), strict=True))
        except BaseException:
            self.close()
            raise
        topics, self._topics = self._topics, {}
        for name, partitions in topics.items():
            self.log.create_topic(name, partitions)
        return self

    def _add_users(self) -> None:
        users, self._users = self._users, {}
        with SyncStore.connect(self._running().url) as store:
            for name, password in users.items():
                rows = [
                    (each.title, encode(credential), credential.shape)
                    for each in Mechanism
                    for credential in [from_password(each, password, DEFAULT_ITERATIONS)]
                ]
                store.run(Keys().user_alter(rows, user=name, condition=""))

    def stop(self) -> None:
        """Stop serving, as on SIGTERM: requests in progress are answered. Keeps the data."""
        self._running().stop_serving()

    def restart(self) -> None:
        """Stop and start again: clients see their connections close."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop serving and remove the Redis server with its data. May be called twice."""
        if self._log is not None:
            self._log.close()
            self._log = None
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def fail_next(self, api: str, error: ErrorCode | str, times: int = 1) -> None:
        """Return `error` to the next `times` requests of an API, in that API's own response.

        >>> with Broker(topics={"orders": 1}) as broker:
        ...     broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        ...     producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        ...     _ = producer.send("orders", b"sent a third time").get(10)
        ...     producer.close()
        """
        self._faults.add(api, error, times)

    def clear_faults(self) -> None:
        """Drop the errors of `fail_next` that no request has met."""
        self._faults.clear()

    def _running(self) -> "_Owner":
        if self._owner is None:
            raise RuntimeError("The broker has not been started: use `with Broker() as broker`.")
        return self._owner

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await anyio.to_thread.run_sync(self.start)

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)


def _sasl(users: Mapping[str, str] | None) -> dict[str, str]:
    mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
    return {} if users is None else {"sasl.enabled.mechanisms": mechanisms}


_QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "fetch.chunk.cache.size": "0",
    "connections.max.stall.ms": "3600000",
}
"""Settings of every test broker: a group's first rebalance does not wait for more members, the
disk has the data of Redis only, and a debugger may stop the process."""


class _Owner:
    """The thread that owns the Redis server and runs the broker's event loops."""

    def __init__(self, redis: str | None) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ready: Future[str] = Future()
        self._stop: Callable[[], object] | None = None
        self._stopped: Future[None] = Future()
        self._thread = Thread(target=self._live, args=(redis,), name="korvet-broker", daemon=True)
        self._thread.start()
        self.url = self._ready.result()

    def serve(self, config: Config, faults: Faults) -> list[Address]:
        """Start serving and return the addresses of the listeners."""
        if self._stop is not None:
            raise RuntimeError("The broker is serving already.")
        listening: Future[list[Address]] = Future()
        self._stopped = Future()
        self._work.put(lambda: self._run(config, faults, listening))
        return listening.result()

    def stop_serving(self) -> None:
        """Stop serving; raise the error that ended the broker before, if one did."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
            self._stopped.result()

    def close(self) -> None:
        """Stop serving, stop the Redis server and end the thread."""
        try:
            self.stop_serving()
        finally:
            self._work.put(None)
            self._thread.join()

    def _live(self, redis: str | None) -> None:
        with ExitStack() as stack:
            try:
                if redis is None:
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="korvet-"))
                    redis = stack.enter_context(RedisServer.launch(folder)).url
            except BaseException as error:
                self._ready.set_exception(error)
                return
            self._ready.set_result(redis)
            while (work := self._work.get()) is not None:
                work()

    def _run(self, config: Config, faults: Faults, listening: "Future[list[Address]]") -> None:
        try:
            anyio.run(self._main, config, faults, listening)
        except BaseException as error:
            if listening.done():
                logger.error("test broker failed", exc_info=error)
                self._stopped.set_exception(error)
            else:
                listening.set_exception(error)
        else:
            self._stopped.set_result(None)

    async def _main(
        self, config: Config, faults: Faults, listening: "Future[list[Address]]"
    ) -> None:
        # Here, not at the top: `import korvet.testing` stays quick.
        from korvet.broker.server import serve

        stop = anyio.Event()
        token: Any = anyio.lowlevel.current_token()

        def on_listening(bound: Sequence[Listener]) -> None:
            self._stop = lambda: _call_in_loop(token, stop.set, self._stopped)
            listening.set_result([listener.address for listener in bound])

        await serve(config, on_listening=on_listening, stop=stop, interceptor=faults)


def _call_in_loop(token: Any, function: Callable[[], object], stopped: "Future[None]") -> None:
    """Call a function in the broker's event loop, unless that has ended."""
    try:
        anyio.from_thread.run_sync(function, token=token)
    except anyio.RunFinishedError:
        stopped.exception()
