"""The mirror of lua/config: what was changed about brokers and groups while they run."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class AlterReply(Reply):
    """`version` is the configs' version after the change, -1 when refused."""

    error: int
    version: int


ALTER = Script("config.alter", AlterReply)


def alter(keys: Keys, *, resource: str, expected: bytes, wanted: bytes) -> Call[AlterReply]:
    """The resource's configs are `wanted`, provided they were the expected ones."""
    return Call(ALTER, (keys.configs(),), (resource, expected, wanted))
