"""The part of a partition that a backup has: its state at one moment."""

import asyncio
from time import monotonic

import msgspec

from korvet.remote_log.recovery.scheduled import read_rows
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.topics.table import Topic

CHECK_S = 0.05


class BackupRefused(Exception):
    """The backup cannot be made; the message says why and what to do."""


def deleted(topic: Topic) -> BackupRefused:
    """Return the refusal for a topic that was deleted during the backup."""
    return BackupRefused(
        f"Topic {topic.name} was deleted during the backup: repeat the command, which continues."
    )


class Cut(msgspec.Struct, frozen=True):
    """The part of a partition from `start` to below `end`."""

    start: int
    end: int
    next: int
    """The end of the log, above `end` if a transaction is open."""
    epoch: int
    scheduled: list[tuple[int, bytes]]
    """Scheduled records: due time in ms and row of each."""


async def find_cut(store: AsyncStore, keys: Keys, topic: Topic, number: int, wait_s: float) -> Cut:
    """Return a moment's state of the partition, without an open transaction within `wait_s`.

    Raises BackupRefused.
    """
    until = monotonic() + wait_s
    while True:
        waiting = await read_rows(store, keys, topic.name, number)
        reply = await store.run(topic.partition(number).list_offsets())
        if reply.error:
            raise deleted(topic)
        is_quiet = reply.stable >= reply.next
        if is_quiet and waiting != await read_rows(store, keys, topic.name, number):
            is_quiet = False  # a record moved to the log, or from there
        if is_quiet or monotonic() >= until:
            end = max(reply.start, min(reply.next, reply.stable))
            return Cut(reply.start, end, reply.next, reply.epoch, waiting)
        await asyncio.sleep(CHECK_S)
