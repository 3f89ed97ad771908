"""Share groups in snapshots: their start offsets, without the records that are in delivery."""

from asyncio import gather
from collections.abc import Callable, Mapping, Sequence

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.log.unchanged import LOOKED_AT
from korvet.remote_log.recovery.scheduled import Pause
from korvet.remote_log.recovery.snapshot import ShareRow, TopicState
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore


async def capture_share_groups(
    store: AsyncStore,
    keys: Keys,
    names: Sequence[str],
    topics: Mapping[str, TopicState],
    pause: Pause,
) -> dict[str, list[ShareRow]]:
    """Return the start offsets of the share groups among groups of these encoded ids."""
    found = {}
    for some in chunks(names, LOOKED_AT):
        types = await gather(
            *(
                store.submit_command("HGET", keys.group(decode_group(name)).group, "type")
                for name in some
            )
        )
        for name, type in zip(some, types, strict=True):
            if type == b"share":
                found[name] = await _rows(store, keys, decode_group(name), topics, pause)
        await pause(len(some), 2 * len(names))
    return found


async def _rows(
    store: AsyncStore, keys: Keys, name: str, topics: Mapping[str, TopicState], pause: Pause
) -> list[ShareRow]:
    """Return the partitions that the group has read, of topics that exist."""
    flat = await store.command("HGETALL", keys.group(name).share_topics)
    rows: list[ShareRow] = []
    for topic, topic_id in zip(flat[::2], flat[1::2], strict=True):
        state = topics.get(topic.decode())
        if state is None or state.definition.id != topic_id.decode():
            continue
        for some in chunks(range(state.definition.partitions), LOOKED_AT):
            replies = await store.run_many(
                keys.partition(topic.decode(), number, state.definition.id).share_describe(
                    group=name, most=0
                )
                for number in some
            )
            rows += (
                (topic.decode(), number, reply.start, state.definition.id)
                for number, reply in zip(some, replies, strict=True)
                if not reply.error and reply.start >= 0
            )
            await pause(len(some), state.definition.partitions)
    return sorted(rows)


async def restore_share_group(
    store: AsyncStore,
    keys: Keys,
    name: str,
    rows: Sequence[ShareRow],
    offset_of: Callable[[str, int, int], int],
) -> ErrorCode:
    """Create the group without members, and move it to `offset_of` its start offsets."""
    await store.run(keys.group_register(group=name))
    topics = sorted({(topic, topic_id) for topic, _, _, topic_id in rows})
    reply = await store.run(keys.group(name).share_alter_topics(topics, creates=1, is_registered=1))
    if reply.error:
        return ErrorCode(reply.error)
    replies = await store.run_many(
        keys.partition(topic, number, topic_id).share_reset(
            group=name, offset=offset_of(topic, number, start)
        )
        for topic, number, start, topic_id in rows
    )
    return next((ErrorCode(each.error) for each in replies if each.error), ErrorCode.NONE)
