"""Clients of redis-py for an address: RESP2, and each command is sent at most once."""

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from korvet.store import sentinel
from korvet.store.address import Address, Location
from korvet.store.predecessors import Predecessors

CONNECT_S = 5.0
"""Seconds in which a connection must be made."""
SILENT_S = 15.0
"""Seconds without a reply that end a connection: the broker's `redis.timeout.ms`."""
AGAIN_S = 0.1
"""Seconds between two questions to the Sentinels during a failover."""


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
