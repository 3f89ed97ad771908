"""The client of SyncStore on a Redis Cluster: one redis-py client per master.

The rules are those of `cluster_router`: the first key's slot selects the node, MOVED and ASK are
followed, nothing is sent again when a connection breaks.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import AskError, MovedError, RedisClusterException

from korvet.scripts.call import Arg
from korvet.store.address import Address
from korvet.store.predecessors import Predecessors
from korvet.store.slots import SLOTS, parse_slots, slot_of_command

Open = Callable[[Address], Any]

_MAX_REDIRECTIONS = 5


class SyncCluster:
    """Executes commands on the node of their slot; replies are as Redis sent them."""

    def __init__(self, seeds: Sequence[Address], connect: Open) -> None:
        self._seeds = seeds
        self._connect = connect
        self.accept_server: Callable[[str], Any] | None = None
        self._clients: dict[tuple[str, int], Any] = {}
        self._slots: list[tuple[str, int] | None] = [None] * SLOTS

    def execute_command(self, *command: Arg) -> Any:
        """Return the raw reply of the right node."""
        slot = slot_of_command(command)
        where = self._server_of(slot)
        asking = False
        for _ in range(_MAX_REDIRECTIONS):
            client = self._client(where)
            try:
                if not asking:
                    return client.execute_command(*command)
                pipeline = client.pipeline(transaction=False)
                pipeline.execute_command("ASKING")
                pipeline.execute_command(*command)
                return pipeline.execute()[1]
            except MovedError as error:
                where, asking = (error.host, error.port), False
                self._slots[error.slot_id] = where
            except AskError as error:
                where, asking = (error.host, error.port), True
            except (redis.ConnectionError, redis.TimeoutError, OSError):
                # The outcome is unknown; the next command reads the map again.
                self.forget()
                raise
        raise RedisClusterException(f"too many redirections for slot {slot}")

    def client_of(self, command: Sequence[Arg]) -> Any:
        """Return the client of the node that has the command's slot, by the current map."""
        return self._client(self._server_of(slot_of_command(tuple(command))))

    def masters(self) -> list[tuple[str, Any]]:
        """Return the address and the client of every node that has slots, by a new map."""
        self._read_map()
        servers = sorted({server for server in self._slots if server is not None})
        return [(f"{host}:{port}", self._client((host, port))) for host, port in servers]

    @property
    def clients(self) -> list[Any]:
        """Return the clients of all nodes that were used."""
        return list(self._clients.values())

    def uses(self, client: Any) -> bool:
        """Return whether the node of this client has slots, by a new map if one can be read."""
        with suppress(redis.RedisError, OSError):
            self._read_map()
        places = set(self._slots)
        return any(self._clients[server] is client for server in places if server in self._clients)

    def forget(self) -> None:
        """Read the map again before the next command."""
        self._slots = [None] * SLOTS

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    def _server_of(self, slot: int | None) -> tuple[str, int]:
        server = self._slots[slot or 0]
        if server is None:
            self._read_map()
            server = self._slots[slot or 0]
        if server is None:
            raise RedisClusterException(f"no node of the cluster has slot {slot}")
        return server

    def _client(self, where: tuple[str, int]) -> Any:
        client = self._clients.get(where)
        if client is None:
            client = self._clients[where] = self._connect(self._seeds[0].at(*where))
            client.response_callbacks = {}
            if (predecessors := Predecessors.of(client)) is not None:
                predecessors.accept_server = self.accept_server
        return client

    def _read_map(self) -> None:
        places = [*self._clients, *((seed.host, seed.port) for seed in self._seeds)]
        failure: Exception = RedisClusterException("the cluster URL names no node")
        for where in places:
            try:
                reply = self._client(where).execute_command("CLUSTER", "SLOTS")
            except (redis.RedisError, OSError) as error:
                failure = error
                continue
            for first, last, host, port in parse_slots(reply, where[0]):
                self._slots[first : last + 1] = [(host, port)] * (last + 1 - first)
            return
        raise failure
