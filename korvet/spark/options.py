"""Parsed options of a source or sink, as frozen values."""

import msgspec

DEFAULT_SPLIT_BYTES = 32 << 20
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000
EARLIEST, LATEST = -2, -1
SPLITTING, BATCH_START, FINGERPRINTS = "/splits", "/start", "/tails"
"""Keys of a stream offset other than topics. A topic name cannot contain a slash."""

Offsets = dict[str, dict[int, int]]


class Selection(msgspec.Struct, frozen=True):
    """Selected topics: by name, by pattern or by partition."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        return ", ".join(self.assigned if self.assigned is not None else self.topics)


class OffsetSpec(msgspec.Struct, frozen=True):
    """A position in every partition: earliest, latest, offsets or timestamps (ms)."""

    option: str
    every_partition: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None
    latest_if_missing: bool = False
    """Use the end of the log if no record is at or after the timestamp, instead of failing."""

    def named(self, topic: str, partition: int) -> int | None:
        """Return the partition's configured offset: None if there is none; may be -1 or -2."""
        return None if self.offsets is None else self.offsets[topic][partition]


class Connection(msgspec.Struct, frozen=True):
    """The Redis URL, the namespace of the keys, and the URL of the remote store.

    An empty `remote_storage`: the URL that the brokers stored in Redis.
    """

    redis: str
    namespace: str = "korvet"
    remote_storage: str = ""


class ReadOptions(msgspec.Struct, frozen=True):
    """Validated read options."""

    connection: Connection
    selection: Selection
    start: OffsetSpec
    end: OffsetSpec
    names: tuple[str, ...]
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    joined: bool | None = None
    """Whether small partitions share a task; None: if there are more than JOIN_ABOVE of them."""
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    trigger_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    committed_only: bool = True
    archive: str | None = None
    """Path or name of an archive table: offsets it holds are read from it, others from Redis."""
    archive_format: str | None = None
    push_filters: bool = False
    """Whether filters of the query narrow the ranges, for every later query too."""
    table: bool = False
    """Whether the rows are those of the topics' tables: the newest value of each key."""


class WriteOptions(msgspec.Struct, frozen=True):
    """Validated write options. An empty `write_id` means that the job generates one."""

    connection: Connection
    topic: str | None = None
    write_id: str = ""
    compression: str | None = None
    headers: bool = True
    timestamps: bool = False
    replicas: int = 0
    """Redis replicas that must have the data before a task or epoch is reported as done."""
    acks_all: bool = True
    """Whether a task waits for what its topics' `durability` says."""
