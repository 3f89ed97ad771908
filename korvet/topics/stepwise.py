"""Making, growing and deleting a topic in steps, behind a tombstone: on Redis Cluster, slot by
slot, and wherever one script call would be long.

Rules
- The definition in `korvet:topics` says what is under way before the first slot is touched: `state`
  is `creating` or `deleting`, or `planned` counts more partitions than there are. Until the last
  step clients know nothing of it.
- Every step may be repeated, by anybody: a log is opened or dropped only if it is this very
  topic's, the definition changes only if it is still the one that was read.
- So whoever finds a definition half-way can finish it: `finish` (housekeeping does, by lease).
- Of a log and a definition that disagree about the topic, the definition is right: nodes fail over
  one by one, and one may lose a definition whose logs others still have.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from korvet.errors import ErrorCode
from korvet.keys import Keys, decode_group
from korvet.scripts import group as group_scripts
from korvet.scripts import log
from korvet.scripts import topic as scripts
from korvet.scripts.call import Call
from korvet.topics.table import (
    CREATING,
    DELETING,
    LIVE,
    VERSION_FIELD,
    Definition,
    Topic,
    decode_definition,
    encode_definition,
)

AT_ONCE = 256


class Store(Protocol):
    """What the steps need of a store."""

    async def run(self, call: Call[Any]) -> Any: ...
    async def run_many(self, calls: Iterable[Call[Any]]) -> list[Any]: ...
    async def command(self, *command: Any) -> Any: ...


async def create(store: Store, keys: Keys, name: str, definition: Definition) -> ErrorCode:
    """The topic exists; TOPIC_ALREADY_EXISTS when it did before, or still half does."""
    begun = encode_definition(msgspec.structs.replace(definition, state=CREATING))
    reply = await store.run(
        scripts.create(
            keys,
            0,
            topic=name,
            definition=begun,
            topic_id=definition.id,
            **definition.shape,
        )
    )
    if reply.error == ErrorCode.NONE:
        await finish(store, keys, name, begun)
    return ErrorCode(reply.error)


async def grow(store: Store, keys: Keys, topic: Topic, partitions: int) -> ErrorCode:
    """The topic has so many partitions. CONCURRENT_TRANSACTIONS: it changed since it was read."""
    begun = encode_definition(topic.definition(planned=partitions))
    error = await _replace(store, keys, topic.name, topic.raw, begun)
    if error == ErrorCode.NONE:
        await finish(store, keys, topic.name, begun)
    return error


async def delete(store: Store, keys: Keys, topic: Topic) -> ErrorCode:
    """The topic is gone with all that hangs on it. CONCURRENT_TRANSACTIONS: as for `grow`."""
    begun = encode_definition(msgspec.structs.replace(decode_definition(topic.raw), state=DELETING))
    error = await _replace(store, keys, topic.name, topic.raw, begun)
    if error == ErrorCode.NONE:
        await finish(store, keys, topic.name, begun)
    return error


async def finish(store: Store, keys: Keys, name: str, raw: bytes) -> None:
    """What the definition `raw` says is under way is done, here or by somebody else."""
    definition = decode_definition(raw)
    if definition.state == DELETING:
        await _delete(store, keys, name, raw, definition)
        return
    opened = range(max(definition.partitions, definition.planned))
    await _open(store, keys, name, raw, definition, opened)
    done = msgspec.structs.replace(definition, state=LIVE, partitions=len(opened), planned=0)
    error = await _replace(store, keys, name, raw, encode_definition(done))
    if error != ErrorCode.NONE:
        await _withdraw(store, keys, name, definition, opened)


async def _open(
    store: Store, keys: Keys, name: str, raw: bytes, definition: Definition, numbers: range
) -> None:
    calls = [
        log.create(keys, name, number, topic_id=definition.id, **definition.shape)
        for number in numbers
    ]
    for number, call, reply in zip(numbers, calls, await _all(store, calls), strict=True):
        if reply.error:
            # Read before the definition: a later topic has no log before it has a definition.
            foreign = await store.command("HGET", keys.partition(name, number).log, "topic_id")
            if await store.command("HGET", keys.topics(), name) != raw:
                return
            if foreign is not None:
                await store.run(log.delete(keys, name, number, topic_id=foreign.decode()))
            await store.run(call)


async def _withdraw(
    store: Store, keys: Keys, name: str, definition: Definition, opened: range
) -> None:
    """Logs that were opened after the topic was deleted by somebody else are gone again."""
    raw = await store.command("HGET", keys.topics(), name)
    now = None if raw is None else decode_definition(raw)
    kept = 0
    if now is not None and now.id == definition.id and now.state != DELETING:
        kept = max(now.partitions, now.planned)
    await _drop(store, keys, name, definition.id, opened[kept:])


async def _delete(store: Store, keys: Keys, name: str, raw: bytes, definition: Definition) -> None:
    partitions = max(definition.partitions, definition.planned)
    await _drop(store, keys, name, definition.id, range(partitions))
    version: bytes | None = None
    while True:
        # A topic of that name that came back has offsets of its own: they are not ours to forget.
        if await store.command("HGET", keys.topics(), name) != raw:
            return
        flat = await store.command("HGETALL", keys.groups())
        registry = dict(zip(flat[::2], flat[1::2], strict=True))
        now = registry.pop(VERSION_FIELD.encode(), b"")
        if now == version:
            break
        version = now
        groups = [decode_group(group.decode()) for group in registry]
        await _all(
            store,
            (group_scripts.delete_topic_offsets(keys, group, name, partitions) for group in groups),
        )
    await store.run(scripts.delete_definition(keys, topic=name, expected=raw))


async def _drop(store: Store, keys: Keys, name: str, topic_id: str, numbers: range) -> None:
    await _all(store, (log.delete(keys, name, number, topic_id=topic_id) for number in numbers))


async def _replace(store: Store, keys: Keys, name: str, old: bytes, new: bytes) -> ErrorCode:
    reply = await store.run(scripts.alter(keys, topic=name, expected=old, definition=new))
    return ErrorCode(reply.error)


async def _all(store: Store, calls: Iterable[Call[Any]]) -> list[Any]:
    """Every call is done, AT_ONCE of them in flight; the replies in their order."""
    pending = list(calls)
    replies: list[Any] = []
    for at in range(0, len(pending), AT_ONCE):
        replies += await store.run_many(pending[at : at + AT_ONCE])
    return replies
