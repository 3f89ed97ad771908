"""Entries that other programs added: count them, and find those that no client reads.

`adopt` counts, for retention, copies and figures. `find` is for findings:
- It reads the state of each partition, in one round; then it counts in those whose log has entries
  at other than natural ids: no other log has entries without an offset.
- That an entry is too large for clients follows from the counters, if it is larger than any append:
  they have the largest size only, and keep it.
"""

from collections.abc import Iterable, Mapping, Sequence

from korvet.config.topic_policy import TopicPolicy
from korvet.log.entries_query import MAX_RECORD_BYTES
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import DropUnnumberedReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import all_of
from korvet.store.calls import AsyncCalls
from korvet.topics.table import Topic

TopicIdPartition = tuple[str, str, int]
"""Name and id of a topic, and a partition."""
State = Sequence[bytes | None]


async def find(
    store: AsyncCalls, keys: Keys, places: Mapping[TopicIdPartition, TopicPolicy]
) -> tuple[list[str], list[str]]:
    """Return the sentences of partitions that refuse appends, and of those with unread entries."""
    asked = [store.submit_command(*_state_command(keys, each)) for each in places]
    states = await all_of(asked)
    calls = _count_calls(keys, places, states)
    replies = await store.run_many(calls.values())
    unread = _without_offset(calls, replies) + _too_large(places, states)
    return _without_ids(calls, replies), unread


def _state_command(keys: Keys, partition: TopicIdPartition) -> tuple[str, ...]:
    """Return the command that reads the partition's state."""
    name, _, number = partition
    fields = ("shifts", "largest_append", "bytes", "start_bytes")
    return "HMGET", keys.partition(name, number).log, *fields


def _count_calls(
    keys: Keys, places: Iterable[TopicIdPartition], states: Iterable[State]
) -> dict[TopicIdPartition, Call[DropUnnumberedReply]]:
    """Return the calls that count entries without an offset, of partitions that may have any."""
    return {
        (name, topic_id, number): keys.partition(name, number, topic_id).drop_unnumbered(
            after=b"", delete=0
        )
        for (name, topic_id, number), state in zip(places, states, strict=True)
        if state[0]
    }


def _without_offset(
    places: Iterable[TopicIdPartition], replies: Iterable[DropUnnumberedReply]
) -> list[str]:
    """Return a sentence for each partition with entries that have no offset."""
    return [
        f"{reply.entries}{' or more' * bool(reply.last)} entries of {name}-{number} have ids that "
        f"can have no offset, so no client reads them: `korvet topics repair {name} --yes` "
        "deletes them, and the program that adds them should let Redis choose ids (XADD *)"
        for (name, _, number), reply in zip(places, replies, strict=True)
        if reply.entries
    ]


def _without_ids(
    places: Iterable[TopicIdPartition], replies: Iterable[DropUnnumberedReply]
) -> list[str]:
    """Return a sentence for each partition that refuses appends: it has no ids left."""
    return [
        f"nothing can be appended to {name}-{number}: another program used an id above which none "
        f"can have an offset. `korvet topics repair {name} --yes` copies the stream without it"
        for (name, _, number), reply in zip(places, replies, strict=True)
        if reply.spent
    ]


def _too_large(
    places: Mapping[TopicIdPartition, TopicPolicy], states: Iterable[State]
) -> list[str]:
    """Return a sentence for each partition that may have an entry too large for clients."""
    found = []
    for ((name, _, number), policy), state in zip(places.items(), states, strict=True):
        largest, total, removed = (int(text or 0) for text in state[1:])
        # An append has at most that many bytes opened, and the names of fields.
        appended = 2 * policy.max_opened_bytes
        if largest > max(MAX_RECORD_BYTES, appended) and largest <= total - removed:
            found.append(
                f"another program added an entry of {largest} bytes to {name}-{number}: clients "
                "could not take it, so reads skip it. `XDEL` it, or raise max.message.bytes above "
                "its size; the broker's log has its id. Once deleted, it is named until retention "
                "removes the records around it"
            )
    return found


MOST_CALLS = 200
"""Calls of one adoption: a later one counts what is left of a large backlog."""


async def adopt(store: AsyncCalls, topic: Topic, partition: int) -> None:
    """Count the partition's foreign entries, each call a bounded number of them."""
    for _ in range(MOST_CALLS):
        reply = await store.run(topic.partition(partition).adopt())
        if not reply.more:
            return
