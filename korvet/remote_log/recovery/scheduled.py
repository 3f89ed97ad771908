"""Scheduled records in snapshots: they wait in Redis alone, so that segments do not hold them.

Rules
- All rows of a partition are in the snapshot, or none: from MAX_BYTES on, only how many they are.
- A restored record is appended when it is due, or at once if it is due already. One that was
  appended between snapshot and loss is appended again, so that none is lost.
"""

from asyncio import gather
from collections.abc import Awaitable, Callable, Mapping
from itertools import compress

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.log.unchanged import LOOKED_AT
from korvet.remote_log.recovery.snapshot import ScheduledRecords, TopicState
from korvet.scripts.call import Arg
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore

Pause = Callable[[int, int], Awaitable[None]]
"""Waits after some partitions or groups were read: how many, and how many reads there are."""
AT_ONCE = 256
"""Max rows of one call."""
MAX_BYTES = 8 << 20
"""Max bytes of rows in a snapshot: it is written in one piece, up to once in a second."""
NO_LIMIT = 2**53
DELAYED = 2**50
"""Scores from it on are those of records with a delay."""


async def capture_scheduled(
    store: AsyncStore, keys: Keys, topics: Mapping[str, TopicState], pause: Pause
) -> list[ScheduledRecords]:
    """Return the records that wait, of the partitions that have any."""
    found, room = [], MAX_BYTES
    places = [
        (topic, number)
        for topic, state in sorted(topics.items())
        for number in range(state.definition.partitions)
    ]
    for some in chunks(places, LOOKED_AT):
        exist = await gather(
            *(
                store.submit_command("EXISTS", keys.partition(topic, number).scheduled)
                for topic, number in some
            )
        )
        for topic, number in compress(some, exist):
            call = keys.partition(topic, number, topics[topic].definition.id).schedule_list(most=0)
            reply = await store.run(call)
            if reply.error or not reply.records:
                continue
            rows = await read_rows(store, keys, topic, number) if reply.size <= room else []
            room -= sum(len(row) for _, row in rows)
            found.append(ScheduledRecords(topic, number, reply.records, rows))
        await pause(len(some), 2 * len(places))
    return found


async def read_rows(
    store: AsyncStore, keys: Keys, topic: str, number: int
) -> list[tuple[int, bytes]]:
    """Return due time and row of the partition's scheduled records, in order."""
    names, rows = keys.partition(topic, number), []
    flat = await store.command("ZRANGE", names.scheduled, 0, -1, "WITHSCORES")
    ahead = int(await store.command("HGET", names.log, "scheduled_ahead") or 0)
    pairs = sorted(
        zip(flat[::2], (_due(int(float(score)), ahead) for score in flat[1::2]), strict=True),
        key=lambda pair: (pair[1], pair[0]),
    )
    for some in chunks(pairs, AT_ONCE):
        found = await store.command("HMGET", names.scheduled_records, *(name for name, _ in some))
        rows += [
            (due, bytes(row))
            for (_, due), row in zip(some, found, strict=True)
            if row is not None  # appended or cancelled meanwhile
        ]
    return rows


def _due(score: int, ahead: int) -> int:
    """Return the due time of a score; lua/lib/schedule.lua has its two forms."""
    return score if score < DELAYED else score - DELAYED - ahead


async def restore_scheduled(
    store: AsyncStore, keys: Keys, topic_id: str, waiting: ScheduledRecords
) -> tuple[ErrorCode, int]:
    """Schedule the partition's records again; return an error and their number."""
    count = 0
    for rows in chunks(waiting.rows, AT_ONCE):
        args: list[Arg] = []
        for due, row in rows:
            records, arguments = _arguments(due, row)
            args += arguments
            count += records
        reply = await store.run(
            keys.partition(waiting.topic, waiting.partition, topic_id).schedule_add(
                count=0,
                max_count=NO_LIMIT,
                max_bytes=NO_LIMIT,
                channel=keys.schedule_channel(),
                rows=len(rows),
                rest=args,
            )
        )
        if reply.error:
            return ErrorCode(reply.error), count
    return ErrorCode.NONE, count


def _arguments(due: int, row: bytes) -> tuple[int, list[Arg]]:
    """Return a row's records and its arguments for schedule.add; lua/lib/schedule.lua has both."""
    count, size, max_timestamp, length, fields = row.split(b":", 4)
    at = int(length)
    return int(count), ["at", due, fields[:at], count, size, max_timestamp, fields[at:]]
