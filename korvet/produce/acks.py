"""What acks asks for beside Redis having applied a write: replicas that have it, the disk too.

- acks=N above 1 (Produce 0-2) wants N copies: Redis's own and N - 1 replicas'
- acks=-1 wants what acks.all.wait.replicas and acks.all.fsync say, if anything
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from korvet import logfmt
from korvet.config.values import Settings
from korvet.context import Context
from korvet.store.errors import StoreError

log = logfmt.get("acknowledging")


class DurabilityRequirement(NamedTuple):
    """What to wait for."""

    replicas: int
    fsync: bool


def durability_required(acks: int, context: Context) -> DurabilityRequirement | None:
    """None when the reply of the script is all there is to wait for."""
    if acks in (0, 1):
        return None
    if acks > 1:
        return DurabilityRequirement(acks - 1, False)
    return _of_all(context.services.settings)


@lru_cache(maxsize=8)
def _of_all(settings: Settings) -> DurabilityRequirement | None:
    """What acks=-1 wants under these settings."""
    found = DurabilityRequirement(
        settings.integer("acks.all.wait.replicas"), settings.flag("acks.all.fsync")
    )
    return found if found.replicas or found.fsync else None


async def enough_replicas(
    wanted: DurabilityRequirement, streams: Iterable[str], context: Context
) -> bool:
    """Whether there are so many replicas at all. Nothing has to be written to know that."""
    if not wanted.replicas:
        return True
    try:
        return all([await context.services.copies.replicas(s) >= wanted.replicas for s in streams])
    except StoreError:
        return False


def runs_of(streams: Iterable[str], context: Context) -> dict[str, str]:
    """One of these streams by each run of a server that is to take what is written to them."""
    return {context.store.run_of(stream): stream for stream in streams}


async def wait_until_durable(
    wanted: DurabilityRequirement, runs: Mapping[str, str], timeout_ms: int, context: Context
) -> bool:
    """Whether what was written has its copies within the time; `runs` is from before it was."""
    try:
        for run, stream in runs.items():
            done = await context.services.copies.wait(
                stream,
                run=run,
                replicas=wanted.replicas,
                fsync=wanted.fsync,
                timeout_s=max(timeout_ms, 0) / 1000,
            )
            if not done:
                return False
    except StoreError as error:
        log.warning("copies cannot be waited for", reason=str(error))
        return False
    return True
