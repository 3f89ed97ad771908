"""The values that the library takes and returns: topics, records, offsets, groups."""

from collections.abc import Mapping, Sequence

import msgspec

from korvet.base.errors import ErrorCode

DEDUPE_ID = "korvet-dedupe-id"
EXPECTED_OFFSET = "korvet-expected-offset"


class KorvetError(Exception):
    """A request the log refused: Kafka's error code and a sentence that says why."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error


class NoTopic(KorvetError):
    """The topic does not exist; `others` are some that do."""

    def __init__(self, name: str, others: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no topic {name!r}; there are: {others or 'none'}.",
        )
        self.name = name


class LostRecords(KorvetError):
    """A reader is above the records of a log: Redis has lost those from offset `first` on."""

    def __init__(self, reason: str, first: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{reason}: Redis has lost the records from offset {first} on, or never had them.",
        )
        self.first = first


class KeyChanged(KorvetError):
    """The newest record of a key has another offset than a record expects: nothing is stored.

    `offset` is that of the newest record, -1 if the key has no value.
    """

    def __init__(self, reason: str, offset: int) -> None:
        found = f"has the offset {offset}" if offset >= 0 else "has no value"
        super().__init__(
            ErrorCode.INVALID_UPDATE_VERSION, f"{reason}: the newest record of a key {found}."
        )
        self.offset = offset


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic. `configs` are those it was created or altered with."""

    name: str
    id: str
    partitions: int
    storage_format: str
    """`record` or `batch`: what a stream entry holds."""
    offset_mode: str
    """`time`, `dense` or `bytes`."""
    configs: Mapping[str, str]


class Record(msgspec.Struct, frozen=True):
    """A record to produce. Without a timestamp it gets the time of the call.

    If the topic has dedupe.window.ms, a second record with the same `dedupe_id` is not stored: it
    is the header korvet-dedupe-id.

    If the topic has table.offsets.enable, a record with `expected_offset` is refused with
    KeyChanged unless its key's newest record has that offset; -1: unless the key has no value. It
    is the header korvet-expected-offset.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    dedupe_id: str | None = None
    expected_offset: int | None = None

    @property
    def all_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers, with those of `dedupe_id` and `expected_offset`."""
        headers = list(self.headers)
        if self.dedupe_id is not None:
            headers.append((DEDUPE_ID, self.dedupe_id.encode()))
        if self.expected_offset is not None:
            headers.append((EXPECTED_OFFSET, b"%d" % self.expected_offset))
        return headers


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class AcquiredRecord(StoredRecord, frozen=True):
    """A record that a member of a share group has acquired, for the `deliveries`-th time."""

    deliveries: int


class Appended(msgspec.Struct, frozen=True):
    """A stored batch. `duplicate`: the partition had it already and stored nothing.

    `base_offset` is -1 if the records have no consecutive offsets: some are scheduled, or some were
    stored before with the same `dedupe_id`.
    """

    topic: str
    partition: int
    base_offset: int
    records: int
    duplicate: bool = False


class Producer(msgspec.Struct, frozen=True):
    """An idempotent producer: an id that the log gave out, and an epoch."""

    id: int
    epoch: int = 0


class PartitionOffsets(msgspec.Struct, frozen=True):
    """The offsets at which a partition's log starts and ends, and its size."""

    partition: int
    earliest: int
    """The offset of the first record, or `latest` in an empty partition."""
    latest: int
    """The offset after the last record."""
    last_stable: int
    """Reads of committed records end at this offset."""
    records: int
    bytes: int
    newest_timestamp_ms: int
    """-1 in a partition without records."""


class Fetched(msgspec.Struct, frozen=True):
    """The result of a read. `next_offset` is where the next read starts."""

    records: Sequence[StoredRecord]
    next_offset: int
    high_watermark: int
    last_stable_offset: int


class GroupInfo(msgspec.Struct, frozen=True):
    """A consumer group. `type` is `classic` or `consumer` (KIP-848)."""

    group: str
    type: str
    state: str
    protocol_type: str
    members: int


class GroupOffset(msgspec.Struct, frozen=True):
    """The offset a group committed for one partition, -1 for none. `lag` counts records."""

    topic: str
    partition: int
    offset: int
    metadata: str
    log_end_offset: int
    lag: int
    lag_ms: int
    """From the oldest unread record to the newest one; -1 if unknown."""
    age_ms: int
    """From the oldest unread record to now; 0 without lag, -1 if unknown."""
