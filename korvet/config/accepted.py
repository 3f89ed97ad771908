"""Settings without effect here: Kafka's tools send them, so they are accepted and shown.

A row is Kafka's name, type and default. A sentence is given if something else has the effect.
"""

from korvet.config.setting import (
    LONG_MAX,
    Decimal,
    Flag,
    Levels,
    OneOf,
    Setting,
    SomeOf,
    Text,
    Type,
    Whole,
    Words,
    long,
)

_LONGEST = str(LONG_MAX)
_FASTEST = "1.7976931348623157E308"
_POSITIVE = Decimal(0, float("inf"))
_INTERNAL = "Belongs to the inside of Kafka's brokers."


def _accept(
    name: str, type_: Type, default: str | None, sentence: str = _INTERNAL, *, dynamic: bool = True
) -> Setting:
    return Setting(name, type_, default, sentence, dynamic=dynamic, effect=False)


_BOTH = (
    _accept("compression.gzip.level", Levels(1, 9), "-1"),
    _accept("compression.lz4.level", Whole(1, 17), "9"),
    _accept("compression.zstd.level", Whole(-131072, 22), "3"),
    _accept("min.insync.replicas", Whole(1), "1",
        "In-sync replicas in Kafka; here acks.all.wait.replicas sets what acks=-1 waits for."),
    _accept("unclean.leader.election.enable", Flag(), "false"),
)  # fmt: skip

ACCEPTED_BROKER = (
    *_BOTH,
    _accept("default.replication.factor", Whole(1, 32_767), "1",
        "Any factor is accepted; 1 is reported, which tools that compare will see. Redis does the "
        "replication."),
    _accept("log.cleaner.max.compaction.lag.ms", long(1), _LONGEST),
    _accept("log.segment.bytes", Whole(1048576), "1073741824"),
    _accept("log.roll.ms", long(1), None),
    _accept("log.roll.hours", Whole(1), "168"),
    _accept("log.roll.jitter.ms", long(0), None),
    _accept("log.roll.jitter.hours", Whole(0), "0"),
    _accept("log.index.size.max.bytes", Whole(4), "10485760"),
    _accept("log.index.interval.bytes", Whole(0), "4096"),
    _accept("log.flush.interval.messages", long(1), _LONGEST),
    _accept("log.flush.interval.ms", long(0), None),
    _accept("log.flush.scheduler.interval.ms", long(0), _LONGEST),
    _accept("log.segment.delete.delay.ms", long(0), "60000"),
    _accept("log.preallocate", Flag(), "false"),
    _accept("log.local.retention.ms", long(-2), "-2"),
    _accept("log.local.retention.bytes", long(-2), "-2"),
    # kafka-reassign-partitions --throttle sets and removes these.
    _accept("leader.replication.throttled.rate", long(0), _LONGEST),
    _accept("follower.replication.throttled.rate", long(0), _LONGEST),
    _accept("replica.alter.log.dirs.io.max.bytes.per.second", long(0), _LONGEST),
    _accept("background.threads", Whole(1), "10"),
    _accept("num.io.threads", Whole(1), "8"),
    _accept("num.network.threads", Whole(1), "3"),
    _accept("num.recovery.threads.per.data.dir", Whole(1), "2"),
    _accept("num.replica.fetchers", Whole(1), "1"),
    _accept("log.cleaner.threads", Whole(0), "1"),
    _accept("log.cleaner.io.buffer.size", Whole(0), "524288"),
    _accept("log.cleaner.dedupe.buffer.size", long(0), "134217728"),
    _accept("log.cleaner.io.buffer.load.factor", _POSITIVE, "0.9"),
    _accept("log.cleaner.io.max.bytes.per.second", _POSITIVE, _FASTEST),
    _accept("sasl.kerberos.min.time.before.relogin", long(0), "60000"),
    _accept("sasl.kerberos.ticket.renew.jitter", Decimal(0, 1), "0.05"),
    _accept("sasl.kerberos.ticket.renew.window.factor", Decimal(0, 1), "0.8"),
    _accept("max.incremental.fetch.session.cache.slots", Whole(0), "1000",
        "Fetch sessions; there are none here, every Fetch lists its partitions.", dynamic=False),
    _accept("offsets.retention.check.interval.ms", long(1), "600000", dynamic=False),
    _accept(
        "group.coordinator.rebalance.protocols",
        SomeOf(("classic", "consumer", "share", "streams")),
        "classic,consumer,share,streams",
        "Group protocols served: always all of them.",
        dynamic=False,
    ),
    _accept("group.consumer.assignors", SomeOf(("uniform", "range")), "uniform,range",
        "Server-side assignors; the first is the default.", dynamic=False),
    _accept(
        "group.consumer.migration.policy",
        OneOf(("disabled", "downgrade", "upgrade", "bidirectional")),
        "bidirectional",
        "Directions in which an empty group may change between the classic and KIP-848 protocol.",
    ),
    _accept("transaction.partition.verification.enable", Flag(), "true",
        "Whether a transactional append is refused for a partition outside its transaction."),
)  # fmt: skip

ACCEPTED_TOPIC = (
    *_BOTH,
    _accept("max.compaction.lag.ms", long(1), _LONGEST),
    _accept("segment.jitter.ms", long(0), "0"),
    _accept("segment.index.bytes", Whole(4), "10485760"),
    _accept("index.interval.bytes", Whole(0), "4096"),
    _accept("flush.messages", long(1), _LONGEST),
    _accept("flush.ms", long(0), _LONGEST),
    _accept("preallocate", Flag(), "false"),
    _accept("leader.replication.throttled.replicas", Words(), ""),
    _accept("follower.replication.throttled.replicas", Words(), ""),
    # Removed in Kafka 4, still sent by tools of Kafka 2 and 3.
    _accept("message.timestamp.difference.max.ms", long(0), _LONGEST),
    _accept("message.downconversion.enable", Flag(), "true"),
    _accept("message.format.version", Text(40), "3.0-IV1"),
)  # fmt: skip
