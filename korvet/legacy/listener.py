"""The listener for Kafka 0.7 clients, and the registration of old clients' brokers in ZooKeeper."""

import asyncio
import json
import socket
from collections.abc import Callable
from functools import partial

from korvet.broker.background.runner import Leases
from korvet.broker.network.listeners import bind, open_to_all
from korvet.broker.network.open_connections import OpenConnections
from korvet.config.broker_config import Address, Config
from korvet.config.setting import StartError
from korvet.context import Services
from korvet.legacy.connection import LegacyConnection, PendingBytes
from korvet.legacy.fetch import LegacyReader
from korvet.legacy.produce import SetAppender
from korvet.legacy.topics import LegacyTopics
from korvet.legacy.zookeeper import Registry
from korvet.topics.table import Topic


class Registry08(Registry):
    """The registration for 0.8 consumers: JSON, the main port, every topic."""

    option = "zookeeper.connect"
    lease = "registry-08"

    def _own(self) -> str:
        value = {
            "jmx_port": -1,
            "timestamp": self._creator.rpartition("-")[2],
            "host": self.where.host,
            "version": 1,
            "port": self.where.port,
        }
        return json.dumps(value)

    def _is_own(self, text: str) -> bool:
        try:
            value = json.loads(text)
            return (value["host"], value["port"]) == (self.where.host, self.where.port)
        except (ValueError, LookupError, TypeError):
            return False

    def _listing(self, topic: str) -> str:
        return f"{self._topics_path}/{topic}"

    def _entry(self, topic: Topic) -> str | None:
        partitions = {str(number): [int(self._id)] for number in range(topic.partitions)}
        return json.dumps({"version": 1, "partitions": partitions})


OPTION = "--legacy-listen"


class LegacyListener:
    """Serves Kafka 0.7 clients for a broker; implements ExtraListener of korvet/broker/server.py.

    `on_listening` is called with the address once clients may connect.
    """

    def __init__(self, on_listening: Callable[[str, int], None]) -> None:
        self._on_listening = on_listening
        self._config: Config
        self._services: Services
        self._server: asyncio.base_events.Server | None = None
        self._where = Address("", 0)
        self._registries: list[Registry] = []

    async def bind(self, config: Config, services: Services, connections: OpenConnections) -> None:
        """Bind the port of `--legacy-listen`, if given. Raises StartError."""
        self._config, self._services = config, services
        where = config.legacy_listen
        if where is None:
            if config.zookeeper is not None:
                raise StartError("--zookeeper registers the port of --legacy-listen: give both.")
            return
        self._server = await _bind(where, config, services, connections)
        self._where = Address(where.host, self._server.sockets[0].getsockname()[1])
        if config.zookeeper is not None and config.worker == 0:
            address = _advertised(config, self._where)
            await self._register(Registry, config.zookeeper, address)

    async def register(self, where: Address | None) -> None:
        """Register the broker's PLAINTEXT listener for Kafka 0.8 clients. Raises StartError."""
        hosts = self._config.settings.text_of("zookeeper.connect")
        if hosts and self._config.worker == 0:
            if where is None:
                raise StartError(
                    "zookeeper.connect registers a PLAINTEXT listener: add one with --listen."
                )
            await self._register(Registry08, hosts, where)

    async def _register(self, kind: type[Registry], hosts: str, where: Address) -> None:
        services, node_id = self._services, self._config.node_id
        leases = Leases(services.store, services.keys, node_id)
        registry = kind(
            hosts, node_id, where, services.keys, services.topics, services.notifier, leases
        )
        await registry.open()
        self._registries.append(registry)

    async def serve(self) -> None:
        """Accept connections. Raises StartError."""
        if self._server is not None:
            await open_to_all(OPTION, self._where, self._server)

    async def run(self) -> None:
        """Announce the listener, and keep the registrations current until cancelled."""
        if self._server is not None:
            self._on_listening(self._where.host, self._where.port)
        await asyncio.gather(*(registry.run() for registry in self._registries))

    def close(self) -> None:
        """Accept no further connections."""
        if self._server is not None:
            self._server.close()

    async def leave(self) -> None:
        """Remove the registrations."""
        for registry in self._registries:
            await registry.close()


def _advertised(config: Config, where: Address) -> Address:
    """Return the address for clients: the host of `--advertise`, or of the port itself."""
    advertised = config.listeners[0].advertised
    if advertised is not None:
        return Address(advertised.host, where.port)
    if where.host in ("0.0.0.0", "::"):
        return Address(socket.gethostname(), where.port)
    return where


async def _bind(
    where: Address, config: Config, services: Services, connections: OpenConnections
) -> asyncio.base_events.Server:
    max_frame = config.settings.integer("socket.request.max.bytes")
    topics = LegacyTopics(services.node, services.dynamic_config)
    reader = LegacyReader(services.store, topics, services.response_memory)
    appender = SetAppender(topics)
    accept = partial(
        LegacyConnection, services, connections, max_frame, reader, appender, PendingBytes()
    )
    return await bind(OPTION, where, config, accept)
