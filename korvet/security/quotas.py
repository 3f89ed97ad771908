"""Client quotas (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612), held for the whole cluster.

Rules
- A quota is a resource `quota:ENTITY` of the dynamic configs. ENTITY is JSON: the names of `user`,
  `client-id` or `ip`, null for the default.
- The most specific entity with a value limits a client, in Kafka's order.
- Every broker charges one token bucket in Redis. A client in debt waits until the debt is paid: its
  request is answered with `throttle_time_ms`, then the broker reads nothing from the connection.
- Without Redis no quota is enforced: requests fail anyway.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import ByteBounded
from korvet.config.dynamic import ConfigTable
from korvet.scripts.keys import Keys
from korvet.security.session import Session
from korvet.store.calls import AsyncCalls
from korvet.store.errors import StoreError

PREFIX = "quota:"
ENTITY_TYPES = USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTES, CONSUMER_BYTES = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
OF_CLIENTS = (PRODUCER_BYTES, CONSUMER_BYTES, REQUEST_PERCENTAGE, MUTATIONS)
BURST_S = {
    PRODUCER_BYTES: 0.1,
    CONSUMER_BYTES: 0.1,
    REQUEST_PERCENTAGE: 1.0,
    MUTATIONS: 11.0,
    CONNECTIONS: 1.0,
}
"""Seconds of its rate that an idle client may use at once; Kafka's mutation quota has 11."""
FETCH_S = 10
"""Seconds of consumer_byte_rate that one response has at most, as in Kafka."""
MAX_REQUEST_WAIT_MS = 1000
"""Longest wait for request_percentage, as in Kafka."""
MAX_BUCKET = 500
"""Max length of a bucket's name: Redis keeps it while its client is limited."""
PRODUCE, FETCHES = 0, (1, 78)

Entity = Mapping[str, str | None]
log = logfmt.get("quotas")


class Limit(NamedTuple):
    """A quota of one client: its value, and the bucket that it shares with others."""

    quota: str
    value: float
    bucket: str

    @property
    def rate(self) -> float:
        """Tokens a second: bytes, partitions, connections, or ms of request time."""
        return self.value * 10 if self.quota == REQUEST_PERCENTAGE else self.value


def resource_of(entity: Entity) -> str:
    """Return the resource of an entity in the dynamic configs."""
    return PREFIX + msgspec.json.encode(dict(sorted(entity.items()))).decode()


def entity_of(resource: str) -> dict[str, str | None]:
    """Return the entity of a resource."""
    return msgspec.json.decode(resource.removeprefix(PREFIX), type=dict[str, str | None])


def bucket_of(name: str, sharing: Mapping[str, str]) -> str:
    """Return the bucket of a quota: of its name, and of the names that share it.

    A client may choose its name, so each is encoded. A long list of names has a hash.
    """
    names = [f"{part}={quote(sharing[part], safe='')}" for part in sorted(sharing)]
    bucket = "&".join([name, *names])
    if len(bucket) <= MAX_BUCKET:
        return bucket
    return f"{name}&#{sha256(bucket.encode('utf-8', 'surrogateescape')).hexdigest()}"


def within(limits: tuple[Limit, ...], request: Any) -> Any:
    """Return a Fetch or ShareFetch request for no more bytes than its client gets in FETCH_S."""
    for limit in limits:
        if limit.quota == CONSUMER_BYTES:
            max_bytes = min(request.max_bytes, int(limit.value * FETCH_S))
            fewest = min(request.min_bytes, max_bytes)
            return msgspec.structs.replace(request, max_bytes=max_bytes, min_bytes=fewest)
    return request


class Quotas:
    """The quotas in effect, and the charges of this broker's clients."""

    def __init__(self, store: AsyncCalls, keys: Keys, table: ConfigTable) -> None:
        self._store = store
        self._keys = keys
        self._table = table
        self._read: bytes | None = None
        self._values: dict[str, dict[str, float]] = {}
        self._limits = ByteBounded[tuple[str, str], tuple[Limit, ...]]("quota limits", 8 << 20)
        self.version = 0
        """Changes with the quotas: what was derived from older ones is invalid."""

    def entries(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Return every entity with its values."""
        self._refresh()
        return [(entity_of(name), dict(values)) for name, values in self._values.items()]

    def limits(self, session: Session, client_id: str | None) -> tuple[Limit, ...]:
        """Return the quotas that limit the requests of a client."""
        self._refresh()
        if not self._values:
            return ()
        user, client = session.principal.name, client_id or ""
        key = (user, client)
        found = self._limits.get(key)
        if found is None:
            named = (self._limit(name, user, client) for name in OF_CLIENTS)
            limits = tuple(limit for limit in named if limit is not None)
            found = self._limits.put(key, limits)
        return found

    def _refresh(self) -> None:
        if self._table.version == self._read:
            return
        self._read = self._table.version
        values = {
            name: {key: float(text) for key, text in self._table.explicit(name).items()}
            for name in self._table.resources(PREFIX)
        }
        if values != self._values:
            self._values = values
            self._limits.clear()
            self.version += 1

    def _limit(self, name: str, user: str, client: str) -> Limit | None:
        entities: tuple[Entity, ...] = (
            {USER: user, CLIENT_ID: client},
            {USER: user, CLIENT_ID: None},
            {USER: user},
            {USER: None, CLIENT_ID: client},
            {USER: None, CLIENT_ID: None},
            {USER: None},
            {CLIENT_ID: client},
            {CLIENT_ID: None},
        )
        for entity in entities:
            value = self._values.get(resource_of(entity), {}).get(name)
            if value is not None:
                shared = {USER: user, CLIENT_ID: client}
                return Limit(name, value, bucket_of(name, {part: shared[part] for part in entity}))
        return None

    async def throttle_ms(
        self,
        limits: tuple[Limit, ...],
        api_key: int,
        received: int,
        records: int,
        took_s: float,
        mutation_ms: int = 0,
    ) -> int:
        """Charge an answered request and return how long its client has to wait.

        `records` are the bytes of records in its response, `mutation_ms` is what `charge_mutation`
        returned for it.
        """
        waits = [mutation_ms]
        for limit in limits:
            if limit.quota == PRODUCER_BYTES and api_key == PRODUCE:
                waits.append(await self._charge(limit, received))
            elif limit.quota == CONSUMER_BYTES and api_key in FETCHES:
                waits.append(await self._charge(limit, records))
            elif limit.quota == REQUEST_PERCENTAGE:
                wait_ms = await self._charge(limit, took_s * 1000)
                waits.append(min(wait_ms, MAX_REQUEST_WAIT_MS))
        return max(waits)

    async def charge_mutation(
        self, session: Session, client_id: str | None, partitions: int, *, strict: bool
    ) -> int:
        """Charge created or deleted partitions; return ms to wait.

        With `strict` a client in debt is charged nothing, and its request must be refused.
        """
        for limit in self.limits(session, client_id):
            if limit.quota == MUTATIONS:
                return await self._charge(limit, partitions, strict=strict)
        return 0

    def limits_connections(self, host: str) -> bool:
        """Return whether a quota limits the connections of an address."""
        self._refresh()
        return bool(self._values) and self._connection_rate(host) is not None

    async def charge_connection(self, host: str) -> int:
        """Charge a new connection of an address; return ms to wait before it is served."""
        rate = self._connection_rate(host)
        if rate is None:
            return 0
        return await self._charge(Limit(CONNECTIONS, rate, bucket_of(CONNECTIONS, {IP: host})), 1)

    def _connection_rate(self, host: str) -> float | None:
        for entity in ({IP: host}, {IP: None}):
            value = self._values.get(resource_of(entity), {}).get(CONNECTIONS)
            if value is not None:
                return value
        return None

    async def admit(self, session: Session, client_id: str | None, name: str, amount: int) -> int:
        """Charge bytes and return 0; charge nothing to a client in debt and return ms to wait."""
        for limit in self.limits(session, client_id):
            if limit.quota == name:
                return await self._charge(limit, amount, strict=True)
        return 0

    async def _charge(self, limit: Limit, amount: float, *, strict: bool = False) -> int:
        call = self._keys.quota_charge(
            quota=self._keys.quota(limit.bucket),
            rate=max(1, round(limit.rate * 1000)),
            burst=round(limit.rate * BURST_S[limit.quota] * 1000),
            amount=round(amount * 1000),
            strict=int(strict),
        )
        try:
            reply = await self._store.run(call)
        except StoreError as error:
            log.error_again("quota not charged", quota=limit.quota, error=error)
            return 0
        return int(reply.wait_ms)
