"""What transactions have left open that nobody will end.

A Redis that fails over can lose what it knew of a transactional id and keep what partitions and
groups know of its transaction: on a Redis Cluster they lie in different slots.

Rules
- A transaction is known by its producer and its number, and who takes part in it is noted with the
  id before any partition or group hears of it. What no id has, with that partition or group in it,
  nobody will end.
- Partitions are left to an administrator, as in Kafka (WriteTxnMarkers). A group's offsets are let
  go of when somebody asks for stable ones, once they have waited longer than transactions may last:
  there is no tool for these.
"""

import asyncio
from time import monotonic, time

from korvet import logs
from korvet.context import Context
from korvet.scripts import group
from korvet.transactions import member_group

OPEN = (b"Ongoing", b"PrepareCommit", b"PrepareAbort")
LOOKED_AT_EVERY_S = 60.0
MOST = 1_000
"""So many groups are remembered to have been looked at."""

logger = logs.get("transactions")


async def is_somebodys(producer_id: int, number: int, member: str, context: Context) -> bool:
    """Whether a transactional id has the producer's transaction of that number, and the member in
    it: then it will be ended."""
    ids = await context.transactions.ids()
    views = await asyncio.gather(*(context.transactions.view(id) for id in ids))
    return any(
        not view.error
        and view.producer_id == producer_id
        and view.transaction == number
        and view.state in OPEN
        and member.encode("utf-8", "surrogateescape") in view.members
        for view in views
    )


async def let_go(group_id: str, context: Context) -> bool:
    """Whether offsets that waited in the group wait no longer, as nobody will end their
    transaction. A group is looked at once a minute."""
    if not _is_time(group_id, context):
        return False
    flat = await context.store.command("HGETALL", context.keys.group(group_id).waiting)
    # This broker's clock will do: what is looked at too early is still somebody's.
    oldest_ms = int(time() * 1000) - context.settings.integer("transaction.max.timeout.ms")
    found = False
    for field, text in zip(flat[::2], flat[1::2], strict=True):
        if not field.isdigit():
            continue
        number, epoch, is_open, since_ms = map(int, text.split())
        if not is_open or since_ms >= oldest_ms:
            continue
        producer_id = int(field)
        if await is_somebodys(producer_id, number, member_group(group_id), context):
            continue
        logger.warning("nobody will end a transaction", group=group_id, producer=producer_id)
        await context.store.run(
            group.resolve(
                context.keys,
                group_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction=number,
                committed=0,
            )
        )
        found = True
    return found


def _is_time(group_id: str, context: Context) -> bool:
    looked_at = context.node.memory.setdefault("let go", {})
    assert isinstance(looked_at, dict)
    now = monotonic()
    if now < looked_at.get(group_id, 0.0):
        return False
    if len(looked_at) >= MOST:
        looked_at.clear()
    looked_at[group_id] = now + LOOKED_AT_EVERY_S
    return True
