"""Complete a transaction that is prepared to commit or abort: write markers, store group offsets.

Rules
- A prepared end can only be completed. Steps: a marker in each partition, the offsets of each
  group, then `transaction.complete`. On other servers than the id's these are durable by then.
- A partition that Redis has set back may have an earlier transaction of the producer open: there
  both are aborted.
- Any broker may repeat any step. A repetition changes nothing: the transaction's number separates
  it from the producer's next transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import TypeVar

import msgspec

from korvet.base import logfmt
from korvet.base.errors import TOPIC_GONE, ErrorCode
from korvet.groups.offset_commit import Row, parse_commit, parse_field
from korvet.log.tables import fill, is_of_partition
from korvet.scripts.call import Call, Reply
from korvet.scripts.calls.partition import WriteTxnMarkerReply
from korvet.scripts.calls.transaction import EndReply, ExpireReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError
from korvet.topics.node import Node
from korvet.topics.table import Topic, TopicTable
from korvet.transactions.members import member_names, parse_partition_member
from korvet.wire import control_records

R = TypeVar("R", bound=Reply)
log = logfmt.get("transactions")
OnCommit = Callable[[str, list[Row]], Awaitable[None]]


class PreparedEnd(msgspec.Struct, frozen=True):
    """A transaction in PrepareCommit or PrepareAbort, with the members to write to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int
    committed: bool
    members: tuple[str, ...]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Topic and number of each partition in the transaction."""
        return [parse_partition_member(name) for name in self.members if name.startswith("p:")]

    @property
    def topics(self) -> set[str]:
        """The topics of these partitions."""
        return {topic for topic, _ in self.partitions}

    @property
    def groups(self) -> list[str]:
        """The groups with offsets in the transaction."""
        return [member[2:] for member in self.members if member.startswith("g:")]


def prepared_end(
    transactional_id: str, reply: EndReply | ExpireReply, committed: bool
) -> PreparedEnd:
    """Return the prepared end that a script replied."""
    return PreparedEnd(
        transactional_id,
        reply.marker_id,
        reply.marker_epoch,
        reply.transaction,
        committed,
        tuple(member_names(reply.members)),
    )


async def complete(node: Node, end: PreparedEnd, on_commit: OnCommit) -> None:
    """Write every marker and group offset of a prepared end, then complete it."""
    store, keys, topics = node.store, node.keys, node.topics
    servers = _other_servers(store, keys, end)
    for _ in range(2):
        written = _write_markers(store, end, await _find_topics(topics, end))
        replies = await asyncio.gather(*written)
        if any(reply.error == ErrorCode.INVALID_TXN_STATE for reply in replies):
            log.warning(
                "transaction aborted where an earlier one has no end", id=end.transactional_id
            )
            # Where it is committed already, this changes nothing.
            aborted = msgspec.structs.replace(end, committed=False)
            written = _write_markers(store, aborted, await _find_topics(topics, end))
            replies = await asyncio.gather(*written)
        if not any(reply.error in TOPIC_GONE for reply in replies):
            break
        # The topic was deleted or created again since it was cached: then it has nothing open.
        topics.invalidate()
    await _fill_tables(store, end, await _find_topics(topics, end))
    await asyncio.gather(
        *(_complete_group(store, keys, end, group_id, on_commit) for group_id in end.groups)
    )
    await asyncio.gather(
        *(store.until_durable(key, run, end.topics) for run, key in servers.items())
    )
    await store.run(keys.transaction(end.transactional_id).complete(transaction=end.transaction))


def _other_servers(store: AsyncStore, keys: Keys, end: PreparedEnd) -> dict[str, str]:
    """Return the runs of the members' servers except that of the id, each with a member's key.

    On the id's server a failover cannot lose a marker and keep what was written after it.
    """
    members = [keys.partition(*partition).stream for partition in end.partitions]
    members += [keys.group(group_id).group for group_id in end.groups]
    servers = {store.run_of(key): key for key in members}
    servers.pop(store.run_of(keys.transaction(end.transactional_id).transaction), None)
    return servers


async def _complete_group(
    store: AsyncStore, keys: Keys, end: PreparedEnd, group_id: str, on_commit: OnCommit
) -> None:
    call = keys.group(group_id).txn_complete(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction=end.transaction,
        committed=int(end.committed),
    )
    more = 1
    while more:
        reply = await store.run(call)
        more = reply.more
        if reply.committed:
            await on_commit(group_id, _parse_commits(reply.committed))


def _parse_commits(flat: Sequence[bytes]) -> list[Row]:
    """Parse stream keys and commits into rows."""
    rows: list[Row] = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        partition, commit = parse_field(field), parse_commit(raw)
        if partition is not None and commit is not None:
            rows.append((*partition, commit.offset, commit.epoch, commit.topic_id, commit.metadata))
    return rows


async def _find_topics(topics: TopicTable, end: PreparedEnd) -> dict[str, Topic]:
    """Return the topics in the transaction, none with fewer partitions than take part."""
    found = await _get_topics(topics, end)
    if any(name in found and number >= found[name].partitions for name, number in end.partitions):
        # Partitions were added since this broker cached the topic; another broker writes to them.
        topics.invalidate()
        found = await _get_topics(topics, end)
    return found


async def _get_topics(topics: TopicTable, end: PreparedEnd) -> dict[str, Topic]:
    names = {topic for topic, _ in end.partitions}
    found = {name: await topics.get(name) for name in names}
    return {name: topic for name, topic in found.items() if topic is not None}


async def _fill_tables(store: AsyncStore, end: PreparedEnd, topics: dict[str, Topic]) -> None:
    """Add the records of the ended transaction to the tables, before its client has the response.

    What an error leaves out, a broker's background task adds.
    """
    for name, number in end.partitions:
        if name in topics and topics[name].policy.table_enable:
            try:
                await fill(store, topics[name].partition(number))
            except StoreError as error:
                if not is_of_partition(error):
                    raise


def _write_markers(
    store: AsyncStore, end: PreparedEnd, topics: dict[str, Topic]
) -> Sequence[asyncio.Future[WriteTxnMarkerReply]]:
    now_ms = int(time() * 1000)
    return [
        store.submit(_marker_call(topics[name], number, end, now_ms))
        for name, number in end.partitions
        if name in topics and number < topics[name].partitions
    ]


def _marker_call(
    topic: Topic, partition: int, end: PreparedEnd, now_ms: int
) -> Call[WriteTxnMarkerReply]:
    fields = control_records.entry_of(
        now_ms, end.producer_id, end.producer_epoch, end.committed, is_batch=topic.is_batch
    )
    return topic.partition(partition).write_txn_marker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction=end.transaction,
        committed=int(end.committed),
        size=sum(map(len, fields)),
        fields=fields,
    )
