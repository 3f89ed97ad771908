"""Clients of redis-py for an address: RESP2, and each command is sent at most once.

The rules on a Redis Cluster are those of `cluster_router`: the first key's slot selects the node,
MOVED and ASK are followed, nothing is sent again when a connection breaks.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, RedisClusterException
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from korvet.scripts.call import Arg
from korvet.store import sentinel
from korvet.store.address import Address, Location
from korvet.store.predecessors import Predecessors
from korvet.store.slots import SLOTS, parse_slots, slot_of_command

CONNECT_S = 5.0
"""Seconds in which a connection must be made."""
SILENT_S = 15.0
"""Seconds without a reply that end a connection: the broker's `redis.timeout.ms`."""
AGAIN_S = 0.1
"""Seconds between two questions to the Sentinels during a failover."""
Open = Callable[[Address], Any]
_MAX_REDIRECTIONS = 5


def open_client(address: Address) -> redis.Redis:
    """Return a client of that server; it connects at its first command."""
    return redis.Redis(
        host=address.host, port=address.port, unix_socket_path=address.path, **_entry(address)
    )


class Watchers(Sentinel):
    """The Sentinels of a deployment. All are asked: the first to answer may know least."""

    def __init__(self, location: Location) -> None:
        self._location = location
        seeds = [(seed.host, seed.port) for seed in location.seeds]
        entry = {**sentinel.entry(location, CONNECT_S), "retry": Retry(NoBackoff(), 0)}
        super().__init__(seeds, sentinel_kwargs=entry)  # type: ignore[no-untyped-call]
        for client in self.sentinels:
            client.response_callbacks = {}  # type: ignore[assignment]

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the master's address; redis-py asks before each connection.

        During a failover the call waits for the new master: writes to the old one are lost.
        """
        began = time.monotonic()
        while True:
            found, failures = self._ask_sentinels()
            if not sentinel.leaves(found) or time.monotonic() - began >= sentinel.HOLD_S:
                break
            time.sleep(AGAIN_S)
        named = sentinel.elected(found)
        if named is None:
            raise MasterNotFoundError(str(sentinel.no_master(self._location, failures)))
        return named

    def _ask_sentinels(self) -> tuple[list[sentinel.SentinelView], list[BaseException]]:
        """Return the views of the Sentinels that answer in time, and why the others did not."""
        pool = ThreadPoolExecutor(len(self.sentinels))
        asked = {pool.submit(self._ask, client) for client in self.sentinels}
        pool.shutdown(wait=False)
        waiting, answered = asked, list[Future[Any]]()
        while waiting and not any(each.exception() is None for each in answered):
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            answered += done
        answered += wait(waiting, timeout=sentinel.GRACE_S).done
        failures = [error for each in answered if (error := each.exception()) is not None]
        found = [sentinel.view(each.result()) for each in answered if each.exception() is None]
        return [each for each in found if each is not None], failures

    def _ask(self, client: redis.Redis) -> sentinel.RawView:
        pipe: Any = client.pipeline(transaction=False)
        for question in sentinel.QUESTIONS:
            pipe.execute_command(*question, self._location.master)
        state, address = pipe.execute(raise_on_error=False)
        return state, address


def open_master(location: Location) -> redis.Redis:
    """Return a client of the server that Sentinels name as master, asked at every connection."""
    watchers = Watchers(location)
    client: redis.Redis = watchers.master_for(location.master, **_entry(location.seeds[0]))  # type: ignore[no-untyped-call]
    return client


def _entry(address: Address) -> dict[str, Any]:
    options = dict(address.options)
    if address.tls is not None:
        options["ssl"] = True
    else:  # a plain connection takes none of these
        options = {name: value for name, value in options.items() if name[:4] != "ssl_"}
    return {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        # Before version 8, redis-py waits for a silent server without limit.
        "socket_connect_timeout": CONNECT_S,
        "socket_timeout": SILENT_S,
        "redis_connect_func": Predecessors().greet,
        **options,
    }


class SyncCluster:
    """Executes commands on the node of their slot, by one client per master; replies are raw."""

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
