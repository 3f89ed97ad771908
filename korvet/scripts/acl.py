"""The mirror of lua/acl: the rules that authorize clients."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class CreateReply(Reply):
    """`created`: how many of the rules did not exist."""

    version: int
    created: int


class DeleteReply(Reply):
    """`deleted`: 1 per rule that existed, else 0."""

    version: int
    deleted: list[int]


CREATE = Script("acl.create", CreateReply)
DELETE = Script("acl.delete", DeleteReply)


def create(keys: Keys, rules: Sequence[bytes]) -> Call[CreateReply]:
    """Add rules; one that exists stays as it is."""
    return Call(CREATE, (keys.acls(),), rules)


def delete(keys: Keys, rules: Sequence[bytes]) -> Call[DeleteReply]:
    """Delete rules, given exactly as stored."""
    return Call(DELETE, (keys.acls(),), rules)
