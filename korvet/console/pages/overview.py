"""The overview: brokers, Redis, traffic, and what needs attention."""

from time import time

import msgspec

from korvet import __version__
from korvet.broker.ops.finding import Finding
from korvet.broker.ops.metric_pages import Snapshots
from korvet.console.visit import Visit
from korvet.security.acl import Operation, ResourceType
from korvet.store.errors import StoreError
from korvet.store.handshake import describe_server, parse_info, why_writes_are_refused


class BrokerRow(msgspec.Struct, frozen=True):
    """A live broker."""

    id: int
    addresses: str
    """The addresses that clients connect to."""
    rack: str | None
    is_controller: bool


class RedisState(msgspec.Struct, frozen=True):
    """The Redis of the brokers; one server of a cluster."""

    server: str
    mode: str
    role: str
    replicas: int
    memory_bytes: int
    memory_limit_bytes: int
    """maxmemory, or the machine's memory without it; 0 if unknown."""
    has_limit: bool
    """Whether maxmemory is set."""
    budget_bytes: int
    """local.memory.bytes: records leave Redis for segments above it; 0 for none."""
    persistence: str
    uptime_s: int
    commands_per_s: int
    clients: int
    hit_by_eviction: int
    """Keys that Redis evicted: any number above 0 is lost data."""


class Traffic(msgspec.Struct, frozen=True):
    """Counters of this broker since its start; two readings give a rate."""

    at_ms: int
    produced_records: int
    produced_bytes: int
    fetched_records: int
    fetched_bytes: int
    requests: int
    errors: int
    connections: int


class Overview(msgspec.Struct, frozen=True):
    """The state of the cluster."""

    version: str
    cluster_id: str
    namespace: str
    brokers: list[BrokerRow]
    topics: int
    groups: int
    traffic: Traffic
    redis: RedisState | None
    """Null for a user that may not describe the cluster."""
    findings: list[Finding]
    """The worst first."""
    is_checked: bool
    """False while the first checks run."""


async def load(visit: Visit) -> Overview:
    """Return the state of the cluster."""
    console, services = visit.console, visit.services
    brokers, controller = await console.brokers()
    sees_cluster = visit.may(Operation.DESCRIBE, ResourceType.CLUSTER)
    describes = visit.context().may_describe
    topics = [row for row in await services.topics.all() if describes(row.name, audit=False)]
    groups = await services.store.command("HLEN", services.keys.groups()) if sees_cluster else 0
    findings = await console.findings() if sees_cluster else []
    return Overview(
        version=__version__,
        cluster_id=await console.cluster_id(),
        namespace=services.config.namespace,
        brokers=[
            BrokerRow(each.id, each.addresses, each.rack, each.id == controller) for each in brokers
        ],
        topics=len(topics),
        groups=max(0, groups - 1),
        traffic=traffic_of(await console.pages.snapshots()),
        redis=await _redis(visit) if sees_cluster else None,
        findings=findings or [],
        is_checked=findings is not None,
    )


def traffic_of(snapshots: Snapshots) -> Traffic:
    """Return the counters of all processes of this broker."""
    sums: dict[str, float] = {}
    errors = 0.0
    for _, families in snapshots:
        for family in families:
            for sample in family.samples:
                sums[family.name] = sums.get(family.name, 0) + sample.value
                if family.name == "korvet_requests" and sample.labels[1] != "NONE":
                    errors += sample.value

    def of(name: str) -> int:
        return int(sums.get(f"korvet_{name}", 0))

    return Traffic(
        int(time() * 1000),
        of("produced_records"),
        of("produced_bytes"),
        of("fetched_records"),
        of("fetched_bytes"),
        of("requests"),
        int(errors),
        of("connections"),
    )


async def _redis(visit: Visit) -> RedisState | None:
    services = visit.services
    try:
        raw = await services.store.command("INFO")
    except StoreError:
        return None
    info = parse_info(raw)
    server = describe_server(info)
    limit = int(info.get("maxmemory", 0))
    return RedisState(
        server=f"{server.name} {server.version}",
        mode=info.get("redis_mode", "standalone"),
        role=info.get("role", "master"),
        replicas=int(info.get("connected_slaves", 0)),
        memory_bytes=int(info.get("used_memory", 0)),
        memory_limit_bytes=limit or int(info.get("total_system_memory", 0)),
        has_limit=limit > 0,
        budget_bytes=max(0, visit.services.settings.integer("local.memory.bytes")),
        persistence=_persistence(info),
        uptime_s=int(info.get("uptime_in_seconds", 0)),
        commands_per_s=int(info.get("instantaneous_ops_per_sec", 0)),
        clients=int(info.get("connected_clients", 0)),
        hit_by_eviction=int(info.get("evicted_keys", 0)),
    )


def _persistence(info: dict[str, str]) -> str:
    if reason := why_writes_are_refused(info):
        return f"writes are refused: {reason}"
    if info.get("aof_enabled") == "1":
        return "append-only file"
    return "snapshots only: a crash loses the writes after the last one"
