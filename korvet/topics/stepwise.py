"""Create, grow and delete topics in steps, each recorded in the topic's definition first.

Used on Redis Cluster, one slot after the other, and wherever one script call would take long.

Rules
- The definition in `korvet:topics` records the change before the first slot is written: `state` is
  `creating` or `deleting`, or `planned` is higher than `partitions`. Clients do not see the change
  until its last step.
- Any broker may repeat any step. A log is created or deleted only if its topic id matches. The
  definition is replaced only if it is still the one that was read.
- So any broker can complete a change in progress: `finish`, which a background task with a lease
  calls.
- A deletion touches another slot once its definition is as durable as acks=-1 asks for: a failover
  that lost it would keep a topic without its logs. The definition is removed once the same is true
  of what was deleted elsewhere.
- If a log and a definition disagree about the topic, the definition is right: cluster nodes fail
  over one by one, and one may lose a definition whose logs other nodes still have.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from korvet.base.errors import ErrorCode
from korvet.config.topic_policy import REMOTE
from korvet.scripts.call import Call, decode_group
from korvet.scripts.calls.partition import CreateReply
from korvet.scripts.keys import Keys
from korvet.store.calls import AsyncCalls
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


async def leader_epoch(store: AsyncCalls, keys: Keys) -> int:
    """Return the leader epoch of the cluster, with which new logs begin.

    A Redis without one is new, or was emptied while it runs: it gets one that clients do not know.
    """
    known = await store.command("HGET", keys.cluster(), "epoch")
    if known is not None:
        return int(known)
    raised = await store.run(keys.broker_raise_epoch([], begun=-1, by_time=1))
    return int(raised.epoch)


async def create(store: AsyncCalls, keys: Keys, name: str, definition: Definition) -> ErrorCode:
    """Create the topic.

    Returns TOPIC_ALREADY_EXISTS if it exists or is being created or deleted.
    """
    begun = encode_definition(msgspec.structs.replace(definition, state=CREATING))
    reply = await store.run(
        keys.topic_create(
            keys.logs(name, range(0)),
            topic=name,
            definition=begun,
            topic_id=definition.id,
            **definition.shape,
        )
    )
    if reply.error == ErrorCode.NONE:
        await finish(store, keys, name, begun)
    return ErrorCode(reply.error)


async def grow(store: AsyncCalls, keys: Keys, topic: Topic, partitions: int) -> int:
    """Grow the topic. Returns TOPIC_CHANGED if it changed since it was read."""
    begun = encode_definition(topic.definition(planned=partitions))
    error = await _replace(store, keys, topic.name, topic.raw, begun)
    if error == ErrorCode.NONE:
        await finish(store, keys, topic.name, begun)
    return error


async def delete(store: AsyncCalls, keys: Keys, topic: Topic, *, has_segments: bool) -> int:
    """Delete the topic with its logs and offsets.

    `has_segments`: it may have objects in a remote store. Returns TOPIC_CHANGED as `grow` does.
    """
    definition = topic.definition(state=DELETING)
    if has_segments:
        # The broker that completes the deletion finds no log that says so.
        configs = {**definition.configs, REMOTE: "true"}
        definition = msgspec.structs.replace(definition, configs=configs)
    begun = encode_definition(definition)
    error = await _replace(store, keys, topic.name, topic.raw, begun)
    if error == ErrorCode.NONE:
        await finish(store, keys, topic.name, begun)
    return error


async def finish(store: AsyncCalls, keys: Keys, name: str, raw: bytes) -> None:
    """Complete the change that the definition `raw` records, unless another broker does first."""
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
    store: AsyncCalls, keys: Keys, name: str, raw: bytes, definition: Definition, numbers: range
) -> None:
    epoch = await leader_epoch(store, keys)

    def call(number: int) -> Call[CreateReply]:
        return keys.partition(name, number, definition.id).create(**definition.shape, epoch=epoch)

    for number, reply in zip(numbers, await _all(store, map(call, numbers)), strict=True):
        if reply.error:
            # The log is read before the definition: a later topic's log is created after its
            # definition.
            foreign = await store.command("HGET", keys.partition(name, number).log, "topic_id")
            if await store.command("HGET", keys.topics(), name) != raw:
                return
            if foreign is not None:
                await store.run(keys.partition(name, number, foreign.decode()).delete())
            await store.run(call(number))


async def _withdraw(
    store: AsyncCalls, keys: Keys, name: str, definition: Definition, opened: range
) -> None:
    """Delete the logs that were created after another broker deleted the topic."""
    raw = await store.command("HGET", keys.topics(), name)
    now = None if raw is None else decode_definition(raw)
    kept = 0
    if now is not None and now.id == definition.id and now.state != DELETING:
        kept = max(now.partitions, now.planned)
    await _drop(store, keys, name, definition.id, opened[kept:])


async def _delete(
    store: AsyncCalls, keys: Keys, name: str, raw: bytes, definition: Definition
) -> None:
    partitions = max(definition.partitions, definition.planned)
    prefix = keys.partition(name, 0).stream.removesuffix("0")
    run = store.run_of(keys.topics())
    if await store.command("HGET", keys.topics(), name) != raw:
        return
    await store.until_durable(keys.topics(), run)
    logs = [keys.partition(name, number).log for number in range(partitions)]
    servers = {store.run_of(key): key for key in logs}
    await _drop(store, keys, name, definition.id, range(partitions))
    version: bytes | None = None
    while True:
        # A recreated topic of this name has new committed offsets, which must not be deleted.
        if await store.command("HGET", keys.topics(), name) != raw:
            return
        now, groups = await registered_groups(store, keys)
        if now == version:
            break
        version = now
        await _all(
            store,
            (
                keys.group(group).delete_topic_offsets(prefix=prefix, partitions=partitions)
                for group in groups
            ),
        )
    for run, key in servers.items():
        await store.until_durable(key, run)
    await store.run(
        keys.topic_delete_definition(topic=name, expected=raw, remote_id=definition.remote_id)
    )


async def registered_groups(store: AsyncCalls, keys: Keys) -> tuple[bytes, list[str]]:
    """Return the registry's version and the groups in it."""
    flat = await store.command("HGETALL", keys.groups())
    registry = dict(zip(flat[::2], flat[1::2], strict=True))
    version = registry.pop(VERSION_FIELD.encode(), b"")
    return version, [decode_group(group.decode()) for group in registry]


async def _drop(store: AsyncCalls, keys: Keys, name: str, topic_id: str, numbers: range) -> None:
    await _all(store, (keys.partition(name, number, topic_id).delete() for number in numbers))


async def _replace(store: AsyncCalls, keys: Keys, name: str, old: bytes, new: bytes) -> int:
    reply = await store.run(keys.topic_alter(topic=name, expected=old, definition=new))
    return int(reply.error)


async def _all(store: AsyncCalls, calls: Iterable[Call[Any]]) -> list[Any]:
    """Run all calls, AT_ONCE per pipeline; return the replies in order."""
    replies: list[Any] = []
    left = iter(calls)
    while some := list(islice(left, AT_ONCE)):
        replies += await store.run_many(some)
    return replies
