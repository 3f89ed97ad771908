"""The mirror of lua/config: dynamic configs of brokers and groups."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class AlterReply(Reply):
    """`version` is the configs table's version after the change, -1 on an error."""

    error: int
    version: int


ALTER = Script("config.alter", AlterReply)


def alter(keys: Keys, *, resource: str, expected: bytes, wanted: bytes) -> Call[AlterReply]:
    """Replace a resource's configs if they are the expected ones."""
    return Call(ALTER, (keys.configs(),), (resource, expected, wanted))
