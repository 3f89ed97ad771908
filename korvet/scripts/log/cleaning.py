"""The scripts of a partition's compaction."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, ErrorReply, Reply, Script


class CleanBeginReply(Reply):
    """The range to clean; `due` 0: there is nothing to do."""

    error: int
    due: int
    start: int
    cleaned: int
    limit: int
    bytes: int
    records: int
    tombstones: int
    newest: int


class CleanCopyReply(Reply):
    """`copied` is the number of entries copied."""

    error: int
    copied: int


class CleanCommitReply(Reply):
    """`more` 1: entries are left to copy, call again; the copy has `length` entries.

    Before that the caller adds the entry `oversized_id`, if any: too many fields for a script.
    """

    error: int
    more: int
    length: int
    oversized_id: bytes


CLEAN_BEGIN = Script("log.clean_begin", CleanBeginReply)
CLEAN_COPY = Script("log.clean_copy", CleanCopyReply)
CLEAN_REWRITE = Script("log.clean_rewrite", ErrorReply)
CLEAN_COMMIT = Script("log.clean_commit", CleanCommitReply)


def clean_begin(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    lag_ms: int,
    tombstone_ms: int,
    dirty: int,
) -> Call[CleanBeginReply]:
    """Start the compaction `token`: return the range to clean."""
    k = keys.partition(topic, partition)
    return Call(
        CLEAN_BEGIN, (k.log, k.index, k.compacted), (topic_id, token, lag_ms, tombstone_ms, dirty)
    )


def clean_copy(
    keys: Keys, topic: str, partition: int, ranges: Sequence[str], *, token: str, length: int
) -> Call[CleanCopyReply]:
    """Copy the entries of these ranges (first id, last id, first id, ...) to the compacted copy,
    after its `length` entries."""
    k = keys.partition(topic, partition)
    return Call(CLEAN_COPY, (k.stream, k.log, k.compacted), (token, length, *ranges))


def clean_rewrite(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    token: str,
    length: int,
    id: str,
    fields: Sequence[Arg],
) -> Call[ErrorReply]:
    """Add a rewritten entry to the compacted copy, after its `length` entries."""
    k = keys.partition(topic, partition)
    return Call(CLEAN_REWRITE, (k.log, k.compacted), (token, length, id, *fields))


def clean_commit(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    length: int,
    start: int,
    limit: int,
    cleaned: int,
    cleaned_bytes: int,
    start_bytes: int,
    start_records: int,
    tombstones: int,
    tombstone_ms: int,
    at_most: int,
    rows: Sequence[str],
) -> Call[CleanCommitReply]:
    """Copy the entries from `limit` on, then replace the log with its compacted copy."""
    k = keys.partition(topic, partition)
    return Call(
        CLEAN_COMMIT,
        (k.stream, k.log, k.index, k.compacted, k.aborted_txns),
        (
            topic_id,
            token,
            length,
            start,
            limit,
            cleaned,
            cleaned_bytes,
            start_bytes,
            start_records,
            tombstones,
            tombstone_ms,
            at_most,
            *rows,
        ),
    )
