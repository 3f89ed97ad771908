"""The mirror of lua/user: SCRAM credentials of users."""

from collections.abc import Iterable

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script, VersionReply, flat


class InitDecoyKeyReply(Reply):
    """The cluster's key for decoy credentials."""

    error: int
    decoy_key: bytes


ALTER = Script("user.alter", VersionReply)
INIT_DECOY_KEY = Script("user.init_decoy_key", InitDecoyKeyReply)


def alter(
    keys: Keys, rows: Iterable[tuple[str, bytes, str]], *, user: str, condition: str
) -> Call[VersionReply]:
    """Set or delete credentials: rows of mechanism, credential (empty deletes) and shape."""
    return Call(ALTER, (keys.users(),), (user, condition, *flat(rows)))


def init_decoy_key(keys: Keys, *, decoy_key: bytes) -> Call[InitDecoyKeyReply]:
    """Store the key for decoy credentials if the cluster has none."""
    return Call(INIT_DECOY_KEY, (keys.users(),), (decoy_key,))
