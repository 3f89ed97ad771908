"""The steps of a compaction of one partition."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class CleanBeginReply(Reply):
    """What a compaction may touch; `due` 0: there is nothing to do."""

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
    """`carried` entries stand in the twin now."""

    error: int
    carried: int


class CleanRewriteReply(Reply):
    """The entry stands in the twin."""

    error: int


class CleanCommitReply(Reply):
    """`more` 1: there was too much behind the limit, call again; the twin has `held` entries.
    Before, the caller adds the one with id `wide`, if any: it has too many fields for a script."""

    error: int
    more: int
    held: int
    wide: bytes


CLEAN_BEGIN = Script("log.clean_begin", CleanBeginReply)
CLEAN_COPY = Script("log.clean_copy", CleanCopyReply)
CLEAN_REWRITE = Script("log.clean_rewrite", CleanRewriteReply)
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
    """What a compaction by `token` may touch is known."""
    k = keys.partition(topic, partition)
    return Call(
        CLEAN_BEGIN, (k.log, k.index, k.compacted), (topic_id, token, lag_ms, tombstone_ms, dirty)
    )


def clean_copy(
    keys: Keys, topic: str, partition: int, ranges: Sequence[str], *, token: str, held: int
) -> Call[CleanCopyReply]:
    """The entries of these ranges (first id, last id, first id, ...) stand in the twin too, behind
    the `held` entries that do by now."""
    k = keys.partition(topic, partition)
    return Call(CLEAN_COPY, (k.stream, k.log, k.compacted), (token, held, *ranges))


def clean_rewrite(
    keys: Keys, topic: str, partition: int, *, token: str, held: int, id: str, fields: Sequence[Arg]
) -> Call[CleanRewriteReply]:
    """A rewritten entry stands in the twin, behind the `held` entries that do by now."""
    k = keys.partition(topic, partition)
    return Call(CLEAN_REWRITE, (k.log, k.compacted), (token, held, id, *fields))


def clean_commit(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    held: int,
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
    """The twin is the log."""
    k = keys.partition(topic, partition)
    return Call(
        CLEAN_COMMIT,
        (k.stream, k.log, k.index, k.compacted, k.aborted_txns),
        (
            topic_id,
            token,
            held,
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
