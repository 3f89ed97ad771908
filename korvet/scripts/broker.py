"""The mirror of lua/broker: who is alive, who is controller, who holds which duty."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class RegisterReply(Reply):
    """`brokers` lists node id and address of every live broker, flat; `other` is the address of
    whoever else had this node id."""

    error: int
    controller: int
    other: bytes
    brokers: list[int | bytes]


class InitClusterIdReply(Reply):
    """`cluster_id` is what the cluster is called from now on."""

    error: int
    cluster_id: bytes


class UnregisterReply(Reply):
    """The broker is no longer listed, or somebody else has its id."""

    error: int


class LeaseReply(Reply):
    """`held` is 1 when the caller has the duty now."""

    error: int
    held: int


REGISTER = Script("broker.register", RegisterReply)
INIT_CLUSTER_ID = Script("broker.init_cluster_id", InitClusterIdReply)
UNREGISTER = Script("broker.unregister", UnregisterReply)
LEASE = Script("broker.lease", LeaseReply)


def register(keys: Keys, *, node_id: int, address: bytes, ttl_ms: int) -> Call[RegisterReply]:
    """The broker is known to all for `ttl_ms`."""
    return Call(REGISTER, (keys.brokers(),), (node_id, address, ttl_ms))


def init_cluster_id(keys: Keys, *, cluster_id: str) -> Call[InitClusterIdReply]:
    """The cluster has an id: this one, unless it had one."""
    return Call(INIT_CLUSTER_ID, (keys.cluster(),), (cluster_id,))


def unregister(keys: Keys, *, node_id: int, address: bytes) -> Call[UnregisterReply]:
    """The broker is no longer listed."""
    return Call(UNREGISTER, (keys.brokers(),), (node_id, address))


def lease(keys: Keys, *, name: str, holder: str, ttl_ms: int) -> Call[LeaseReply]:
    """The caller has the duty `name` for `ttl_ms`, or somebody else still has."""
    return Call(LEASE, (keys.cluster(),), (name, holder, ttl_ms))
