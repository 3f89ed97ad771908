"""Calls on a group of the newer protocol (KIP-848)."""

from collections.abc import Iterable

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class ConsumeReply(Reply):
    """`ask` 1: call again with rows for these topics; `told` 1: `assignment` is to be told."""

    error: int
    epoch: int
    told: int
    assignment: bytes
    soon_ms: int
    ask: int
    names: list[bytes]
    regexes: list[bytes]
    wait_ms: int
    began: int


class ConsumersReply(Reply):
    """`members` is flat, ten cells each, as lua/group/consumers.lua lists them."""

    error: int
    state: bytes
    epoch: int
    assigned: int
    assignor: bytes
    members: list[bytes]


CONSUME = Script("group.consume", ConsumeReply)
CONSUMERS = Script("group.consumers", ConsumersReply)


def consume(
    keys: Keys,
    group_id: str,
    *,
    member: str,
    epoch: int,
    instance: str,
    rack: str,
    client_id: str,
    client_host: str,
    session_ms: int,
    rebalance_ms: int,
    assignor: str,
    max_size: int,
    registered: int,
    subscribes: int,
    names: bytes,
    regex: str,
    owns: int,
    owned: bytes,
    version: bytes,
    asked: bytes,
    rows: Iterable[tuple[str, str, str]],
) -> Call[ConsumeReply]:
    """A member of the newer protocol is alive. Rows are kind, key and value, of what an answer
    `asked` for."""
    k = keys.group(group_id)
    flat = [cell for row in rows for cell in row]
    return Call(
        CONSUME,
        (k.group, k.consumers, k.targets, k.holders, k.instances, k.deadlines),
        (
            member,
            epoch,
            instance,
            rack,
            client_id,
            client_host,
            session_ms,
            rebalance_ms,
            assignor,
            max_size,
            registered,
            subscribes,
            names,
            regex,
            owns,
            owned,
            version,
            asked,
            *flat,
        ),
    )


def consumers(keys: Keys, group_id: str) -> Call[ConsumersReply]:
    """A group of the newer protocol with its members."""
    k = keys.group(group_id)
    return Call(CONSUMERS, (k.group, k.consumers, k.targets, k.deadlines))
