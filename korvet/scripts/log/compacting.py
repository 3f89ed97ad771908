"""The steps of a compaction of one partition."""

from collections.abc import Sequence

from korvet.keys import Keys
from korvet.scripts.call import Arg, Call, Reply, Script


class SiftReply(Reply):
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


class CarryReply(Reply):
    """`carried` entries stand in the twin now."""

    error: int
    carried: int


class PutReply(Reply):
    """The entry stands in the twin."""

    error: int


class SwapReply(Reply):
    """`more` 1: there was too much behind the limit, call again; the twin has `held` entries.
    Before, the caller adds the one with id `wide`, if any: it has too many fields for a script."""

    error: int
    more: int
    held: int
    wide: bytes


SIFT = Script("log.sift", SiftReply)
CARRY = Script("log.carry", CarryReply)
PUT = Script("log.put", PutReply)
SWAP = Script("log.swap", SwapReply)


def sift(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    topic_id: str,
    token: str,
    lag_ms: int,
    tombstone_ms: int,
    dirty: int,
) -> Call[SiftReply]:
    """What a compaction by `token` may touch is known."""
    k = keys.partition(topic, partition)
    return Call(SIFT, (k.log, k.index, k.compacted), (topic_id, token, lag_ms, tombstone_ms, dirty))


def carry(
    keys: Keys, topic: str, partition: int, ranges: Sequence[str], *, token: str, held: int
) -> Call[CarryReply]:
    """The entries of these ranges (first id, last id, first id, ...) stand in the twin too, behind
    the `held` entries that do by now."""
    k = keys.partition(topic, partition)
    return Call(CARRY, (k.stream, k.log, k.compacted), (token, held, *ranges))


def put(
    keys: Keys, topic: str, partition: int, *, token: str, held: int, id: str, fields: Sequence[Arg]
) -> Call[PutReply]:
    """A rewritten entry stands in the twin, behind the `held` entries that do by now."""
    k = keys.partition(topic, partition)
    return Call(PUT, (k.log, k.compacted), (token, held, id, *fields))


def swap(
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
) -> Call[SwapReply]:
    """The twin is the log."""
    k = keys.partition(topic, partition)
    return Call(
        SWAP,
        (k.stream, k.log, k.index, k.compacted, k.aborted),
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
