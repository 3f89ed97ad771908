"""Offsets, times and counts of one partition's log."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script
from korvet.scripts.log.appending import FAR


class ListOffsetsReply(Reply):
    """`start` is the stored log start; `first` and `next` enclose the live records.

    The next record gets the offset `coming` or a later one. Redis has records
    from `local_first` on; segments have those below `tiered`.
    """

    error: int
    start: int
    first: int
    next: int
    epoch: int
    bytes: int
    records: int
    newest: int
    stable: int
    coming: int
    local_first: int
    tiered: int


class NumberEntriesReply(Reply):
    """The log ends at `next`; `more` is 1 if another call has more entries to number.

    `unnumbered` foreign entries have no offset.
    """

    error: int
    next: int
    more: int
    unnumbered: int


class DropUnnumberedReply(Reply):
    """`entries` have no offset; `last` is for the next call, and empty if there are no more."""

    error: int
    entries: int
    size: int
    last: bytes


class FindTimestampReply(Reply):
    """Every record below `offset` is older than `timestamp`."""

    error: int
    offset: int
    timestamp: int


class SkipRecordsReply(Reply):
    """`records` is the number of records between the given offset and `offset`."""

    error: int
    offset: int
    records: int


class LagReply(Reply):
    """`records` is the number of records at or above the offset, `oldest` the first one's time."""

    error: int
    records: int
    next: int
    newest: int
    oldest: int


LIST_OFFSETS = Script("log.list_offsets", ListOffsetsReply)
NUMBER_ENTRIES = Script("log.number_entries", NumberEntriesReply)
DROP_UNNUMBERED = Script("log.drop_unnumbered", DropUnnumberedReply)
FIND_TIMESTAMP = Script("log.find_timestamp", FindTimestampReply)
SKIP_RECORDS = Script("log.skip_records", SkipRecordsReply)
LAG = Script("log.lag", LagReply)


def list_offsets(
    keys: Keys, topic: str, partition: int, *, topic_id: str
) -> Call[ListOffsetsReply]:
    """Return the first and last offsets of a partition; an empty `topic_id` accepts any topic."""
    k = keys.partition(topic, partition)
    return Call(LIST_OFFSETS, (k.stream, k.log), (topic_id,))


def number_entries(
    keys: Keys, topic: str, partition: int, *, topic_id: str
) -> Call[NumberEntriesReply]:
    """Give offsets to the entries that other programs have added to a partition."""
    k = keys.partition(topic, partition)
    return Call(NUMBER_ENTRIES, (k.stream, k.log), (topic_id,))


def drop_unnumbered(
    keys: Keys, topic: str, partition: int, *, topic_id: str, after: bytes, delete: int
) -> Call[DropUnnumberedReply]:
    """Count the entries of other programs that can have no offset, and delete them if `delete`."""
    k = keys.partition(topic, partition)
    return Call(DROP_UNNUMBERED, (k.stream, k.log), (topic_id, after, delete))


def find_timestamp(
    keys: Keys, topic: str, partition: int, *, topic_id: str, timestamp: int
) -> Call[FindTimestampReply]:
    """Return the offset to scan from for the first record at or after `timestamp`.

    The timestamp -3 is that of the newest record.
    """
    k = keys.partition(topic, partition)
    return Call(FIND_TIMESTAMP, (k.stream, k.log, k.index), (topic_id, min(timestamp, FAR)))


def skip_records(
    keys: Keys, topic: str, partition: int, *, topic_id: str, offset: int, records: int, end: int
) -> Call[SkipRecordsReply]:
    """Return the offset that is `records` records above `offset`, at most `end`."""
    k = keys.partition(topic, partition)
    return Call(SKIP_RECORDS, (k.stream, k.log, k.index), (topic_id, offset, records, end))


def lag(keys: Keys, topic: str, partition: int, *, topic_id: str, offset: int) -> Call[LagReply]:
    """Return the number of records at or above `offset`."""
    k = keys.partition(topic, partition)
    return Call(LAG, (k.stream, k.log, k.index, k.segments), (topic_id, offset))
