"""The port of Kafka 0.7 clients: opened, and at the end closed, beside the main one."""

import asyncio
import socket

from korvet.broker.connection import Connection
from korvet.broker.listeners import bind, open_to_all
from korvet.config.broker_config import Address, Config
from korvet.config.setting import StartError
from korvet.context import Services
from korvet.legacy.connection import LegacyConnection, Orphans
from korvet.legacy.zookeeper import Registry, Registry08
from korvet.log.reader import LogReader

OPTION = "--legacy-listen"


class LegacyPort:
    """The bound port, and this broker's place in ZooKeeper when there is one."""

    def __init__(self, server: asyncio.base_events.Server, where: Address) -> None:
        self.where = where
        self.registry: Registry | None = None
        self._server = server

    async def serve(self) -> Address:
        """Clients may connect; where to."""
        await open_to_all(OPTION, self.where, self._server)
        return self.where

    async def run(self) -> None:
        """ZooKeeper is kept as the topics are, until cancelled."""
        if self.registry is not None:
            await self.registry.run()

    def close(self) -> None:
        """Nobody new can connect."""
        self._server.close()

    async def leave(self) -> None:
        """ZooKeeper no longer has this broker."""
        if self.registry is not None:
            await self.registry.close()


async def open_port(
    config: Config, services: Services, connections: set[Connection]
) -> LegacyPort | None:
    """The port, not serving yet; None without `--legacy-listen`. StartError when it cannot be."""
    where = config.legacy_listen
    if where is None:
        if config.zookeeper is not None:
            raise StartError("--zookeeper registers the port of --legacy-listen: give both.")
        return None
    server = await _listen(where, config, services, connections)
    port = LegacyPort(server, Address(where.host, server.sockets[0].getsockname()[1]))
    if config.zookeeper is not None and config.worker == 0:
        port.registry = Registry(config.zookeeper, services, _advertised(config, port.where))
        await port.registry.open()
    return port


async def open_registry(config: Config, services: Services, where: Address) -> Registry | None:
    """The registry of Kafka 0.8 knows the main port, if it is to; StartError as above."""
    hosts = config.settings.text_of("zookeeper.connect")
    if not hosts or config.worker != 0:
        return None
    registry = Registry08(hosts, services, where)
    await registry.open()
    return registry


def _advertised(config: Config, where: Address) -> Address:
    """What others are told: the host of `--advertise`, or of the port itself."""
    if config.advertise is not None:
        return Address(config.advertise.host, where.port)
    if where.host in ("0.0.0.0", "::"):
        return Address(socket.gethostname(), where.port)
    return where


async def _listen(
    where: Address, config: Config, services: Services, connections: set[Connection]
) -> asyncio.base_events.Server:
    max_frame = config.settings.integer("socket.request.max.bytes")
    reader = LogReader(services.store, services.keys)
    orphans = Orphans()

    def accept() -> asyncio.BaseProtocol:
        most = services.settings.integer("max.connections")
        per_host = services.settings.integer("max.connections.per.ip")
        return LegacyConnection(services, connections, max_frame, most, per_host, reader, orphans)

    return await bind(OPTION, where, config, accept)
