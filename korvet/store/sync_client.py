"""redis-py clients for an address: RESP2, and nothing is ever sent twice."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from korvet.store.address import Address, Location

CONNECT_S = 5.0
SILENT_S = 15.0
"""As long as a broker's `redis.timeout.ms`."""


def open_client(address: Address) -> redis.Redis:
    """A client of that server; it connects when first used."""
    return redis.Redis(
        host=address.host, port=address.port, unix_socket_path=address.path, **_entry(address)
    )


def open_master(location: Location) -> redis.Redis:
    """A client of whichever server the Sentinels call the master, asked at every connection."""
    first = location.seeds[0]
    options: dict[str, Any] = {
        "socket_timeout": 5.0,
        "username": location.sentinel_username,
        "password": location.sentinel_password,
        "retry": Retry(NoBackoff(), 0),
    }
    if first.tls is not None:
        options["ssl"] = True
        options |= {name: value for name, value in first.options.items() if name[:4] == "ssl_"}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(seed.host, seed.port) for seed in location.seeds], sentinel_kwargs=options
    )
    client: redis.Redis = sentinel.master_for(location.master, **_entry(first))  # type: ignore[no-untyped-call]
    return client


def _entry(address: Address) -> dict[str, Any]:
    options = dict(address.options)
    if address.tls is not None:
        options["ssl"] = True
    return {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        # Before its version 8, redis-py waits for a silent server for ever.
        "socket_connect_timeout": CONNECT_S,
        "socket_timeout": SILENT_S,
        **options,
    }
