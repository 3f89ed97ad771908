"""Remove archived records from the log once they are old enough.

Rules
- The log's newest timestamp does not cover two kinds of records. Records without a timestamp are as
  old as their append. Foreign entries (added by XADD) are as old as the milliseconds of their ids
  in time mode; in dense mode their age is unknown, so they count as new, unless an older append
  follows them and log.find_timestamp believes them to be new.
- Read and trim up to MAX_CALLS partitions in one pipeline. Redis serves no other client meanwhile,
  so together they remove at most as much as one partition alone would.
"""

from collections.abc import Sequence

from korvet.spark.metadata import MetadataClient
from korvet.spark.partitions import PartitionBounds, PartitionLog, raise_if_gone
from korvet.spark.pipeline.next_commit import has_foreign_entries

MAX_CALLS = 32
"""Max partitions per pipeline."""
STEPS = 256
"""Max index steps (64 KiB each) that one pipeline removes: a few ms of Redis."""


def trim_archived(
    metadata: MetadataClient, archived: Sequence[tuple[PartitionLog, int]], moment: int
) -> int:
    """Remove records below each archived offset that are older than `moment`; return how many."""
    return sum(
        _trim(metadata, archived[low : low + MAX_CALLS], moment)
        for low in range(0, len(archived), MAX_CALLS)
    )


def _trim(
    metadata: MetadataClient, archived: Sequence[tuple[PartitionLog, int]], moment: int
) -> int:
    bounds, olds = _old_until(metadata, [part for part, _ in archived], moment)
    left = [
        (part, min(end, old))
        for (part, end), bound, old in zip(archived, bounds, olds, strict=True)
        if min(end, old) > bound.start
    ]
    removed = 0
    while left:
        steps = max(1, STEPS // len(left))
        replies = metadata.store.run_many(
            part.handle(metadata.keys).delete_records(before=before, steps=steps)
            for part, before in left
        )
        for (part, _), reply in zip(left, replies, strict=True):
            raise_if_gone(part, reply.error)
            removed += reply.removed
        left = [
            (part, reply.again)
            for (part, _), reply in zip(left, replies, strict=True)
            if reply.again >= 0
        ]
    return removed


def _old_until(
    metadata: MetadataClient, parts: Sequence[PartitionLog], moment: int
) -> tuple[list[PartitionBounds], list[int]]:
    """Return each log's bounds, and the offset below which every record is older than `moment`."""
    # Read in this order: records appended meanwhile are new and change none of the results.
    names = [part.handle(metadata.keys).log for part in parts]
    ends = metadata.store.commands([("HGET", name, "next") for name in names])
    _adopt(metadata, parts)
    sought = metadata.find_timestamp(parts, moment)
    states = metadata.store.commands(
        [("HMGET", name, "untimed_append_ms", "entries") for name in names]
    )
    bounds = metadata.bounds(parts)
    return bounds, [
        _old(metadata, part, moment, found, [end, *state], bound)
        for part, found, end, state, bound in zip(parts, sought, ends, states, bounds, strict=True)
    ]


def _adopt(metadata: MetadataClient, parts: Sequence[PartitionLog]) -> None:
    """Count the foreign entries of each log: its newest time is then theirs, too."""
    left = list(parts)
    while left:
        replies = metadata.store.run_many(part.handle(metadata.keys).adopt() for part in left)
        left = [part for part, reply in zip(left, replies, strict=True) if reply.more]


def _old(
    metadata: MetadataClient,
    part: PartitionLog,
    moment: int,
    older: int,
    state: Sequence[bytes | None],
    bound: PartitionBounds,
) -> int:
    appended, untimed, entries = state
    if appended is None or max(bound.newest, int(untimed or -1)) >= moment:
        if part.mode == "time" and bound.newest < moment:
            # What has no timestamp is as old as its id, whose time is not above the offset's.
            return max(older, moment << part.bits)
        foreign = has_foreign_entries(part, bound.end, int(entries or 0))
        step = _old_step(metadata, part, moment) if foreign else 0
        return max(older, step)
    if part.mode != "time" or bound.first == bound.end:
        return int(appended)
    return max(int(appended), moment << part.bits)


def _old_step(metadata: MetadataClient, part: PartitionLog, moment: int) -> int:
    """Return the last index row's offset below which all appends are older than `moment`, or 0.

    A concurrent trim shifts the rows: the result may then be too low.
    """
    index = part.handle(metadata.keys).index
    found, low, high = 0, 0, int(metadata.store.command("ZCARD", index))
    while low < high:
        middle = (low + high) // 2
        row = metadata.store.command("ZRANGE", index, middle, middle)
        offset, newest, *_ = map(int, row[0].split(b":")) if row else (0, moment)
        if newest < moment:
            found, low = offset, middle + 1
        else:
            high = middle
    return found
