"""Extra durability for acks: wait for Redis replicas (WAIT) and fsync (WAITAOF).

- acks=N above 1 (Produce 0-2): the Redis master and N - 1 of its replicas
- acks=-1: what acks.all.wait.replicas and acks.all.fsync ask for
- acks=0 and acks=1: nothing more than the script's reply
- a decision that is executed in another slot or by a later script: as acks=-1
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from korvet.base import logfmt
from korvet.config.values import Settings
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.replica_wait import ReplicaWait

log = logfmt.get("produce.acks")


DECISION_WAIT_MS = 10_000
"""Longest wait for a decision. After it the decision remains, to be executed later."""


class DurabilityRequirement(NamedTuple):
    """The replicas, and the fsync, to wait for."""

    replicas: int
    fsync: bool


def durability_required(acks: int, settings: Settings) -> DurabilityRequirement | None:
    """Return what to wait for after the script's reply, None for nothing."""
    if acks in (0, 1):
        return None
    if acks > 1:
        return DurabilityRequirement(acks - 1, False)
    return _of_all(settings)


@lru_cache(maxsize=8)
def _of_all(settings: Settings) -> DurabilityRequirement | None:
    """Return what acks=-1 waits for under these settings."""
    found = DurabilityRequirement(
        settings.integer("acks.all.wait.replicas"), settings.flag("acks.all.fsync")
    )
    return found if found.replicas or found.fsync else None


async def enough_replicas(
    required: DurabilityRequirement, streams: Iterable[str], replica_wait: ReplicaWait
) -> bool:
    """Return whether the master of each stream has that many replicas online now."""
    if not required.replicas:
        return True
    try:
        return all([await replica_wait.replicas(s) >= required.replicas for s in streams])
    except StoreError:
        return False


async def wait_until_durable(
    required: DurabilityRequirement,
    runs: Mapping[str, str],
    timeout_ms: int,
    replica_wait: ReplicaWait,
) -> bool:
    """Return whether replicas and disk have the writes within the time, for each server.

    `runs` is one stream for each server run id, taken before the writes.
    """
    try:
        for run, stream in runs.items():
            durable = await replica_wait.wait(
                stream,
                run=run,
                replicas=required.replicas,
                fsync=required.fsync,
                timeout_s=max(timeout_ms, 0) / 1000,
            )
            if not durable:
                return False
    except StoreError as error:
        log.warning("replica wait failed", reason=str(error))
        return False
    return True


async def wait_for_decision(
    settings: Settings, replica_wait: ReplicaWait, key: str, run: str
) -> None:
    """Wait as an append with acks=-1 does. Raises StoreUnavailable if that fails."""
    required = durability_required(-1, settings)
    if required is None:
        return
    if not await enough_replicas(required, [key], replica_wait):
        raise StoreUnavailable("there are not enough replicas for a decision: it waits for them")
    if not await wait_until_durable(required, {run: key}, DECISION_WAIT_MS, replica_wait):
        raise StoreUnavailable("replicas or disk do not have a decision yet: it is executed later")
