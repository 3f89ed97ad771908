"""Option text in, a frozen value out. Whatever cannot be honoured is refused by name.

Rules
- Names and meanings are those of Spark's Kafka source and sink; letter case does not count.
- An option that means nothing here is an error, never ignored: a query that asked for something
  and silently did not get it is worse than one that does not start.
"""

import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from korvet.spark import columns
from korvet.spark.errors import BadOption
from korvet.spark.options import (
    CUT,
    DEFAULT_SPLIT_BYTES,
    DEFAULT_TRIGGER_DELAY_MS,
    EARLIEST,
    FROM,
    LATEST,
    Connection,
    Offsets,
    Place,
    ReadOptions,
    Selection,
    WriteOptions,
)
from korvet.store.address import BadAddress, parse

REDIS_VARIABLE = "KORVET_REDIS_URL"
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}

_SELECT = ("subscribe", "subscribePattern", "assign")
_READ = (
    "redis", "namespace", *_SELECT, "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition",
    "maxBytesPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "failOnDataLoss", "includeHeaders", "columns", "isolation", "kafka.isolation.level",
    "archive", "archiveFormat", "joinPartitions",
)  # fmt: skip
_WRITE = (
    "redis", "namespace", "topic", "writeId", "compression", "kafka.compression.type",
    "includeHeaders", "includeTimestamp", "checkpointLocation", "queryName", "kafka.acks",
    "kafka.enable.idempotence", "waitReplicas",
)  # fmt: skip
PER_TRIGGER = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""What only a stream takes."""
_TABLES_OWN = "provider"
"""An option that Spark makes of each table's properties, when it asks for the columns of one that
is made without: among others of its own, in any order."""
_OF_A_TABLE = (
    "Of a catalog's table Spark tells a Python source no options: they go with each query, as in "
    "SELECT * FROM t WITH (subscribe = 'orders'), or .option(...) before .table('t')."
)
_MEANINGLESS = {
    "kafka.bootstrap.servers": "Spark talks to Redis itself: give option 'redis', the Redis URL.",
    "groupidprefix": "no consumer group is used: offsets live in Spark's checkpoint. Remove it.",
    "kafka.group.id": "no consumer group is used: offsets live in Spark's checkpoint. Remove it.",
    "kafkaconsumer.polltimeoutms": "there is no Kafka consumer here. Remove it.",
    "fetchoffset.numretries": "offsets come from one Redis script. Remove it.",
    "fetchoffset.retryintervalms": "offsets come from one Redis script. Remove it.",
    "path": "topics are chosen with 'subscribe', 'subscribePattern' or 'assign', and 'topic'.",
}


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The read options, or BadOption."""
    given = _Given(options, _READ)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            given.refuse(name, "a stream has no end.")
        given.refuse("archive", "only a batch read goes back into an archive.")
    else:
        for name in PER_TRIGGER:
            given.refuse(name, "a batch read has no trigger; see 'endingOffsets'.")
    if given.text("archiveFormat") is not None and given.text("archive") is None:
        raise BadOption("archiveFormat", "it says what 'archive' is, and there is none.")
    return ReadOptions(
        connection=given.connection(),
        selection=given.selection(),
        start=_start(given, streaming),
        end=_end(given),
        names=given.names(),
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
    )


def _start(given: "_Given", streaming: bool) -> Place:
    strategy = given.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    start = given.place("starting", LATEST if streaming else EARLIEST, strategy == "latest")
    if streaming:
        return start
    if start.everywhere == LATEST:
        raise BadOption(start.option, "a batch read cannot start at 'latest'.")
    _refuse_place(start, LATEST, "a batch read of {} cannot start at -1.")
    return start


def _end(given: "_Given") -> Place:
    end = given.place("ending", LATEST, True)
    if end.everywhere == EARLIEST:
        raise BadOption(end.option, "a read cannot end at 'earliest'.")
    _refuse_place(end, EARLIEST, "a read of {} cannot end at -2.")
    return end


def _refuse_place(place: Place, mark: int, sentence: str) -> None:
    for topic, number, at in _places(place.offsets):
        if at == mark:
            raise BadOption(place.option, sentence.format(f"{topic}-{number}"))


def _places(offsets: Offsets | None) -> Iterator[tuple[str, int, int]]:
    for topic, places in (offsets or {}).items():
        for number, at in places.items():
            yield topic, number, at


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The write options, or BadOption."""
    given = _Given(options, _WRITE)
    if streaming:
        given.refuse("writeId", "a streaming query is known by the id in its checkpoint.")
    if given.one_of("kafka.acks", ("all", "-1", "1", "0"), "all") == "0":
        raise BadOption("kafka.acks", "a write that nobody waits for is not exactly once.")
    if not given.flag("kafka.enable.idempotence", True):
        raise BadOption("kafka.enable.idempotence", "writes are always idempotent.")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd", "uncompressed")
    kafkas = given.text("kafka.compression.type")
    if kafkas is not None:
        given.refuse("compression", "'kafka.compression.type' says it, too. Give one of them.")
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
    )


class _Given:
    """The options as they came, looked up without regard to letter case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower() for name in known}
        if _TABLES_OWN in self._values:
            raise BadOption(
                _TABLES_OWN,
                "name the table's columns, as in CREATE TABLE t (key binary, value binary), or say "
                f"CREATE TEMPORARY VIEW, which keeps its options. {_OF_A_TABLE}",
            )
        for name in options:
            low = name.lower()
            if low in names:
                continue
            if low in _MEANINGLESS:
                raise BadOption(name, _MEANINGLESS[low])
            if low.startswith("kafka."):
                raise BadOption(name, "it configures a Kafka client, and there is none. Remove it.")
            if low in {each.lower() for each in (*_READ, *_WRITE)}:
                kind, other = ("write", "read") if known is _READ else ("read", "write")
                raise BadOption(name, f"it is for a {kind}; this is a {other}. Remove it.")
            raise BadOption(name, f"unknown. Known are {', '.join(known)}.")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def filled(self, name: str) -> str | None:
        """The text of an option for which nothing would do in place of an empty one."""
        value = self.text(name)
        if value is not None and not value.strip():
            raise BadOption(name, "it is given, and empty.")
        return value

    def refuse(self, name: str, reason: str) -> None:
        if self.text(name) is not None:
            raise BadOption(name, reason)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        word = value.strip().lower()
        if word not in choices:
            raise BadOption(name, f"must be one of {', '.join(choices)}, not {value!r}.")
        return word

    def flag(self, name: str, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def joined(self) -> bool | None:
        """Whether small partitions share a task; None: where there are very many of them."""
        asked = self.flag("joinPartitions", False)
        return None if self.text("joinPartitions") is None else asked

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 2**63):
            raise BadOption(name, f"must be a whole number above 0, not {value!r}.")
        return int(value)

    def size(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value.strip())
        if not found or int(found[1]) == 0:
            raise BadOption(name, f"must be a size such as 64m, not {value!r}.")
        return int(found[1]) << _UNITS[found[2].lower()]

    def least(self) -> int | None:
        """Option minOffsetsPerTrigger, which others depend on."""
        name, limit = "minOffsetsPerTrigger", "maxOffsetsPerTrigger"
        least, most = self.number(name), self.number(limit)
        if least is None:
            self.refuse("maxTriggerDelay", f"it belongs to {name!r}, and there is none.")
        elif most is not None and least > most:
            raise BadOption(name, f"{least} is more than {limit} {most}.")
        return least

    def duration(self, name: str, default: int) -> int:
        """Milliseconds; a number alone is that."""
        value = self.text(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.strip())
        if not found:
            raise BadOption(name, f"must be a duration such as 15m, not {value!r}.")
        return int(found[1]) * _MILLISECONDS[(found[2] or "ms").lower()]

    def connection(self) -> Connection:
        url = self.text("redis") or os.environ.get(REDIS_VARIABLE)
        if not url:
            wanted = f"give the Redis URL, here or in {REDIS_VARIABLE}."
            raise BadOption("redis", f"{wanted}{self._hint()}")
        return Connection(checked_url(url), self.filled("namespace") or "korvet")

    def _hint(self) -> str:
        """What to say besides where Spark has told no option at all."""
        return "" if self._values else f" {_OF_A_TABLE}"

    def selection(self) -> Selection:
        given = [name for name in _SELECT if self.text(name) is not None]
        if len(given) != 1:
            what = f"not {' and '.join(given)}" if given else f"which topics?{self._hint()}"
            raise BadOption("subscribe", f"give one of {', '.join(_SELECT)}: {what}")
        name, value = given[0], (self.text(given[0]) or "").strip()
        if not value:
            raise BadOption(name, "names no topic.")
        if name == "assign":
            return Selection(assigned=_assigned(value))
        if name == "subscribePattern":
            try:
                re.compile(value)
            except re.error as error:
                raise BadOption(name, f"{value!r} is no regular expression: {error}.") from None
            return Selection(pattern=value)
        topics = dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise BadOption(name, "names no topic.")
        return Selection(topics=tuple(topics))

    def isolation(self) -> str:
        levels = ("read_committed", "read_uncommitted")
        ours, kafkas = "isolation", "kafka.isolation.level"
        both = [self.one_of(name, levels, "") for name in (ours, kafkas)]
        if "" not in both and both[0] != both[1]:
            raise BadOption(ours, f"{kafkas!r} says another level. Give one of them.")
        return both[0] or both[1] or levels[0]

    def names(self) -> tuple[str, ...]:
        value = self.text("columns")
        headers = self.flag("includeHeaders", False)
        if value is None:
            return (*columns.ALWAYS, "headers") if headers else columns.ALWAYS
        by_low = {name.lower(): name for name in columns.TYPES}
        asked = dict.fromkeys(part.strip() for part in value.split(",") if part.strip())
        wrong = [name for name in asked if name.lower() not in by_low]
        if wrong or not asked:
            raise BadOption(
                "columns", f"{wrong or value!r}: columns are {', '.join(columns.TYPES)}."
            )
        return tuple(dict.fromkeys(by_low[name.lower()] for name in asked))

    def place(self, side: str, default: int, or_latest: bool) -> Place:
        """As Kafka's source: timestamp wins over per-partition timestamps, those over offsets."""
        moment, moments = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
        option = f"{side}Offsets"
        if (value := self.text(moment)) is not None:
            if not (value.isascii() and value.isdigit()):
                raise BadOption(moment, f"must be milliseconds since 1970, not {value!r}.")
            return Place(moment, timestamp=int(value), or_latest=or_latest)
        if (value := self.text(moments)) is not None:
            asked = _per_partition(moments, value, "time")
            return Place(moments, timestamps=asked, or_latest=or_latest)
        value = self.text(option)
        if value is None:
            return Place(option, everywhere=default)
        named = {"earliest": EARLIEST, "latest": LATEST}.get(value.strip().lower())
        if named is not None:
            return Place(option, everywhere=named)
        return Place(option, offsets=_per_partition(option, value, "offset"))


def checked_url(url: str) -> str:
    """The URL, if it could be one of a Redis."""
    try:
        parse(url)
    except BadAddress as error:
        raise BadOption("redis", f"{error}.") from None
    return url


def _per_partition(option: str, text: str, what: str) -> Offsets:
    """What the JSON names for each partition: each a `what`, or -1 or -2."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # A checkpoint's own JSON can be given: it also names each topic's id, and what a batch has.
        topics = {
            name: msgspec.json.decode(raw, type=dict[str, int | str])
            for name, raw in found.items()
            if name not in (CUT, FROM)
        }
        parsed = {
            topic: {_whole(number): _whole(at) for number, at in places.items() if number != "id"}
            for topic, places in topics.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise BadOption(
            option,
            f'expects JSON such as {{"orders": {{"0": 23, "1": -2}}}}, not {text!r}: {error}.',
        ) from None
    for topic, number, at in _places(parsed):
        if at < EARLIEST:
            raise BadOption(option, f"{at} of {topic}-{number} is no {what}.")
    return parsed


def _whole(text: int | str) -> int:
    """The number of a partition, or what is said of it; int() alone takes "1_0" for 10."""
    if isinstance(text, str) and not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    try:
        found = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise BadOption(
            "assign", f'expects JSON such as {{"orders": [0, 1]}}, not {text!r}: {error}.'
        ) from None
    if not any(found.values()):
        raise BadOption("assign", "assigns no partition.")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in found.items()}
