"""Copy partitions as soon as a segment has been appended to them."""

import asyncio
from collections.abc import Awaitable, Callable

from korvet.remote_log.copy_demand import CopyDemand, PartitionDemand
from korvet.remote_log.store import RemoteStorageError
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

Copy = Callable[[Topic, int], Awaitable[int]]
"""Copies a partition's next segment if it is due, and returns its bytes."""
LogFailure = Callable[[str, int, Exception], None]


async def follow(
    demand: CopyDemand, copy: Copy, most: Callable[[], int], log_failure: LogFailure
) -> None:
    """Copy what is due until cancelled, at most so many partitions at a time."""
    running: set[asyncio.Task[None]] = set()
    demand.is_followed = True
    try:
        while True:
            place = await demand.next()
            while len(running) >= most():
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(_copy_one(demand, place, copy, log_failure))
            running.add(task)
            task.add_done_callback(running.discard)
    finally:
        demand.is_followed = False
        for task in running:
            task.cancel()


async def _copy_one(
    demand: CopyDemand, place: PartitionDemand, copy: Copy, log_failure: LogFailure
) -> None:
    """Copy one segment of a partition: others that are due follow before its next one."""
    size = 0
    try:
        size = await copy(place.topic, place.number)
    # ValueError: a batch of another Redis client is malformed.
    except (StoreError, RemoteStorageError, ValueError) as error:
        log_failure(place.topic.name, place.number, error)
    finally:
        demand.done(place, is_copied=size > 0)
