"""The mirror of lua/config: dynamic configs of brokers and groups."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Script, VersionReply

ALTER = Script("config.alter", VersionReply)


def alter(keys: Keys, *, resource: str, expected: bytes, wanted: bytes) -> Call[VersionReply]:
    """Replace a resource's configs if they are the expected ones."""
    return Call(ALTER, (keys.configs(),), (resource, expected, wanted))
