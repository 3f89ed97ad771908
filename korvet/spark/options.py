"""The options of a source or a sink, once their text is understood (`parsing`): frozen values."""

import msgspec

DEFAULT_SPLIT_BYTES = 32 << 20
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
EARLIEST, LATEST = -2, -1
CUT, FROM = "/cut", "/from"
"""What a stream's offset may have beside topics, none of which can have such a name."""
MARKS = "marks"
"""Stands in CUT, of which drivers of before take what they know."""

Offsets = dict[str, dict[int, int]]


class Selection(msgspec.Struct, frozen=True):
    """Which topics: by name, by pattern, or partition by partition."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        return ", ".join(self.assigned if self.assigned is not None else self.topics)


class Place(msgspec.Struct, frozen=True):
    """A place in the log: one for all partitions, or one for each; offsets or moments (ms)."""

    option: str
    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None
    or_latest: bool = False
    """A moment behind the last record means the end, where it would otherwise be an error."""

    def named(self, topic: str, partition: int) -> int | None:
        """The offset that is named for the partition, which may be -1 or -2; None where none is."""
        return None if self.offsets is None else self.offsets[topic][partition]


class Connection(msgspec.Struct, frozen=True):
    """Where Redis is, and the namespace of the keys in it."""

    redis: str
    namespace: str = "korvet"


class ReadOptions(msgspec.Struct, frozen=True):
    """A checked set of read options."""

    connection: Connection
    selection: Selection
    start: Place
    end: Place
    names: tuple[str, ...]
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    joined: bool | None = None
    """Small partitions share a task; None: where there are very many of them."""
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    committed_only: bool = True
    archive: str | None = None
    """An archive's path: what it holds is read from there, what lies behind it from Redis."""
    archive_format: str | None = None


class WriteOptions(msgspec.Struct, frozen=True):
    """A checked set of write options. An empty `write_id` is replaced by one of the job's own."""

    connection: Connection
    topic: str | None = None
    write_id: str = ""
    compression: str | None = None
    headers: bool = True
    timestamps: bool = False
    replicas: int = 0
    """So many Redis replicas have what a task, or an epoch, calls done."""
