"""Lifecycle of a broker process: start, serve, drain, stop."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from korvet import apis
from korvet.base import logfmt
from korvet.base.metrics import Metrics
from korvet.broker.background.tasks import BackgroundTasks
from korvet.broker.client_listeners import bind, refresh_tls
from korvet.broker.interceptors import SETTLE_S, Handover, ReadOnly, has_others, serves_members
from korvet.broker.network import listeners
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.ops import http
from korvet.broker.ops.http import HostNames
from korvet.broker.ops.metric_pages import KafkaPage
from korvet.broker.ops.readiness import Readiness
from korvet.broker.ops.service_metrics import call_counter, show_services
from korvet.broker.telemetry import traced
from korvet.cluster.registration import TTL_MS, BrokerRegistration, Endpoint, LiveBroker
from korvet.config.broker_config import PRESETS, Config
from korvet.config.listeners import EVERYWHERE, PLAINTEXT, Address, Listener
from korvet.config.setting import StartError
from korvet.context import Context, Interceptor, Services
from korvet.scripts.keys import Keys
from korvet.security.session import Session
from korvet.security.tls import ListenerTls
from korvet.store.async_store import AcceptServer, AsyncStore
from korvet.store.errors import StoreError, advice_for, is_temporary
from korvet.store.notifications import Notifier
from korvet.store.sync_store import SyncStore
from korvet.topics.table import TopicTable
from korvet.wire.schema import Message

if TYPE_CHECKING:
    from korvet.broker.tracing import Tracing

RELEASE_S = 2.0
"""How long a broker that stops waits until the records of share sessions are released."""

RETRY_S = 2.0
"""Seconds between two tries to start while Redis is away."""

log = logfmt.get("broker.server")


class ExtraListener(Protocol):
    """A listener of another protocol, which uses a broker's services and limits."""

    async def bind(self, config: Config, services: Services, connections: OpenConnections) -> None:
        """Bind the port, before the broker registers. Raises StartError."""

    async def register(self, where: Address | None) -> None:
        """Register the address of the broker's PLAINTEXT listener elsewhere. Raises StartError."""

    async def serve(self) -> None:
        """Accept connections."""

    async def run(self) -> None:
        """Do background work until cancelled."""

    def close(self) -> None:
        """Accept no further connections."""

    async def leave(self) -> None:
        """Remove the registrations."""


async def serve(
    config: Config,
    *,
    on_listening: Callable[[Sequence[Listener]], None],
    stop: anyio.Event,
    interceptor: Interceptor | None = None,
    extra: ExtraListener | None = None,
    console: http.Console | None = None,
    on_console: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until `stop`, then drain for at most DRAIN_S. Raises StartError.

    `console` serves the other pages of the ops port; `on_console` gets its URL. While Redis is away
    at the start, /readyz says so, and the broker tries again.
    """
    page = http.StartingPage()
    ops_tls = http.ops_tls(config)
    failure: StartError | None = None
    async with anyio.create_task_group() as tasks:
        try:
            announce_console = await _serve_ops(tasks, page, config, console, on_console, ops_tls)
            tasks.start_soon(refresh_tls, [ops_tls] if ops_tls is not None else [])
            while not stop.is_set():
                try:
                    if not config.node_id_is_chosen:
                        config = await anyio.to_thread.run_sync(claim_node_id, config)
                    await _serve(
                        config, on_listening, stop, interceptor, extra, page, announce_console
                    )
                except StoreError as error:
                    reason = f"--redis: {advice_for(error)}"
                    if not is_temporary(error):
                        raise StartError(reason) from None
                    if page.wait(reason):
                        log.warning("waiting for Redis", reason=reason)
                    with anyio.move_on_after(RETRY_S):
                        await stop.wait()
                else:
                    break
        except StartError as error:
            failure = error
        if console is not None:
            console.close()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _serve(
    config: Config,
    on_listening: Callable[[Sequence[Listener]], None],
    stop: anyio.Event,
    interceptor: Interceptor | None,
    extra: ExtraListener | None,
    starting: http.StartingPage,
    announce_console: Callable[[], None],
) -> None:
    """Serve until `stop`. Raises StoreError before clients can connect, or StartError."""
    async with (
        traced(os.environ, config.node_id) as tracing,
        connected(config, tracing=tracing) as services,
        AsyncExitStack() as servers,
    ):
        services.interceptor = ReadOnly() if config.read_only else interceptor
        connections = OpenConnections(lambda: services.settings)
        stalls = connections.stalls
        stalls.metrics = services.metrics
        stalls.on_stall.append(services.store.reconnect)
        services.store.before_write = stalls.check_now
        services.registration.on_lapse = stalls.ended
        services.metrics.connections.ask = lambda: {(): len(connections)}
        await services.mechanisms.start(config.listeners, warn=config.worker == 0)
        bound = [await bind(each, services, connections, servers) for each in config.listeners]
        if extra is not None:
            await extra.bind(config, services, connections)
        await _join(services, [endpoint(each.listener) for each in bound])
        if extra is not None:
            await extra.register(_plain_address(services.registration.me, config))
        async with anyio.create_task_group() as tasks:
            background = BackgroundTasks(services)
            tasks.start_soon(background.run)
            tasks.start_soon(stalls.run)
            max_idle_s = services.settings.integer("connections.max.idle.ms") / 1000
            tasks.start_soon(connections.close_idle, max_idle_s)
            tasks.start_soon(refresh_tls, [each.tls for each in bound if each.tls])
            kafka = KafkaPage(services.lag_survey, services.registration)
            readiness = Readiness(services.store, services.topics)
            starting.page = http.OpsPage(
                services.metrics, partial(_ready, readiness, stop), kafka, lambda: readiness.notes
            )
            if config.worker == 0:
                tasks.start_soon(readiness.log_losses)
            for each in bound:
                await listeners.open_to_all("--listen", each.listener.address, each.server)
            if extra is not None:
                await extra.serve()
            on_listening([each.listener for each in bound])
            if extra is not None:
                tasks.start_soon(extra.run)
                await anyio.lowlevel.checkpoint()  # it announces its listener first
            announce_console()
            await stop.wait()
            # Unregister first: a client that still gets this broker's address would find the port
            # closed.
            await _leave(services.registration)
            await move_clients(services, connections)
            for each in bound:
                each.server.close()
            if extra is not None:
                extra.close()
            await connections.drain()
            tasks.cancel_scope.cancel()
        with suppress(StoreError), anyio.move_on_after(1.0):
            await services.epochs.leave()
        if extra is not None:
            await extra.leave()


@asynccontextmanager
async def connected(
    config: Config,
    client: str = "korvet",
    tracing: "Tracing | None" = None,
    accept_server: AcceptServer | None = None,
) -> AsyncIterator[Services]:
    """Connect to Redis and yield the services of the broker.

    `client` begins the names of the connections in Redis. `accept_server` is what a process that
    does not serve does before it uses a server.
    """
    store_type = AsyncStore if tracing is None else tracing.store_type()
    notifier_type = Notifier if tracing is None else tracing.notifier_type()
    assert config.redis is not None, "the command line starts a Redis when none is named"
    keys = Keys(config.namespace)
    metrics = Metrics()
    store = await store_type.connect(
        config.redis,
        client_name=f"{client}-{config.node_id}",
        timeout_s=config.settings.integer("redis.timeout.ms") / 1000,
        accept_server=accept_server,
    )
    async with store:
        store.on_call = call_counter(metrics)
        notifier = await notifier_type.connect(config.redis)
        async with notifier:
            topics = TopicTable(store, keys, config.topics)
            await notifier.watch(keys.topics_channel(), lambda _: topics.invalidate())
            endpoints = tuple(map(endpoint, config.listeners))
            rack = config.settings.text_of("broker.rack") or None
            me = LiveBroker(config.node_id, endpoints, rack)
            registration = BrokerRegistration(store, keys, me, config.settings.text("cluster.id"))
            services = Services(
                config, store, keys, topics, notifier, registration, apis.TABLE, metrics
            )
            services.tracing = tracing
            show_services(
                metrics,
                store,
                topics,
                services.log_reader.cache,
                services.response_memory,
                services.fetch_sessions,
                services.memory,
                lambda: services.settings,
            )
            try:
                yield services
            finally:
                with anyio.move_on_after(RELEASE_S):
                    await services.share.finish()
                await services.replica_wait.close()


async def answer(
    request: Message, services: Services, client_id: str, below: int | None = None
) -> Message | None:
    """Return the response to a request of this process, which has all rights.

    It has the highest version, or the highest one below `below`.
    """
    api = apis.BY_KEY[request.__message__.key]
    version = api.versions[1] if below is None else below - 1
    context = Context(services, api.key, version, client_id, Session("127.0.0.1"))
    return await api.handler(request, context)


async def _serve_ops(
    tasks: TaskGroup,
    page: http.Page,
    config: Config,
    console: http.Console | None,
    on_console: Callable[[str], None],
    tls: ListenerTls | None,
) -> Callable[[], None]:
    """Serve health, metrics and the console; return a function that announces the console."""
    if config.ops_socket is not None:
        await tasks.start(http.serve, page, Path(config.ops_socket))
    elif config.ops is not None:
        sockets = listeners.bind_ops(config.ops, or_free=not config.ops_is_chosen)
        await tasks.start(http.serve, page, sockets, console, tls, HostNames(config))
        if console is not None:
            return partial(on_console, listeners.url_of(sockets, tls=tls is not None))
    return _announce_nothing


def _announce_nothing() -> None:
    """Announce nothing, without a console."""


def endpoint(listener: Listener) -> Endpoint:
    """Return the address that clients of the listener connect to."""
    host, port = listener.address.host, listener.address.port
    if listener.advertised is not None:
        host, port = listener.advertised.host, listener.advertised.port
    return Endpoint(listener.name, socket.gethostname() if host in EVERYWHERE else host, port)


def claim_node_id(config: Config) -> Config:
    """Return the configuration with a node id that no live broker has. Raises StoreError."""
    assert config.redis is not None
    endpoints = [endpoint(listener) for listener in config.listeners]
    known = msgspec.json.encode(endpoints) if all(each.port for each in endpoints) else b""
    call = Keys(config.namespace).broker_claim_id(endpoints=known, ttl_ms=TTL_MS)
    with SyncStore.connect(config.redis) as store:
        reply = store.run(call)
    return msgspec.structs.replace(config, node_id=reply.node_id, node_id_is_chosen=True)


def _plain_address(me: LiveBroker, config: Config) -> Address | None:
    """Return the address for clients that speak neither TLS nor SASL, if there is one."""
    for listener, where in zip(config.listeners, me.endpoints, strict=True):
        if listener.protocol == PLAINTEXT:
            return Address(where.host, where.port)
    return None


async def _join(services: Services, endpoints: Sequence[Endpoint]) -> None:
    """Register this broker, so that brokers and clients can find it."""
    await services.epochs.start(is_clean=services.config.redis_lost_nothing)
    registration = services.registration
    registration.me = msgspec.structs.replace(registration.me, endpoints=tuple(endpoints))
    await registration.join()
    given = services.config.settings.describe("cluster.id")
    if not given.is_default and given.value != registration.cluster_id:
        log.warning(
            "cluster.id ignored: the cluster has an id",
            id=registration.cluster_id,
            given=given.value,
        )
    await services.tiered.publish()
    preset = services.config.preset
    if preset and not await services.config_admin.use_preset(PRESETS[preset]):
        log.warning(
            "preset ignored: Redis has settings for all brokers",
            preset=preset,
            advice="change them with `korvet brokers alter --config`",
        )
    await services.dynamic_config.refresh()
    await services.authorizer.refresh()
    await services.topics.refresh()


async def _ready(readiness: Readiness, stop: anyio.Event) -> str | None:
    """Return None if the broker should get clients, otherwise the reason."""
    return "the broker is stopping" if stop.is_set() else await readiness.check()


async def _leave(registration: BrokerRegistration) -> None:
    try:
        with anyio.move_on_after(1.0, shield=True):
            await registration.leave()
    except StoreError:
        log.info("unregistration failed: Redis is unavailable")


async def move_clients(services: Services, connections: OpenConnections) -> None:
    """Move the clients to the other brokers, for at most HANDOVER_S after SETTLE_S."""
    if not has_others(services.registration) or not connections:
        return
    await anyio.sleep(SETTLE_S)
    handover = Handover(services.interceptor)
    services.interceptor = handover
    services.pause_ms = handover.pause_ms
    await handover.run(connections, has_members=serves_members(services.metrics))
