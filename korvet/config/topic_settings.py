"""The configs of a topic, and the broker settings that give their defaults.

The rows are Korvet's own, all that the tools of Kafka 4.4 send, and some of older tools.
FROM_BROKER names the broker settings that give the default: the first that is set wins. Both of
`durability` count.
"""

import msgspec

from korvet.config.broker_settings import AT_REST, BOTH, BROKER, CODECS, LONGEST
from korvet.config.durability import DurabilityType
from korvet.config.setting import (
    LONGEST_ARRAY,
    Decimal,
    Flag,
    OneOf,
    Setting,
    SomeOf,
    Text,
    Whole,
    Words,
    accept,
    find_setting,
    long,
    table,
)

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
MAX_DELAY_MS = 100 * 366 * 24 * _HOUR_MS
"""Max time until a scheduled record is due: Lua's numbers are exact there."""


class FromBroker(msgspec.Struct, frozen=True):
    """A broker setting that gives a topic config's default; `factor` converts the units."""

    name: str
    factor: int = 1

    def convert(self, text: str) -> str:
        number = int(text) if self.factor != 1 else 0
        return str(number * self.factor) if number > 0 else text


def _fixed(name: str) -> Setting:
    """Return the broker's row of a config that cannot change once the topic exists."""
    return msgspec.structs.replace(BROKER[name], immutable=True)


_EFFECTIVE = (
    _fixed("storage.format"),
    _fixed("offset.mode"),
    _fixed("offset.bits"),
    Setting("storage.compression", OneOf(AT_REST), "lz4", BROKER["storage.compression"].sentence),
    Setting("retention.ms", long(-1), "604800000",
        "How long records are kept, in milliseconds; -1 is no limit."),
    Setting("retention.bytes", long(-1), "-1",
        "How many bytes of records a partition keeps; -1 is no limit."),
    Setting("cleanup.policy", SomeOf(("delete", "compact"), may_be_empty=True), "delete",
        BROKER["log.cleanup.policy"].sentence),
    Setting("max.message.bytes", Whole(0), "1048588",
        "The largest record batch the topic takes, compressed as sent."),
    Setting("max.decompressed.message.bytes", Whole(1, LONGEST_ARRAY), str(LONGEST_ARRAY),
        BROKER["max.decompressed.message.bytes"].sentence),
    Setting("records.validation", OneOf(("full", "header")), "full",
        BROKER["records.validation"].sentence),
    Setting("message.timestamp.type", OneOf(("CreateTime", "LogAppendTime")), "CreateTime",
        BROKER["log.message.timestamp.type"].sentence),
    Setting("message.timestamp.before.max.ms", long(0), LONGEST,
        BROKER["log.message.timestamp.before.max.ms"].sentence),
    Setting("message.timestamp.after.max.ms", long(0), "3600000",
        BROKER["log.message.timestamp.after.max.ms"].sentence),
    Setting("compression.type", OneOf(CODECS), "none", BROKER["compression.type"].sentence),
    Setting("durability", DurabilityType(), "memory",
        "What acks=-1 waits for: `memory` is Redis's reply; `fsync` its append-only file on disk; "
        "`replicas:N` N of its replicas; `fsync+replicas:N` both. Refused if Redis cannot do it."),
    Setting("min.insync.replicas", Whole(1), "1", BROKER["min.insync.replicas"].sentence),
    Setting("delivery.schedule.enable", Flag(), "false",
        "Whether records with the header korvet-deliver-at or korvet-delay-ms are appended when "
        "they are due; not with offset.mode=bytes."),
    Setting("delivery.schedule.max.records", long(0), "1000000",
        "Max records of a partition that wait until they are due."),
    Setting("delivery.schedule.max.bytes", long(0), "268435456",
        "Max bytes of a partition's records that wait until they are due."),
    Setting("delivery.schedule.max.delay.ms", Whole(0, MAX_DELAY_MS), "31536000000",
        "Max time until a record is due, in milliseconds."),
    Setting("dedupe.window.ms", Whole(0, MAX_DELAY_MS), "0",
        "How long a partition does not store a second record with the same korvet-dedupe-id, in "
        "milliseconds; 0 is not at all. Only with storage.format=record."),
    Setting("dedupe.max.ids", Whole(1, 10_000_000), "1000000",
        "How many ids of its last records a partition knows for dedupe.window.ms; memory is held "
        "for at most twice as many."),
    Setting("table.enable", Flag(), "false",
        "Whether each partition has a hash with the newest value of each key. Only with "
        "storage.format=record; values are not compressed at rest then."),
    Setting("table.offsets.enable", Flag(), "false",
        "Whether the table has the offset of each value too, for appends with "
        "korvet-expected-offset. Only with table.enable."),
    Setting("errors.deadletterqueue.group.enable", Flag(), "false",
        "Whether share groups may use the topic as their dead letter queue."),
    Setting("delete.retention.ms", long(0), "86400000",
        BROKER["log.cleaner.delete.retention.ms"].sentence),
    Setting("min.compaction.lag.ms", long(0), "0",
        BROKER["log.cleaner.min.compaction.lag.ms"].sentence),
    Setting("min.cleanable.dirty.ratio", Decimal(0, 1), "0.5",
        BROKER["log.cleaner.min.cleanable.ratio"].sentence),
)  # fmt: skip

_REMOTE = (
    Setting("retention.consumed", Words(), "",
        "Groups, or *: records leave Redis once all of them have committed, if they are copied."),
    Setting("retention.consumed.delete", Flag(), "false",
        "Whether records that all groups of retention.consumed have committed are deleted."),
    Setting("retention.consumed.max.ms", long(-1), "-1",
        "Age in ms from which a record is no longer held for retention.consumed; -1 is no limit."),
    Setting("remote.storage.enable", Flag(), "false",
        "Whether records are copied to the remote store, and read from there once they left "
        "Redis."),
    Setting("local.retention.ms", long(-2), "-2",
        "How long copied records stay in Redis, in milliseconds; -2 is as long as retention.ms."),
    Setting("local.retention.bytes", long(-2), "-2",
        "How many bytes of copied records stay in Redis; -2 is as many as retention.bytes."),
    Setting("remote.log.copy.disable", Flag(), "false",
        "Whether no further records are copied; those that are copied stay readable."),
    Setting("remote.log.delete.on.disable", Flag(), "false",
        "Whether segments are deleted when the topic stops to be tiered; without it a topic that "
        "has segments stays tiered."),
    Setting("remote.copy.lag.ms", long(-1), "0",
        "Age in ms of its newest record at which a segment may be copied; 0 is at once, -1 is as "
        "long as local.retention.ms. It is also copied if remote.copy.lag.bytes permits it."),
    Setting("remote.copy.lag.bytes", long(-1), "-1",
        "Bytes of later records at which a segment may be copied; 0 is at once, -1 is as many as "
        "local.retention.bytes. It is also copied if remote.copy.lag.ms permits it."),
    Setting("segment.bytes", Whole(14), "1073741824",
        "Bytes of a segment of the remote store, at most 33554432."),
    Setting("segment.ms", long(1), "604800000",
        "Age of a record, in milliseconds, after which a segment with fewer bytes is copied."),
    Setting("file.delete.delay.ms", long(0), "60000",
        "Time between removal of a segment from the log and of its object, in milliseconds."),
)  # fmt: skip

_ACCEPTED = (
    *BOTH,
    accept("max.compaction.lag.ms", long(1), LONGEST),
    accept("segment.jitter.ms", long(0), "0"),
    accept("segment.index.bytes", Whole(4), "10485760"),
    accept("index.interval.bytes", Whole(0), "4096"),
    accept("flush.messages", long(1), LONGEST),
    accept("flush.ms", long(0), LONGEST),
    accept("preallocate", Flag(), "false"),
    accept("leader.replication.throttled.replicas", Words(), ""),
    accept("follower.replication.throttled.replicas", Words(), ""),
    # Removed in Kafka 4, still sent by tools of Kafka 2 and 3.
    accept("message.timestamp.difference.max.ms", long(0), LONGEST),
    accept("message.downconversion.enable", Flag(), "true"),
    accept("message.format.version", Text(40), "3.0-IV1"),
)  # fmt: skip

TOPIC = table(_EFFECTIVE + _REMOTE + _ACCEPTED)
EXPLICIT_ONLY = ("dedupe.window.ms", "dedupe.max.ids", "table.enable", "table.offsets.enable")
"""Configs that the topic's logs have too: they have no default of a pattern."""
IMMUTABLE = frozenset(name for name, setting in TOPIC.items() if setting.immutable)

_RENAMED: dict[str, tuple[FromBroker, ...]] = {
    "retention.ms": (
        FromBroker("log.retention.ms"),
        FromBroker("log.retention.minutes", _MINUTE_MS),
        FromBroker("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (FromBroker("log.roll.ms"), FromBroker("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (
        FromBroker("log.roll.jitter.ms"),
        FromBroker("log.roll.jitter.hours", _HOUR_MS),
    ),
    "flush.ms": (
        FromBroker("log.flush.interval.ms"),
        FromBroker("log.flush.scheduler.interval.ms"),
    ),
    "flush.messages": (FromBroker("log.flush.interval.messages"),),
    "retention.bytes": (FromBroker("log.retention.bytes"),),
    "max.message.bytes": (FromBroker("message.max.bytes"),),
    "message.timestamp.type": (FromBroker("log.message.timestamp.type"),),
    "message.timestamp.before.max.ms": (FromBroker("log.message.timestamp.before.max.ms"),),
    "message.timestamp.after.max.ms": (FromBroker("log.message.timestamp.after.max.ms"),),
    "cleanup.policy": (FromBroker("log.cleanup.policy"),),
    "delete.retention.ms": (FromBroker("log.cleaner.delete.retention.ms"),),
    "min.compaction.lag.ms": (FromBroker("log.cleaner.min.compaction.lag.ms"),),
    "max.compaction.lag.ms": (FromBroker("log.cleaner.max.compaction.lag.ms"),),
    "min.cleanable.dirty.ratio": (FromBroker("log.cleaner.min.cleanable.ratio"),),
    "segment.bytes": (FromBroker("log.segment.bytes"),),
    "segment.index.bytes": (FromBroker("log.index.size.max.bytes"),),
    "index.interval.bytes": (FromBroker("log.index.interval.bytes"),),
    "file.delete.delay.ms": (FromBroker("log.segment.delete.delay.ms"),),
    "preallocate": (FromBroker("log.preallocate"),),
    "durability": (FromBroker("acks.all.fsync"), FromBroker("acks.all.wait.replicas")),
    "remote.storage.enable": (FromBroker("log.remote.storage.enable"),),
    "remote.copy.lag.ms": (FromBroker("log.remote.copy.lag.ms"),),
    "remote.copy.lag.bytes": (FromBroker("log.remote.copy.lag.bytes"),),
    "local.retention.ms": (FromBroker("log.local.retention.ms"),),
    "local.retention.bytes": (FromBroker("log.local.retention.bytes"),),
}
FROM_BROKER: dict[str, tuple[FromBroker, ...]] = {
    name: _RENAMED.get(name, (FromBroker(name),) if name in BROKER else ()) for name in TOPIC
}


def topic_setting(name: str) -> Setting:
    """Return the topic config of that name, or raise a ConfigError with the nearest name."""
    return find_setting(TOPIC, name, "topic config")
