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

from collections.abc import Collection
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple

from korvet import logfmt
from korvet.scripts import group
from korvet.transactions.coordinator import member_group, names

if TYPE_CHECKING:
    from korvet.context import Context

OPEN = (b"Ongoing", b"PrepareCommit", b"PrepareAbort")
LOOKED_AT_EVERY_S = 60.0
MOST = 1_000
"""So many groups are remembered to have been looked at."""

logger = logfmt.get("transactions")


class Part(NamedTuple):
    """A member's part in the producer's transaction of that number."""

    producer_id: int
    number: int
    member: str


async def somebodys(asked: Collection[Part], context: "Context") -> set[Part]:
    """Those of them whose transaction a transactional id has, with the member in it: these will be
    ended. All ids are looked at once, however many are asked for."""
    wanted: dict[tuple[int, int], set[Part]] = {}
    for part in asked:
        wanted.setdefault((part.producer_id, part.number), set()).add(part)
    found: set[Part] = set()
    if not wanted:
        return found
    async for _, view in context.transactions.views(await context.transactions.ids()):
        parts = wanted.get((view.producer_id, view.transaction))
        if parts and not view.error and view.state in OPEN:
            members = set(names(view.members))
            found |= {part for part in parts if part.member in members}
    return found


async def let_go(group_id: str, context: "Context") -> bool:
    """Whether offsets that waited in the group wait no longer, as nobody will end their
    transaction. A group is looked at once a minute."""
    if not _is_time(group_id, context):
        return False
    flat = await context.store.command("HGETALL", context.keys.group(group_id).txn_offsets)
    # This broker's clock will do: what is looked at too early is still somebody's.
    oldest_ms = int(time() * 1000) - context.settings.integer("transaction.max.timeout.ms")
    member, epochs = member_group(group_id), dict[Part, int]()
    for field, text in zip(flat[::2], flat[1::2], strict=True):
        if not field.isdigit():
            continue
        number, epoch, is_open, since_ms = map(int, text.split())
        if is_open and since_ms < oldest_ms:
            epochs[Part(int(field), number, member)] = epoch
    left = epochs.keys() - await somebodys(epochs.keys(), context)
    for part in left:
        logger.warning("nobody will end a transaction", group=group_id, producer=part.producer_id)
        await context.store.run(
            group.txn_complete(
                context.keys,
                group_id,
                producer_id=part.producer_id,
                producer_epoch=epochs[part],
                transaction=part.number,
                committed=0,
            )
        )
    return bool(left)


def _is_time(group_id: str, context: "Context") -> bool:
    looked_at = context.services.next_hanging_check
    now = monotonic()
    if now < looked_at.get(group_id, 0.0):
        return False
    if len(looked_at) >= MOST:
        looked_at.clear()
    looked_at[group_id] = now + LOOKED_AT_EVERY_S
    return True
