"""Extra durability for acks: wait for Redis replicas (WAIT) and fsync (WAITAOF).

- acks=N above 1 (Produce 0-2): the Redis master and N - 1 of its replicas
- acks=-1: what `durability` and min.insync.replicas of the topic ask for
- acks=0 and acks=1: nothing more than the script's reply
- a decision that is executed in another slot or by a later script: as acks=-1
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from korvet.base import logfmt
from korvet.config.durability import Durability
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.replica_wait import ReplicaWait
from korvet.topics.table import Topic

log = logfmt.get("produce.acks")
AtServer: TypeAlias = tuple[Durability, str]
"""A durability at the server with this run id."""

DECISION_WAIT_MS = 10_000
"""Longest wait for a decision. After it the decision remains, to be executed later."""


def durability_required(acks: int, topic: Topic | None) -> Durability | None:
    """Return what to wait for after the script's reply, None for nothing."""
    if topic is None or acks in (0, 1):
        return None
    return topic.policy.acks_all if acks < 0 else Durability(acks - 1)


async def enough_replicas(
    required: Durability, streams: Iterable[str], replica_wait: ReplicaWait
) -> bool:
    """Return whether the master of each stream has that many replicas online now."""
    if not required.replicas:
        return True
    try:
        return all([await replica_wait.replicas(s) >= required.replicas for s in streams])
    except StoreError:
        return False


async def find_late(
    waits: Mapping[AtServer, str], timeout_ms: int, replica_wait: ReplicaWait
) -> set[AtServer]:
    """Return those of which replicas or disk do not have the writes within the time.

    `waits` has one stream for each; the run ids of the servers are from before the writes.
    """
    timeout_s = max(timeout_ms, 0) / 1000

    async def is_late(at: AtServer) -> bool:
        required, run = at
        try:
            return not await replica_wait.wait(
                waits[at], run=run, required=required, timeout_s=timeout_s
            )
        except StoreError as error:
            log.warning("replica wait failed", reason=str(error))
            return True

    if len(waits) == 1:  # as usual; saves a task
        return {at for at in waits if await is_late(at)}
    are_late = await asyncio.gather(*map(is_late, waits))
    return {at for at, late in zip(waits, are_late, strict=True) if late}


async def wait_for_decision(
    required: Durability | None, replica_wait: ReplicaWait, key: str, run: str
) -> None:
    """Wait as an append with acks=-1 does. Raises StoreUnavailable if that fails."""
    if required is None:
        return
    if not await enough_replicas(required, [key], replica_wait):
        raise StoreUnavailable("there are not enough replicas for a decision: it waits for them")
    if await find_late({(required, run): key}, DECISION_WAIT_MS, replica_wait):
        raise StoreUnavailable("replicas or disk do not have a decision yet: it is executed later")
