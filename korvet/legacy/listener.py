"""The port of Kafka 0.7 clients: opened, and at the end closed, beside the main one."""

import asyncio

from korvet.broker.connection import Connection
from korvet.config import Config
from korvet.context import Node
from korvet.legacy.connection import LegacyConnection
from korvet.reading import PartitionReader
from korvet.settings.setting import StartError

BACKLOG = 1024


async def listen(
    config: Config, node: Node, connections: set[Connection]
) -> asyncio.base_events.Server | None:
    """The bound socket, not serving yet; None without `--legacy-listen`."""
    where = config.legacy_listen
    if where is None:
        return None
    settings = config.settings
    reader = PartitionReader(node.store, node.keys)

    def accept() -> asyncio.BaseProtocol:
        return LegacyConnection(
            node,
            connections,
            settings.integer("socket.request.max.bytes"),
            settings.integer("max.connections"),
            settings.integer("max.connections.per.ip"),
            reader,
        )

    try:
        return await asyncio.get_running_loop().create_server(
            accept,
            where.host,
            where.port,
            backlog=BACKLOG,
            reuse_port=config.workers > 1 or None,
            start_serving=False,
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError(
            f"--legacy-listen {where} cannot be served: {why}; choose another port, "
            "or stop whoever has it."
        ) from None
