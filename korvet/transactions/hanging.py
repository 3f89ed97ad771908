"""Find hanging transactions and discard their offsets in groups (KIP-664).

A Redis failover can lose a transactional id but keep its open transaction in partitions and groups:
on a Redis Cluster they are in different slots.

Rules
- A transaction is identified by its producer id and its number. Its id records each member
  (partition or group) before the member is written to. So a transaction that no id has, with that
  member in it, hangs: no broker will end it.
- Partitions are left to an administrator, as in Kafka (WriteTxnMarkers). Offsets that a group holds
  for a hanging transaction are discarded when a client asks for stable offsets, once they are older
  than transaction.max.timeout.ms: no Kafka tool does that.
"""

from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic, time
from typing import NamedTuple

from korvet.base import logfmt
from korvet.topics.node import Node
from korvet.transactions.coordinator import TransactionCoordinator
from korvet.transactions.members import group_member, member_names

OPEN_STATES = (b"Ongoing", b"PrepareCommit", b"PrepareAbort")
CHECK_INTERVAL_S = 60.0
"""Shortest time between two checks of one group."""
MAX_GROUPS = 1_000
"""Groups whose last check is kept in memory."""

logger = logfmt.get("transactions")


class Participation(NamedTuple):
    """Membership of a partition or group in a transaction: producer id and transaction number."""

    producer_id: int
    transaction: int
    member: str


@dataclass(eq=False, repr=False)
class HangingTransactions:
    """Looks for open transactions that no transactional id has."""

    node: Node
    transactions: TransactionCoordinator

    def __post_init__(self) -> None:
        self.next_checks: dict[str, float] = {}
        """Group to the monotonic time of its next check."""

    async def find_owned(self, asked: Collection[Participation]) -> set[Participation]:
        """Return those that a transactional id has: they do not hang.

        Reads every transactional id once, however many are asked for.
        """
        wanted: dict[tuple[int, int], set[Participation]] = {}
        for part in asked:
            wanted.setdefault((part.producer_id, part.transaction), set()).add(part)
        found: set[Participation] = set()
        if not wanted:
            return found
        ids = await self.transactions.list_ids()
        async for _, state in self.transactions.describe_all(ids):
            parts = wanted.get((state.producer_id, state.transaction))
            if parts and not state.error and state.state in OPEN_STATES:
                members = set(member_names(state.members))
                found |= {part for part in parts if part.member in members}
        return found

    async def discard_offsets(self, group_id: str) -> bool:
        """Discard the group's offsets of hanging transactions; return whether there were any.

        Checks a group at most once in CHECK_INTERVAL_S.
        """
        if not self._is_due(group_id):
            return False
        flat = await self.node.store.command("HGETALL", self.node.keys.group(group_id).txn_offsets)
        # The broker's clock is exact enough: checked too early, the transaction still has its id.
        max_age_ms = self.node.settings().integer("transaction.max.timeout.ms")
        oldest_ms = int(time() * 1000) - max_age_ms
        member, epochs = group_member(group_id), dict[Participation, int]()
        for field, text in zip(flat[::2], flat[1::2], strict=True):
            number, epoch, is_open, since_ms, _ = map(int, text.split())
            if is_open and since_ms < oldest_ms:
                epochs[Participation(int(field), number, member)] = epoch
        hanging = epochs.keys() - await self.find_owned(epochs.keys())
        for part in hanging:
            logger.warning(
                "hanging transaction discarded", group=group_id, producer=part.producer_id
            )
            call = self.node.keys.group(group_id).txn_complete(
                producer_id=part.producer_id,
                producer_epoch=epochs[part],
                transaction=part.transaction,
                committed=0,
            )
            while (await self.node.store.run(call)).more:
                pass
        return bool(hanging)

    def _is_due(self, group_id: str) -> bool:
        now = monotonic()
        if now < self.next_checks.get(group_id, 0.0):
            return False
        if len(self.next_checks) >= MAX_GROUPS:
            self.next_checks.clear()
        self.next_checks[group_id] = now + CHECK_INTERVAL_S
        return True
