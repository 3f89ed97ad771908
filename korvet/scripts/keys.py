"""All Redis keys of Korvet; docs/keys.md has the table.

Rules
1. `korvet:<topic>:<p>` is the key of a partition's stream, without prefix or suffix.
2. Other keys of a partition or a group put that plain key in braces: Redis Cluster hashes only the
part inside the first braces, so a script on one partition or one group uses one slot.
3. A group id may hold any byte; bytes that could be taken for structure are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import getsizeof

import msgspec

from korvet.base.bounded import ByteBounded
from korvet.scripts.call import encode_group
from korvet.scripts.calls.group import GroupCalls
from korvet.scripts.calls.namespace import NamespaceCalls
from korvet.scripts.calls.partition import PartitionCalls
from korvet.scripts.calls.transaction import TransactionCalls

_WRITE_NOTHING = 'redis.call("PERSIST", KEYS[1]) redis.call("SET", KEYS[1], "", "PX", 1) return 1'
"""Redis refuses SET at maxmemory, unless the script has begun with a write that adds nothing."""


def write_before_wait(key: str) -> tuple[str, str, int, str]:
    """Return a command that writes a string in the slot of `key`, and deletes it at once.

    WAIT and WAITAOF after it cover all that the server has written.
    """
    tag = key[1 : key.index("}")] if key.startswith("{") else key
    return "EVAL", _WRITE_NOTHING, 1, f"{{{tag}}}:replica_wait"


CommittedOffset = tuple[str, int, int, int, str, str]
"""Topic, partition, offset, leader epoch, topic id and metadata."""
ADDRESS_FIELDS = ("topic", "number", "topic_id")
"""The fields of a partition that are no keys."""


class Partition(PartitionCalls, msgspec.Struct, frozen=True):
    """A partition: its keys, all in one cluster slot, and the calls on it.

    The name of a key's field ends the key.
    """

    topic: str
    number: int
    topic_id: str
    """The topic id that the calls expect, 32 hex digits; empty if it is not known."""
    stream: str
    """stream: the records."""
    log: str
    """hash: next offset, log start and the counters."""
    index: str
    """sorted set: sparse index, offset -> state below it."""
    producers: str
    """hash: producer id -> epoch, last five batches, transaction."""
    open_txns: str
    """sorted set: producer id -> log end when its open transaction began."""
    aborted_txns: str
    """sorted set: aborted transactions by the offset of their marker."""
    compacted: str
    """stream: the compacted copy, while the log is being cleaned or rebuilt."""
    segments: str
    """sorted set: the segments of tiered storage by their first offset."""
    deleted_segments: str
    """sorted set: removed segments by the time from which to delete the object, ms."""
    share: str
    """hash: share group -> end of its state, epoch, counters; also the channel of its releases."""
    share_runs: str
    """sorted set: share groups' available and acquired records, as runs of offsets."""
    share_lost: str
    """string: empty; written if a share group's member loses records, for WATCH."""
    scheduled: str
    """sorted set: number of a scheduled record -> its due time, ms; of a delay 2^50 more."""
    scheduled_records: str
    """hash: number of a scheduled record -> its schedule id, and what to append."""
    scheduled_ids: str
    """hash: schedule id -> number of its scheduled record."""
    dedupe: str
    """hash: id of a record -> its offset and the time of its append, ms, since the hash began."""
    dedupe_old: str
    """hash: the same of earlier records, which `dedupe` had before."""
    table: str
    """hash: record key -> value of its newest record, with table.enable."""
    table_newer: str
    """sorted set: record key -> offset of its newest record, while others are added to `table`.

    With table.offsets.enable it stays."""
    channel: str
    """pub/sub channel, not a key: notified at each append."""

    @property
    def appends(self) -> tuple[str, str, str, str, str]:
        """Return the keys that an append takes in the user's scripts, without dedupe and table."""
        return (self.stream, self.log, self.index, self.producers, self.open_txns)

    @property
    def all(self) -> tuple[str, ...]:
        """Return every key of the partition: those deleted with its topic."""
        return msgspec.structs.astuple(self)[len(ADDRESS_FIELDS) : -1]


class Transaction(TransactionCalls, msgspec.Struct, frozen=True):
    """A transactional id: its keys, in one cluster slot, and the calls on it."""

    transaction: str
    """hash: state, producer id, epoch, number of transactions, times."""
    participants: str
    """set: the partitions and groups of the open transaction."""


class Group(GroupCalls, msgspec.Struct, frozen=True):
    """A group: its keys, all in one cluster slot, and the calls on it.

    The name of a key's field ends the key.
    """

    group: str
    """hash: state, generation, protocol, counters, votes; also the channel of its changes."""
    members: str
    """hash: member id -> timeouts and flags."""
    clients: str
    """hash: member id -> client id, host, instance."""
    protocols: str
    """hash: member id -> protocols and metadata."""
    instances: str
    """hash: group instance id -> member id."""
    assignments: str
    """hash: member id -> assignment."""
    deadlines: str
    """sorted set: member id or phase -> deadline, ms."""
    offsets: str
    """hash: `korvet:<topic>:<p>` -> committed offset, leader epoch, times, topic id, metadata."""
    txn_offsets: str
    """hash: producer id -> its newest transaction, and how many pending commits that has."""
    txn_pending: str
    """hash: producer id and partition -> a pending commit; producer id and number -> partition."""
    consumer_members: str
    """hash: consumer, share or streams group: member id -> epoch, subscription, partitions."""
    target_assignment: str
    """hash: consumer, share or streams group: member id -> its target assignment."""
    partition_owners: str
    """hash: consumer group: partition (streams group: task) -> its owner and since which epoch."""
    share_topics: str
    """hash: share group (KIP-932): topic with state of the group in its partitions -> topic id."""


PART_BYTES = 32
"""Bytes of a part's name in a key of a partition, and of the reference to that key."""


class Keys(NamespaceCalls):
    """The key names of one namespace, and the calls on them.

    Immutable; partitions and groups are cached, so a lookup is cheap.
    """

    __slots__ = ("_groups", "_partitions", "namespace")

    def __init__(self, namespace: str = "korvet") -> None:
        self.namespace = namespace
        self._partitions = ByteBounded[tuple[str, int, str], Partition]("partition keys", 128 << 20)
        self._groups = ByteBounded[str, Group]("group keys", 16 << 20)

    def topics(self) -> str:
        """Name the hash: topic -> definition (JSON); field `:version` changes with each change."""
        return f"{self.namespace}:topics"

    def deleted_topics(self) -> str:
        """Name the sorted set: ids of deleted topics with segments by the time of deletion, ms."""
        return f"{{{self.namespace}:topics}}:deleted_topics"

    def topics_channel(self) -> str:
        """Name the channel: notified with the new version at each change of the topics hash."""
        return f"{self.namespace}:topics"

    def configs(self) -> str:
        """Name the hash: config resource -> dynamic configs (JSON); `:version` as for topics."""
        return f"{self.namespace}:configs"

    def configs_channel(self) -> str:
        """Name the channel: notified with the new version at each change of the configs hash."""
        return f"{self.namespace}:configs"

    def acls(self) -> str:
        """Name the hash: ACL rule (JSON) -> empty; `:version` as for topics."""
        return f"{self.namespace}:acls"

    def acls_channel(self) -> str:
        """Name the channel: notified with the new version at each change of the acls hash."""
        return f"{self.namespace}:acls"

    def users(self) -> str:
        """Name the hash: `<mechanism>:<user>` -> credential (JSON); `:version` as for topics."""
        return f"{self.namespace}:users"

    def groups(self) -> str:
        """Name the hash: encoded group id -> mark; field `:version` counts the changes."""
        return f"{self.namespace}:groups"

    def groups_due(self) -> str:
        """Name the sorted set: encoded group id -> time of its next tick, ms."""
        return f"{self.namespace}:groups:due"

    def schedule_channel(self) -> str:
        """Name the channel: the stream of a partition whose first scheduled record is new."""
        return f"{self.namespace}:schedule"

    def brokers(self) -> str:
        """Name the hash: node id -> end of its registration and address; field `:controller`."""
        return f"{self.namespace}:brokers"

    def brokers_channel(self) -> str:
        """Name the channel: notified when a broker registers or expires."""
        return f"{self.namespace}:brokers"

    def writer(self, writer_id: str) -> str:
        """Name the hash: Spark task -> producer id; topic id -> epoch:partitions:turn; commits."""
        return f"{self.namespace}:writer:{encode_group(writer_id)}"

    def quota(self, bucket: str) -> str:
        """Name the hash: tokens of a quota's bucket and their time."""
        return f"{self.namespace}:quota:{encode_group(bucket)}"

    def lag_history(self, shard: object) -> str:
        """Name the hash: minutes since 1970 -> the lag of a part of the groups; for a day."""
        return f"{{{self.namespace}:lag:{shard}}}:history"

    def cluster(self) -> str:
        """Name the hash: cluster id, leases and counters."""
        return f"{self.namespace}:cluster"

    def partition(self, topic: str, number: int, topic_id: str = "") -> Partition:
        """Return a partition; `topic_id` is the topic's as the caller knows it."""
        known = self._partitions.get((topic, number, topic_id))
        if known is None:
            plain = f"{self.namespace}:{topic}:{number}"
            tagged = f"{{{plain}}}"
            parts = Partition.__struct_fields__[len(ADDRESS_FIELDS) :]
            keys = {part: f"{tagged}:{part}" for part in parts} | {
                "stream": plain,
                "channel": plain,
            }
            known = Partition(topic, number, topic_id, **keys)
            size = len(keys) * (getsizeof(tagged) + PART_BYTES)
            self._partitions.put((topic, number, topic_id), known, size)
        return known

    def logs(self, topic: str, numbers: Iterable[int]) -> Iterator[tuple[str, str]]:
        """Yield the keys of partitions that topic.create and topic.add_partitions take."""
        for number in numbers:
            partition = self.partition(topic, number)
            yield partition.log, partition.stream

    def commit_rows(
        self, rows: Iterable[CommittedOffset]
    ) -> Iterator[tuple[str, int, int, str, str]]:
        """Yield the rows that group.commit and group.txn_commit take."""
        for topic, partition, offset, epoch, topic_id, metadata in rows:
            yield self.partition(topic, partition).stream, offset, epoch, topic_id, metadata

    def topic_parts(
        self, topic: str, partitions: int, groups: Iterable[str]
    ) -> tuple[list[str], list[str]]:
        """Return the keys and fields that topic.delete takes, with the commits of these groups."""
        deleted = [self.partition(topic, number) for number in range(partitions)]
        parts = [key for partition in deleted for key in partition.all]
        return [*parts, *map(self.group_offsets, groups)], [each.stream for each in deleted]

    def group_offsets(self, group_id: str) -> str:
        """Name the hash: `korvet:<topic>:<p>` -> committed offset, leader epoch, metadata, time."""
        return f"{self.namespace}:group:{encode_group(group_id)}:offsets"

    def group(self, group_id: str) -> Group:
        """Return the keys of one group."""
        known = self._groups.get(group_id)
        if known is None:
            offsets = self.group_offsets(group_id)
            tagged = f"{{{offsets}}}"
            keys = {part: f"{tagged}:{part}" for part in Group.__struct_fields__}
            known = self._groups.put(group_id, Group(**keys | {"offsets": offsets}))
        return known

    def transactions(self) -> str:
        """Name the sorted set: encoded transactional id -> time of its next check, ms."""
        return f"{self.namespace}:transactions"

    def transaction(self, transactional_id: str) -> Transaction:
        """Return the keys of one transactional id."""
        tagged = f"{{{self.namespace}:txn:{encode_group(transactional_id)}}}"
        return Transaction(f"{tagged}:state", f"{tagged}:participants")
