"""The broker's settings: name, type, default and description, under Kafka's names if it has one.

`dynamic=False` settings are read once at start; the others may also change while brokers run.
"""

from korvet.config.accepted import ACCEPTED_BROKER
from korvet.config.coordinator_settings import COORDINATION, STREAMS_GROUPS
from korvet.config.remote_settings import BROKER_ROWS as REMOTE
from korvet.config.security_settings import AUTHORIZATION, SASL, TLS
from korvet.config.server_settings import AVRO, CONSOLE, MONITORING, SOCKETS
from korvet.config.setting import (
    LONG_MAX,
    LONGEST_ARRAY,
    ConfigError,
    Decimal,
    Flag,
    OneOf,
    Setting,
    SomeOf,
    Text,
    Whole,
    find_setting,
    long,
    table,
)
from korvet.config.share_settings import ROWS as SHARE_GROUPS

CODECS = ("none", "uncompressed", "producer", "gzip", "snappy", "lz4", "zstd")
AT_REST = ("none", "gzip", "snappy", "lz4", "zstd")
LONGEST = str(LONG_MAX)


_OURS = (
    Setting("storage.format", OneOf(("record", "batch")), "record",
        "How records are stored in Redis: `record` is one stream entry per record, readable with "
        "redis-cli; `batch` is one entry per producer batch, unchanged and much faster."),
    Setting("offset.mode", OneOf(("time", "dense", "bytes")), "time",
        "What an offset is: `time` is the millisecond and a sequence, `dense` counts 0, 1, 2, "
        "`bytes` is Kafka 0.7's byte position."),
    Setting("offset.bits", Whole(8, 12), "10",
        "In `time` mode, how many low bits of an offset are the sequence within a millisecond; 11 "
        "last until the year 2109, 12 until 2039."),
    Setting("storage.compression", OneOf(AT_REST), "lz4",
        "Codec of large values of `record` topics at rest; `none` keeps values readable."),
    Setting("storage.compression.min.bytes", Whole(64), "1024",
        "Values shorter than this stay uncompressed at rest."),
    Setting("group.read.mode", OneOf(("offset", "stream")), "offset",
        "How a group reads: `offset` uses the offset of each Fetch and moves the Redis group with "
        "commits; `stream` reads with XREADGROUP."),
    Setting("fetch.cache.bytes", long(0), "134217728",
        "Memory of a broker process for recent batches, served without a Redis read; "
        "0 is off.", dynamic=False),
    Setting("legacy.num.partitions", Whole(1, 10_000), "1",
        "Partitions of a topic that a Kafka 0.7 client creates by producing to it."),
    Setting("acks.all.wait.replicas", Whole(0, 100), "0",
        "Redis replicas that must have a write before acks=-1 is acknowledged, and a decision "
        "before it is executed elsewhere (WAIT)."),
    Setting("acks.all.fsync", Flag(), "false",
        "Whether acks=-1, and what executes a decision elsewhere, waits for fsync of the "
        "append-only file (WAITAOF, Redis 7.2)."),
    Setting("redis.timeout.ms", Whole(100), "15000",
        "Time without any reply after which a Redis connection counts as lost: the broker "
        "reconnects, ends it on the server, and fails its pending commands.", dynamic=False),
    Setting("cluster.id", Text(200), "korvet-cluster-1",
        "The cluster id that clients see; stored in Redis by the first broker.", dynamic=False),
)  # fmt: skip

_TOPICS = (
    Setting("max.topics", Whole(0), "0",
        "Topics that may exist; above it none is created. 0: any number."),
    Setting("num.partitions", Whole(1, 10_000), "1",
        "Default number of partitions of a new topic."),
    Setting("auto.create.topics.enable", Flag(), "true",
        "Whether a Metadata or Produce request for an unknown topic creates it."),
    Setting("reserved.topic.names.enable", Flag(), "false",
        "Whether topics may be created under names that begin with `__`, as Kafka lets clients do: "
        "Debezium's heartbeats, Cruise Control's metrics and Samza's checkpoints have such names."),
    Setting("delete.topic.enable", Flag(), "true", "Whether clients may delete topics."),
    Setting("message.max.bytes", Whole(0), "1048588",
        "The largest record batch a topic takes, compressed as sent."),
    Setting("max.decompressed.message.bytes", Whole(1, LONGEST_ARRAY), str(LONGEST_ARRAY),
        "The largest record that a topic takes in a compressed batch: key, value and headers."),
    Setting("records.validation", OneOf(("full", "header")), "full",
        "What is checked of a produced batch: `full` is every record in it, as in Kafka; `header` "
        "leaves the records of layout `batch` unread, so that one bad batch can stop all consumers "
        "of a partition."),
    Setting("log.retention.ms", long(-1), None,
        "How long records are kept, in milliseconds; -1 is no limit. Wins over minutes and hours."),
    Setting("log.retention.minutes", Whole(-1), None,
        "How long records are kept, in minutes; wins over hours."),
    Setting("log.retention.hours", Whole(-1), "168", "How long records are kept, in hours."),
    Setting("log.retention.bytes", long(-1), "-1",
        "How many bytes of records a partition keeps; -1 is no limit."),
    Setting("log.retention.check.interval.ms", long(1), "300000",
        "Interval between two retention checks, in milliseconds.", dynamic=False),
    Setting("log.message.timestamp.type", OneOf(("CreateTime", "LogAppendTime")), "CreateTime",
        "Whether a record has its producer's timestamp or the time of the append."),
    Setting("log.message.timestamp.before.max.ms", long(0), LONGEST,
        "How far in the past a producer's timestamp may be, in milliseconds."),
    Setting("log.message.timestamp.after.max.ms", long(0), "3600000",
        "How far in the future a producer's timestamp may be, in milliseconds."),
    Setting("log.cleanup.policy", SomeOf(("delete", "compact"), may_be_empty=True), "delete",
        "`delete` removes old records, `compact` keeps the latest record of each key; empty keeps "
        "all records."),
    Setting("compression.type", OneOf(CODECS), "none",
        "Codec of the fetched batches of `record` topics, and of stored batches that must change; "
        "`none` and `producer` leave a producer's batches as they are."),
    Setting("log.cleaner.delete.retention.ms", long(0), "86400000",
        "How long a compacted topic keeps the tombstone of a deleted key, in milliseconds."),
    Setting("log.cleaner.min.compaction.lag.ms", long(0), "0",
        "How long a record of a compacted topic is not compacted, in milliseconds."),
    Setting("log.cleaner.min.cleanable.ratio", Decimal(0, 1), "0.5",
        "Lowest ratio of uncompacted records to the log at which the cleaner compacts it."),
    Setting("log.cleaner.backoff.ms", long(1), "15000",
        "Interval between two passes of the log cleaner, in milliseconds."),
)  # fmt: skip


BROKER = table(
    _OURS
    + _TOPICS
    + SOCKETS
    + TLS
    + SASL
    + COORDINATION
    + SHARE_GROUPS
    + STREAMS_GROUPS
    + AUTHORIZATION
    + CONSOLE
    + AVRO
    + REMOTE
    + MONITORING
    + ACCEPTED_BROKER
)
LISTENER_PREFIX = "listener.name."
"""Prefix of a listener's own value: `listener.name.NAME.SETTING`, the name in lower case."""


def find_broker_setting(name: str) -> Setting:
    """Return the setting of that name, also with the prefix of a listener. Raises ConfigError."""
    if not name.startswith(LISTENER_PREFIX):
        return find_setting(BROKER, name, "setting")
    listener, _, inner = name.removeprefix(LISTENER_PREFIX).partition(".")
    setting = find_setting(BROKER, inner, "setting")
    if not listener or listener != listener.lower():
        raise ConfigError(f"{name} must be {LISTENER_PREFIX}NAME.{inner}, with a lower-case name.")
    if not setting.per_listener:
        raise ConfigError(f"{inner} is not a setting of one listener: set it for the broker.")
    return setting
