"""The configs of a topic, and the broker settings that give their defaults.

The rows are Korvet's own, all that the tools of Kafka 4.4 send, and some of older tools.
FROM_BROKER names the broker settings that give the default: the first that is set wins. Both of
`durability` count. A broker setting has the config's name, or that with `log.` or `log.cleaner.`
before it; _RENAMED has the others.
"""

from typing import Any

import msgspec

from korvet.config.broker_settings import BOTH, BROKER, LONGEST
from korvet.config.durability import DurabilityType
from korvet.config.setting import (
    Flag,
    Setting,
    Text,
    Whole,
    Words,
    accept,
    find_setting,
    long,
    table,
)

_FACTORS = {"hours": 3_600_000, "minutes": 60_000}
MAX_DELAY_MS = 100 * 366 * 24 * _FACTORS["hours"]
"""Max time until a scheduled record is due: Lua's numbers are exact there."""


class FromBroker(msgspec.Struct, frozen=True):
    """A broker setting that gives a topic config's default; `factor` converts the units."""

    name: str
    factor: int = 1

    def convert(self, text: str) -> str:
        number = int(text) if self.factor != 1 else 0
        return str(number * self.factor) if number > 0 else text


_RENAMED = {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "flush.messages": ("log.flush.interval.messages",),
    "max.message.bytes": ("message.max.bytes",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "durability": ("acks.all.fsync", "acks.all.wait.replicas"),
}


def _from_broker(name: str) -> tuple[FromBroker, ...]:
    """Return the broker settings that give a topic config's default."""
    same = [each for each in (name, f"log.{name}", f"log.cleaner.{name}") if each in BROKER]
    names = _RENAMED.get(name, same)
    return tuple(FromBroker(each, _FACTORS.get(each.rpartition(".")[2], 1)) for each in names)


def _as_broker(name: str, **changes: Any) -> Setting:
    """Return the row of a config that is the broker's setting, except for changes."""
    return msgspec.structs.replace(BROKER[_from_broker(name)[0].name], name=name, **changes)


_EFFECTIVE = (
    _as_broker("storage.format", immutable=True),
    _as_broker("offset.mode", immutable=True),
    _as_broker("offset.bits", immutable=True),
    _as_broker("storage.compression"),
    Setting("retention.ms", long(-1), "604800000",
        "How long records are kept, in milliseconds; -1 is no limit."),
    _as_broker("retention.bytes"),
    _as_broker("cleanup.policy"),
    _as_broker("max.message.bytes", sentence=
        "The largest record batch the topic takes, compressed as sent."),
    _as_broker("max.decompressed.message.bytes"),
    _as_broker("records.validation"),
    _as_broker("message.timestamp.type"),
    _as_broker("message.timestamp.before.max.ms"),
    _as_broker("message.timestamp.after.max.ms"),
    _as_broker("compression.type"),
    Setting("durability", DurabilityType(), "memory",
        "What acks=-1 waits for: `memory` is Redis's reply; `fsync` its append-only file on disk; "
        "`replicas:N` N of its replicas; `fsync+replicas:N` both. Refused if Redis cannot do it."),
    _as_broker("min.insync.replicas"),
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
    _as_broker("delete.retention.ms"),
    _as_broker("min.compaction.lag.ms"),
    _as_broker("min.cleanable.dirty.ratio"),
)  # fmt: skip

_REMOTE = (
    Setting("retention.consumed", Words(), "",
        "Groups, or *: records leave Redis once all of them have committed, if they are copied."),
    Setting("retention.consumed.delete", Flag(), "false",
        "Whether records that all groups of retention.consumed have committed are deleted."),
    Setting("retention.consumed.max.ms", long(-1), "-1",
        "Age in ms from which a record is no longer held for retention.consumed; -1 is no limit."),
    _as_broker("remote.storage.enable", sentence=
        "Whether records are copied to the remote store, and read from there once they left "
        "Redis."),
    _as_broker("local.retention.ms", sentence=
        "How long copied records stay in Redis, in milliseconds; -2 is as long as retention.ms."),
    _as_broker("local.retention.bytes", sentence=
        "How many bytes of copied records stay in Redis; -2 is as many as retention.bytes."),
    Setting("remote.log.copy.disable", Flag(), "false",
        "Whether no further records are copied; those that are copied stay readable."),
    Setting("remote.log.delete.on.disable", Flag(), "false",
        "Whether segments are deleted when the topic stops to be tiered; without it a topic that "
        "has segments stays tiered."),
    _as_broker("remote.copy.lag.ms", sentence=
        "Age in ms of its newest record at which a segment may be copied; 0 is at once, -1 is as "
        "long as local.retention.ms. It is also copied if remote.copy.lag.bytes permits it."),
    _as_broker("remote.copy.lag.bytes", sentence=
        "Bytes of later records at which a segment may be copied; 0 is at once, -1 is as many as "
        "local.retention.bytes. It is also copied if remote.copy.lag.ms permits it."),
    Setting("segment.bytes", Whole(14), "1073741824",
        "Bytes of a segment of the remote store, at most 33554432."),
    Setting("segment.ms", long(1), "604800000",
        "Age of a record, in milliseconds, after which a segment with fewer bytes is copied."),
    _as_broker("file.delete.delay.ms", sentence=
        "Time between removal of a segment from the log and of its object, in milliseconds."),
)  # fmt: skip

_ACCEPTED = (
    *BOTH,
    _as_broker("max.compaction.lag.ms"),
    accept("segment.jitter.ms", long(0), "0"),
    _as_broker("segment.index.bytes"),
    _as_broker("index.interval.bytes"),
    _as_broker("flush.messages"),
    accept("flush.ms", long(0), LONGEST),
    _as_broker("preallocate"),
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

FROM_BROKER = {name: _from_broker(name) for name in TOPIC}


def topic_setting(name: str) -> Setting:
    """Return the topic config of that name, or raise a ConfigError with the nearest name."""
    return find_setting(TOPIC, name, "topic config")
