"""What leaves the log once a table has it: what is old enough.

Rules
- What the log is told of times at an append leaves out two kinds of records. Those without a
  timestamp are as old as their append. Entries that others XADD stand behind all appends: they are
  as old as the milliseconds of their ids, or, where ids tell no time, not old yet: but those that
  appends stand behind are as old as these, where log.find_timestamp believes any of them to be new.
- Some partitions are asked, and trimmed, in one round trip. Redis serves nobody else meanwhile: all
  of them together let go of as much as one would alone.
"""

from collections.abc import Sequence

from korvet.pipeline.plan import had_natives
from korvet.scripts import log
from korvet.spark.catalog import Catalog, Live, Log, refuse

AT_ONCE = 32
"""Calls that Redis is given together."""
STEPS = 256
"""So many steps of their indexes, of 64 KiB each, they remove together: some milliseconds."""


def trim(catalog: Catalog, held: Sequence[tuple[Log, int]], moment: int) -> int:
    """No log has any more what lies before the offset that a table has of it and is older than the
    moment; how many entries that were."""
    return sum(
        _trim(catalog, held[low : low + AT_ONCE], moment) for low in range(0, len(held), AT_ONCE)
    )


def _trim(catalog: Catalog, held: Sequence[tuple[Log, int]], moment: int) -> int:
    bounds, olds = _old_until(catalog, [part for part, _ in held], moment)
    left = [
        (part, min(end, old))
        for (part, end), bound, old in zip(held, bounds, olds, strict=True)
        if min(end, old) > bound.start
    ]
    removed = 0
    while left:
        steps = max(1, STEPS // len(left))
        replies = catalog.store.run_many(
            log.delete_records(
                catalog.keys,
                part.topic,
                part.partition,
                topic_id=part.topic_id,
                before=before,
                steps=steps,
            )
            for part, before in left
        )
        for (part, _), reply in zip(left, replies, strict=True):
            refuse(part, reply.error)
            removed += reply.removed
        left = [
            (part, reply.again)
            for (part, _), reply in zip(left, replies, strict=True)
            if reply.again >= 0
        ]
    return removed


def _old_until(catalog: Catalog, parts: Sequence[Log], moment: int) -> tuple[list[Live], list[int]]:
    """The bounds of each log, and before which of its offsets every record is older than that."""
    # In this order: what comes meanwhile is young, and counts for none of it.
    sought = catalog.store.run_many(
        log.find_timestamp(
            catalog.keys, part.topic, part.partition, topic_id=part.topic_id, timestamp=moment
        )
        for part in parts
    )
    for part, found in zip(parts, sought, strict=True):
        refuse(part, found.error)
    names = [catalog.keys.partition(part.topic, part.partition).log for part in parts]
    told = catalog.store.commands(
        [("HMGET", name, "next", "untimed_append_ms", "entries") for name in names]
    )
    bounds = catalog.bounds(parts)
    return bounds, [
        _old(catalog, part, moment, int(found.offset), state, bound)
        for part, found, state, bound in zip(parts, sought, told, bounds, strict=True)
    ]


def _old(
    catalog: Catalog,
    part: Log,
    moment: int,
    older: int,
    state: Sequence[bytes | None],
    bound: Live,
) -> int:
    appended, untimed, entries = state
    if appended is None or max(bound.newest, int(untimed or -1)) >= moment:
        natives = had_natives(part, bound.end, int(entries or 0))
        step = _old_step(catalog, part, moment) if natives else 0
        return max(older, step)
    if part.mode != "time" or bound.first == bound.end:
        return int(appended)
    return max(int(appended), moment << part.bits)


def _old_step(catalog: Catalog, part: Log, moment: int) -> int:
    """The last step of the index before which all that was appended is older than the moment, or 0.
    A trim meanwhile moves the steps: then there may be a later one."""
    index = catalog.keys.partition(part.topic, part.partition).index
    found, low, high = 0, 0, int(catalog.store.command("ZCARD", index))
    while low < high:
        middle = (low + high) // 2
        row = catalog.store.command("ZRANGE", index, middle, middle)
        offset, newest, *_ = map(int, row[0].split(b":")) if row else (0, moment)
        if newest < moment:
            found, low = offset, middle + 1
        else:
            high = middle
    return found
