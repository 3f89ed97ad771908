"""Parse option text into frozen values. An option that cannot be honoured is an error.

Rules
- Names and meanings are those of Spark's Kafka source and sink, in any letter case.
- Reject an option without effect instead of ignoring it: the query would silently differ from
  what the user asked for.
"""

import os
import re
from collections.abc import Mapping

import msgspec

from korvet.spark import columns
from korvet.spark.errors import InvalidOption
from korvet.spark.option_text import OptionText, parse_end, parse_start
from korvet.spark.options import (
    DEFAULT_SPLIT_BYTES,
    DEFAULT_TRIGGER_DELAY_MS,
    Connection,
    ReadOptions,
    Selection,
    WriteOptions,
)
from korvet.store.address import BadAddress, parse

REDIS_VARIABLE = "KORVET_REDIS_URL"
_SELECT = ("subscribe", "subscribePattern", "assign")
_READ = (
    "redis", "redisUrl", "namespace", *_SELECT, "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "minPartitions",
    "maxRecordsPerPartition", "maxBytesPerPartition", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss", "includeHeaders", "columns",
    "isolation", "kafka.isolation.level", "archive", "archiveFormat", "joinPartitions",
    "remoteStorageUrl", "pushFilters", "table",
)  # fmt: skip
_WRITE = (
    "redis", "redisUrl", "namespace", "topic", "writeId", "compression", "kafka.compression.type",
    "includeHeaders", "includeTimestamp", "checkpointLocation", "queryName", "kafka.acks",
    "kafka.enable.idempotence", "waitReplicas",
)  # fmt: skip
HIDDEN_URL = "redisUrl"
"""The option for a URL with credentials: Spark hides values of options with `url` in their name."""
_SHOWN = "has credentials, which Spark would show in plans"
_CREDENTIALS = (
    f"{_SHOWN}: give the URL as {HIDDEN_URL!r}, which Spark hides, or in {REDIS_VARIABLE}."
)
_PASSWORD = re.compile("://[^/@]*:[^/@]*@")
_WITH_TABLE = ("redis", "redisUrl", "namespace", *_SELECT, "columns", "table")
"""Options that a read of a table accepts."""
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options that only a stream accepts."""
_TABLE_PROPERTY = "provider"
"""A table property that Spark passes as an option when it asks for the columns of a table that was
created without any."""
_TABLE_HINT = (
    "Spark does not pass a catalog table's options to a Python source: give them with each query, "
    "as in SELECT * FROM t WITH (subscribe = 'orders'), or .option(...) before .table('t')."
)
_UNSUPPORTED = {
    "kafka.bootstrap.servers": "Spark connects to Redis: set 'redis' to the Redis URL instead.",
    "groupidprefix": "no consumer group is used: offsets live in Spark's checkpoint. Remove it.",
    "kafka.group.id": "no consumer group is used: offsets live in Spark's checkpoint. Remove it.",
    "kafkaconsumer.polltimeoutms": "there is no Kafka consumer. Remove it.",
    "fetchoffset.numretries": "offsets are read from Redis. Remove it.",
    "fetchoffset.retryintervalms": "offsets are read from Redis. Remove it.",
    "path": "select topics with 'subscribe', 'subscribePattern' or 'assign'; write to 'topic'.",
}


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse read options, or raise InvalidOption."""
    given = _Options(options, _READ)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            given.refuse(name, "a stream has no end.")
        given.refuse("archive", "only a batch read can read an archive.")
        given.refuse("pushFilters", "Spark passes filters to batch reads only.")
        given.refuse("table", "a stream reads the log: every record of a key.")
    else:
        for name in STREAM_ONLY:
            given.refuse(name, "a batch read has no trigger; see 'endingOffsets'.")
    table = given.flag("table", False)
    for name in set(_READ) - set(_WITH_TABLE) if table else ():
        given.refuse(name, "option 'table' reads the newest value of each key, no offsets.")
    if given.text("archiveFormat") is not None and given.text("archive") is None:
        raise InvalidOption("archiveFormat", "needs option 'archive', which is not set.")
    return ReadOptions(
        connection=given.connection(),
        selection=given.selection(),
        start=parse_start(given, streaming),
        end=parse_end(given),
        names=given.names(columns.OF_TABLE if table else tuple(columns.TYPES)),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        min_partitions=given.number("minPartitions"),
        max_records=given.number("maxRecordsPerPartition"),
        split_bytes=given.size("maxBytesPerPartition", DEFAULT_SPLIT_BYTES),
        joined=given.joined(),
        max_per_trigger=given.number("maxOffsetsPerTrigger"),
        min_per_trigger=given.least(),
        trigger_delay_ms=given.duration("maxTriggerDelay", DEFAULT_TRIGGER_DELAY_MS),
        committed_only=given.isolation() == "read_committed",
        archive=given.filled("archive"),
        archive_format=given.text("archiveFormat"),
        push_filters=given.flag("pushFilters", False),
        table=table,
    )


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse write options, or raise InvalidOption."""
    given = _Options(options, _WRITE)
    if streaming:
        given.refuse("writeId", "a streaming query is identified by the id in its checkpoint.")
    acks = given.one_of("kafka.acks", ("all", "-1", "1", "0"), "all")
    if acks == "0":
        raise InvalidOption("kafka.acks", "a write without acknowledgement is not exactly once.")
    if not given.flag("kafka.enable.idempotence", True):
        raise InvalidOption("kafka.enable.idempotence", "writes are always idempotent.")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd", "uncompressed")
    kafkas = given.text("kafka.compression.type")
    if kafkas is not None:
        given.refuse("compression", "'kafka.compression.type' is set as well. Set one of them.")
    named = "compression" if kafkas is None else "kafka.compression.type"
    compression = given.one_of(named, codecs, "") or None
    return WriteOptions(
        connection=given.connection(),
        topic=given.text("topic"),
        write_id=given.filled("writeId") or "",
        compression=compression,
        headers=given.flag("includeHeaders", True),
        timestamps=given.flag("includeTimestamp", False),
        replicas=given.number("waitReplicas") or 0,
        acks_all=acks != "1",
    )


class _Options(OptionText):
    """The options of a read or a write."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        super().__init__(options)
        names = {name.lower() for name in known}
        if self.text(_TABLE_PROPERTY) is not None:
            raise InvalidOption(
                _TABLE_PROPERTY,
                "name the table's columns, as in CREATE TABLE t (key binary, value binary), or use "
                f"CREATE TEMPORARY VIEW, which keeps its options. {_TABLE_HINT}",
            )
        for name, value in options.items():
            low = name.lower()
            if "url" not in low and _PASSWORD.search(value):
                is_redis = low == "redis"
                raise InvalidOption(name, _CREDENTIALS if is_redis else f"{_SHOWN}. Remove them.")
            if low in names:
                continue
            if low in _UNSUPPORTED:
                raise InvalidOption(name, _UNSUPPORTED[low])
            if low.startswith("kafka."):
                raise InvalidOption(
                    name, "configures a Kafka client; Spark uses none here. Remove it."
                )
            if low in {each.lower() for each in (*_READ, *_WRITE)}:
                kind, other = ("write", "read") if known is _READ else ("read", "write")
                raise InvalidOption(name, f"is for a {kind}; this is a {other}. Remove it.")
            raise InvalidOption(name, f"unknown option. Known are {', '.join(known)}.")

    def joined(self) -> bool | None:
        """Return whether small splits share a task; None: decided by their number."""
        asked = self.flag("joinPartitions", False)
        return None if self.text("joinPartitions") is None else asked

    def least(self) -> int | None:
        """Return minOffsetsPerTrigger and check the options that depend on it."""
        name, limit = "minOffsetsPerTrigger", "maxOffsetsPerTrigger"
        least, highest = self.number(name), self.number(limit)
        if least is None:
            self.refuse("maxTriggerDelay", f"needs option {name!r}, which is not set.")
        elif highest is not None and least > highest:
            raise InvalidOption(name, f"{least} is more than {limit} {highest}.")
        return least

    def connection(self) -> Connection:
        name = "redis" if self.text(HIDDEN_URL) is None else HIDDEN_URL
        if name == HIDDEN_URL:
            self.refuse("redis", f"{HIDDEN_URL!r} is set as well. Set one of them.")
        url = self.text(name) or os.environ.get(REDIS_VARIABLE)
        if not url:
            wanted = f"give the Redis URL, here or in {REDIS_VARIABLE}."
            raise InvalidOption(name, f"{wanted}{self._missing_options_hint()}")
        try:
            parse(url)
        except BadAddress as error:
            raise InvalidOption(name, f"{error}.") from None
        if self.text("redis") and ("@" in url or "password" in url):
            raise InvalidOption("redis", _CREDENTIALS)
        namespace = self.filled("namespace") or "korvet"
        return Connection(url, namespace, self.filled("remoteStorageUrl") or "")

    def _missing_options_hint(self) -> str:
        """Return a hint for the case that Spark passed no options at all."""
        return "" if len(self) else f" {_TABLE_HINT}"

    def selection(self) -> Selection:
        given = [name for name in _SELECT if self.text(name) is not None]
        if len(given) != 1:
            what = f"not {' and '.join(given)}"
            if not given:
                what = f"which topics?{self._missing_options_hint()}"
            raise InvalidOption("subscribe", f"give one of {', '.join(_SELECT)}: {what}")
        name, value = given[0], (self.text(given[0]) or "").strip()
        topics = dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise InvalidOption(name, "names no topic.")
        if name == "assign":
            return Selection(assigned=_parse_assignment(value))
        if name == "subscribePattern":
            try:
                re.compile(value)
            except re.error as error:
                raise InvalidOption(
                    name, f"{value!r} is not a regular expression: {error}."
                ) from None
            return Selection(pattern=value)
        return Selection(topics=tuple(topics))

    def isolation(self) -> str:
        levels = ("read_committed", "read_uncommitted")
        ours, kafkas = "isolation", "kafka.isolation.level"
        both = [self.one_of(name, levels, "") for name in (ours, kafkas)]
        if "" not in both and both[0] != both[1]:
            raise InvalidOption(ours, f"{kafkas!r} has another level. Set one of them.")
        return both[0] or both[1] or levels[0]

    def names(self, known: tuple[str, ...]) -> tuple[str, ...]:
        value = self.text("columns")
        headers = self.flag("includeHeaders", False)
        if value is None:
            always = tuple(name for name in known if name != "headers")
            return (*always, "headers") if headers else always
        by_low = {name.lower(): name for name in known}
        asked = dict.fromkeys(part.strip() for part in value.split(",") if part.strip())
        wrong = [name for name in asked if name.lower() not in by_low]
        if wrong or not asked:
            raise InvalidOption("columns", f"{wrong or value!r}: columns are {', '.join(known)}.")
        return tuple(dict.fromkeys(by_low[name.lower()] for name in asked))


def _parse_assignment(text: str) -> dict[str, tuple[int, ...]]:
    try:
        found = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise InvalidOption(
            "assign", f'expects JSON such as {{"orders": [0, 1]}}, not {text!r}: {error}.'
        ) from None
    if not any(found.values()):
        raise InvalidOption("assign", "assigns no partition.")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}
