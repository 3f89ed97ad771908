"""The configs of a topic, and the broker settings that give their defaults.

The rows are Korvet's own, all that the tools of Kafka 4.4 send, and some of older tools.
FROM_BROKER names the broker settings that give the default: the first that is set wins.
"""

import msgspec

from korvet.config.accepted import ACCEPTED_TOPIC
from korvet.config.broker_settings import AT_REST, BROKER, CODECS
from korvet.config.remote_settings import TOPIC_ROWS as REMOTE
from korvet.config.setting import (
    LONG_MAX,
    LONGEST_ARRAY,
    Decimal,
    Flag,
    OneOf,
    Setting,
    SomeOf,
    Whole,
    find_setting,
    long,
    table,
)

_LONGEST = str(LONG_MAX)
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
    Setting("message.timestamp.before.max.ms", long(0), _LONGEST,
        BROKER["log.message.timestamp.before.max.ms"].sentence),
    Setting("message.timestamp.after.max.ms", long(0), "3600000",
        BROKER["log.message.timestamp.after.max.ms"].sentence),
    Setting("compression.type", OneOf(CODECS), "none", BROKER["compression.type"].sentence),
    Setting("delivery.schedule.enable", Flag(), "false",
        "Whether records with the header korvet-deliver-at or korvet-delay-ms are appended when "
        "they are due; not with offset.mode=bytes."),
    Setting("delivery.schedule.max.records", long(0), "1000000",
        "Max records of a partition that wait until they are due."),
    Setting("delivery.schedule.max.bytes", long(0), "268435456",
        "Max bytes of a partition's records that wait until they are due."),
    Setting("delivery.schedule.max.delay.ms", Whole(0, MAX_DELAY_MS), "31536000000",
        "Max time until a record is due, in milliseconds."),
    Setting("errors.deadletterqueue.group.enable", Flag(), "false",
        "Whether share groups may use the topic as their dead letter queue."),
    Setting("delete.retention.ms", long(0), "86400000",
        BROKER["log.cleaner.delete.retention.ms"].sentence),
    Setting("min.compaction.lag.ms", long(0), "0",
        BROKER["log.cleaner.min.compaction.lag.ms"].sentence),
    Setting("min.cleanable.dirty.ratio", Decimal(0, 1), "0.5",
        BROKER["log.cleaner.min.cleanable.ratio"].sentence),
)  # fmt: skip

TOPIC = table(_EFFECTIVE + REMOTE + ACCEPTED_TOPIC)
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
