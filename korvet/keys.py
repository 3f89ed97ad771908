"""All Redis keys of Korvet; docs/keys.md has the table.

Rules
1. `korvet:<topic>:<p>` is the key of a partition's stream, without prefix or suffix.
2. Other keys of a partition or a group put that plain key in braces: Redis Cluster hashes only the
part inside the first braces, so a script on one partition or one group uses one slot.
3. A group id may hold any byte; bytes that could be taken for structure are percent-encoded.
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from korvet.bounded import ByteBounded

_PLAIN = "/+=@,;!*()'\" "
"""What stays as it is, as letters, digits and `._-~` do."""


def encode_group(group_id: str) -> str:
    """Percent-encode `%`, `{`, `}`, `:`, control bytes and non-ASCII bytes of a group id."""
    return quote_from_bytes(group_id.encode("utf-8", "surrogateescape"), _PLAIN)


def decode_group(encoded: str) -> str:
    """Return the group id that `encode_group` encoded."""
    return unquote_to_bytes(encoded).decode("utf-8", "surrogateescape")


_WRITE_NOTHING = 'redis.call("PERSIST", KEYS[1]) redis.call("SET", KEYS[1], "", "PX", 1) return 1'
"""Redis refuses SET at maxmemory, unless the script has begun with a write that adds nothing."""


def write_before_wait(key: str) -> tuple[str, str, int, str]:
    """Return a command that writes a string in the slot of `key`, and deletes it at once.

    WAIT and WAITAOF after it cover all that the server has written.
    """
    tag = key[1 : key.index("}")] if key.startswith("{") else key
    return "EVAL", _WRITE_NOTHING, 1, f"{{{tag}}}:replica_wait"


class Partition(msgspec.Struct, frozen=True):
    """The keys of one partition, all in one cluster slot. A field's name ends its key."""

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
    """stream: the compacted copy, while the log is being cleaned."""
    segments: str
    """sorted set: the segments of tiered storage by their first offset."""
    deleted_segments: str
    """sorted set: removed segments by the time from which to delete the object, ms."""
    share: str
    """hash: share group -> end of its state, epoch, counters; also the channel of its releases."""
    share_runs: str
    """sorted set: share groups' available and acquired records, as runs of offsets."""
    scheduled: str
    """sorted set: number of a scheduled record -> its due time, ms; of a delay 2^50 more."""
    scheduled_records: str
    """hash: number of a scheduled record -> its schedule id, and what to append."""
    scheduled_ids: str
    """hash: schedule id -> number of its scheduled record."""
    channel: str
    """pub/sub channel, not a key: notified at each append."""

    @property
    def appends(self) -> tuple[str, ...]:
        """Return the keys that an append takes."""
        return (self.stream, self.log, self.index, self.producers, self.open_txns)

    @property
    def all(self) -> tuple[str, ...]:
        """Return every key of the partition: those deleted with its topic."""
        return msgspec.structs.astuple(self)[:-1]


class Transaction(msgspec.Struct, frozen=True):
    """The keys of one transactional id, in one cluster slot."""

    transaction: str
    """hash: state, producer id, epoch, number of transactions, times."""
    participants: str
    """set: the partitions and groups of the open transaction."""


class Group(msgspec.Struct, frozen=True):
    """The keys of one group, all in one cluster slot. A field's name ends its key."""

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
    """hash: producer id -> its newest transaction; with a partition -> a pending commit."""
    consumer_members: str
    """hash: consumer, share or streams group: member id -> epoch, subscription, partitions."""
    target_assignment: str
    """hash: consumer, share or streams group: member id -> its target assignment."""
    partition_owners: str
    """hash: consumer group: partition (streams group: task) -> its owner and since which epoch."""
    share_topics: str
    """hash: share group (KIP-932): topic with state of the group in its partitions -> topic id."""

    @property
    def classic(self) -> tuple[str, ...]:
        """Return the keys of a classic group without its offsets, which many scripts take first."""
        return (
            self.group,
            self.members,
            self.clients,
            self.protocols,
            self.instances,
            self.assignments,
            self.deadlines,
        )

    @property
    def consumer(self) -> tuple[str, ...]:
        """Return the keys that the heartbeats of consumer and streams groups take."""
        return (
            self.group,
            self.consumer_members,
            self.target_assignment,
            self.partition_owners,
            self.instances,
            self.deadlines,
        )


class Keys:
    """The key names of one namespace. Immutable; partitions are cached, so a lookup is cheap."""

    __slots__ = ("_groups", "_partitions", "namespace")

    def __init__(self, namespace: str = "korvet") -> None:
        self.namespace = namespace
        self._partitions = ByteBounded[tuple[str, int], Partition]("partition keys", 128 << 20)
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

    def partition(self, topic: str, partition: int) -> Partition:
        """Return the keys of one partition."""
        known = self._partitions.get((topic, partition))
        if known is None:
            plain = f"{self.namespace}:{topic}:{partition}"
            tagged = f"{{{plain}}}"
            keys = {part: f"{tagged}:{part}" for part in Partition.__struct_fields__}
            made = Partition(**keys | {"stream": plain, "channel": plain})
            known = self._partitions.put((topic, partition), made)
        return known

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
