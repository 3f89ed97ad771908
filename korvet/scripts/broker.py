"""The mirror of lua/broker: registrations, the controller, leases of background tasks."""

from korvet.keys import Keys
from korvet.scripts.call import Call, ErrorReply, Reply, Script


class RegisterReply(Reply):
    """`brokers` lists node id and address of every live broker, flat; `other` is the address of
    another live broker with this node id, empty for none."""

    error: int
    controller: int
    other: bytes
    now_ms: int
    brokers: list[int | bytes]


class InitClusterIdReply(Reply):
    """`cluster_id` is the stored id."""

    error: int
    cluster_id: bytes


class InitLineageReply(Reply):
    """`lineage` is the stored one."""

    error: int
    lineage: bytes


class LeaseReply(Reply):
    """`held` is 1 if the caller holds the lease."""

    error: int
    held: int


class ClaimIdReply(Reply):
    """`node_id` is held for the caller."""

    error: int
    node_id: int


CLAIM_ID = Script("broker.claim_id", ClaimIdReply)
REGISTER = Script("broker.register", RegisterReply)
INIT_CLUSTER_ID = Script("broker.init_cluster_id", InitClusterIdReply)
INIT_LINEAGE = Script("broker.init_lineage", InitLineageReply)
UNREGISTER = Script("broker.unregister", ErrorReply)
LEASE = Script("broker.lease", LeaseReply)
SET_STORAGE = Script("broker.set_storage", ErrorReply)


def register(keys: Keys, *, node_id: int, address: bytes, ttl_ms: int) -> Call[RegisterReply]:
    """Register a broker for `ttl_ms`."""
    return Call(REGISTER, (keys.brokers(),), (node_id, address, ttl_ms))


def claim_id(keys: Keys, *, endpoints: bytes, ttl_ms: int) -> Call[ClaimIdReply]:
    """Choose a node id that is free, or that a broker with these endpoints has."""
    return Call(CLAIM_ID, (keys.brokers(),), (endpoints, ttl_ms))


def init_cluster_id(keys: Keys, *, cluster_id: str) -> Call[InitClusterIdReply]:
    """Return the cluster's id, after storing `cluster_id` if there is none."""
    return Call(INIT_CLUSTER_ID, (keys.cluster(),), (cluster_id,))


def init_lineage(keys: Keys, *, lineage: str) -> Call[InitLineageReply]:
    """Return the lineage of this Redis's snapshots, after storing `lineage` if there is none."""
    return Call(INIT_LINEAGE, (keys.cluster(),), (lineage,))


def set_storage(keys: Keys, *, url: str, topics: str, memory: int) -> Call[ErrorReply]:
    """Store the URL of the remote store, whether topics use it by default, and the budget."""
    return Call(SET_STORAGE, (keys.cluster(),), (url, topics, memory))


def unregister(keys: Keys, *, node_id: int, address: bytes) -> Call[ErrorReply]:
    """Remove a broker's registration if it has this address."""
    return Call(UNREGISTER, (keys.brokers(),), (node_id, address))


def lease(keys: Keys, *, name: str, holder: str, ttl_ms: int) -> Call[LeaseReply]:
    """Acquire or renew the lease of the task `name` for `ttl_ms`."""
    return Call(LEASE, (keys.cluster(),), (name, holder, ttl_ms))
