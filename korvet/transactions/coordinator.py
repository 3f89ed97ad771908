"""Coordinate transactions: init, add members, prepare the end, expire.

Rules
- `transaction.end` (or `init`, `expire`) prepares the end in Redis; from then on it can only be
  completed (`completion`), by any broker.
- A broker completes it once it is as durable as acks=-1 asks for. If that wait fails, it stays
  prepared. A new epoch is durable before the producer gets it; on a cluster, so is a member before
  anything is written to it.
- Before an end is prepared a check of the id is scheduled, so that another broker completes it if
  this one dies. Check times are Redis's clock. A check schedules the next one only if no request
  scheduled one meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.groups.offset_commit import Row
from korvet.scripts.call import decode_group
from korvet.scripts.calls.namespace import TransactionScheduleCheckReply
from korvet.scripts.calls.transaction import (
    AddPartitionsReply,
    DescribeReply,
    EndReply,
    ExpireReply,
    InitReply,
)
from korvet.topics.node import Node
from korvet.transactions.completion import OnCommit, PreparedEnd, complete, prepared_end
from korvet.transactions.members import parse_partition_member

FIRST = -2
"""`seen_epoch` of the first call of a request."""
R = TypeVar("R", InitReply, EndReply)
COMPLETION_TIMEOUT_MS = 2000
"""Age at which another broker completes a prepared end."""
MAX_ATTEMPTS = 4
MIN_CHECK_INTERVAL_MS = 1000
"""Shortest time between two checks of one id, however short its transaction timeout is."""
MEMBERS_PER_CALL = 1000
EXPIRE_BATCH = 100
"""Max ids checked or described concurrently."""
NEVER_MS = 2**52
log = logfmt.get("transactions")


async def _ignore_commit(group_id: str, rows: list[Row]) -> None:
    """Default of `on_commit`."""


@dataclass(eq=False, repr=False)
class TransactionCoordinator:
    """The transactions of one store, as one broker coordinates them."""

    node: Node

    def __post_init__(self) -> None:
        self.on_commit: OnCommit = _ignore_commit
        """Called with a group and its offsets that a transaction committed."""

    async def init(
        self, transactional_id: str, *, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> InitReply:
        """Give the id an epoch that fences earlier producers; abort what they left open."""
        await self._schedule_check(transactional_id, timeout_ms)

        def attempt(fresh_id: int, earlier: InitReply | None) -> Awaitable[InitReply]:
            return self.node.store.run(
                self.node.keys.transaction(transactional_id).init(
                    timeout_ms=timeout_ms,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    fresh_id=fresh_id,
                    seen_epoch=FIRST if earlier is None else earlier.producer_epoch,
                )
            )

        mark = self._mark(transactional_id)
        reply = await self._repeat(transactional_id, attempt)
        if not reply.error:
            await self.node.store.until_durable(*mark)
        return reply

    async def add_members(
        self, transactional_id: str, producer_id: int, producer_epoch: int, members: Sequence[str]
    ) -> AddPartitionsReply:
        """Add members to the id's transaction, opening one if none is open."""
        mark = self._mark(transactional_id)
        for some in chunks(members, MEMBERS_PER_CALL) if members else (members,):
            reply = await self._add_some(transactional_id, producer_id, producer_epoch, some)
            if reply.error:
                break
        if self.node.store.is_cluster and not reply.error:
            # A failover that loses the member and keeps its records would split the transaction.
            topics = {parse_partition_member(name)[0] for name in members if name[:2] == "p:"}
            await self.node.store.until_durable(*mark, topics or None)
        return reply

    async def _add_some(
        self, transactional_id: str, producer_id: int, producer_epoch: int, members: Sequence[str]
    ) -> AddPartitionsReply:
        for attempt in range(2):
            reply = await self.node.store.run(
                self.node.keys.transaction(transactional_id).add_partitions(
                    producer_id=producer_id, producer_epoch=producer_epoch, members=members
                )
            )
            if reply.error != ErrorCode.CONCURRENT_TRANSACTIONS or attempt:
                break
            await self._complete_prepared(transactional_id)
        return reply

    async def verify_member(
        self, transactional_id: str, producer_id: int, producer_epoch: int, member: str
    ) -> AddPartitionsReply:
        """Return the number of the open transaction if the member is in it."""
        return await self.node.store.run(
            self.node.keys.transaction(transactional_id).verify(
                producer_id=producer_id, producer_epoch=producer_epoch, member=member
            )
        )

    async def end(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        bump: bool,
        number: int = -1,
    ) -> EndReply:
        """Commit or abort the transaction of that number, -1 for the one that is open.

        Its markers are written. `error` says why not.
        """

        async def attempt(fresh_id: int, earlier: EndReply | None) -> EndReply:
            mark = self._mark(transactional_id)
            scheduled = self._schedule_check(transactional_id, COMPLETION_TIMEOUT_MS)
            prepared = self.node.store.submit(
                self.node.keys.transaction(transactional_id).end(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    committed=int(committed),
                    bump=int(bump),
                    fresh_id=fresh_id,
                    number=number if earlier is None else earlier.transaction,
                )
            )
            await asyncio.gather(scheduled, prepared)
            reply = prepared.result()
            if reply.pending:
                await self._complete(prepared_end(transactional_id, reply, committed), mark)
            return reply

        return await self._repeat(transactional_id, attempt)

    async def _repeat(
        self, transactional_id: str, attempt: Callable[[int, R | None], Awaitable[R]]
    ) -> R:
        """Repeat while the reply asks for a fresh producer id, or another end is prepared.

        A repetition is about what the earlier reply was about: meanwhile the client may have
        repeated its request at another broker, and gone on.
        """
        fresh_id, reply = -1, None
        for _ in range(MAX_ATTEMPTS):
            reply = await attempt(fresh_id, reply)
            if reply.fresh:
                fresh_id = (
                    await self.node.store.run(self.node.keys.producer_allocate())
                ).producer_id
            elif reply.error == ErrorCode.CONCURRENT_TRANSACTIONS:
                await self._complete_prepared(transactional_id)
            else:
                break
        assert reply is not None
        return reply

    async def describe(self, transactional_id: str) -> DescribeReply:
        """Return the state of one id."""
        return await self.node.store.run(self.node.keys.transaction(transactional_id).describe())

    async def describe_all(self, ids: Sequence[str]) -> AsyncIterator[tuple[str, DescribeReply]]:
        """Yield the state of each id, reading EXPIRE_BATCH at a time.

        A pipeline of all of them would delay other clients.
        """
        for batch in chunks(ids, EXPIRE_BATCH):
            states = await asyncio.gather(*map(self.describe, batch))
            for row in zip(batch, states, strict=True):
                yield row

    async def list_ids(self) -> list[str]:
        """Return every transactional id."""
        found = await self.node.store.command("ZRANGE", self.node.keys.transactions(), 0, -1)
        return [decode_group(raw.decode()) for raw in found if not raw.startswith(b":")]

    async def expire(
        self, transactional_id: str, *, forget_ms: int, completion_timeout_ms: int
    ) -> ExpireReply:
        """Apply the id's timeouts and complete an end that was prepared too long ago."""
        mark = self._mark(transactional_id)
        reply = await self.node.store.run(
            self.node.keys.transaction(transactional_id).expire(
                forget_ms=forget_ms, completion_timeout_ms=completion_timeout_ms
            )
        )
        if reply.pending:
            end = prepared_end(transactional_id, reply, bool(reply.committed))
            await self._complete(end, mark)
        return reply

    async def expire_due(self, *, forget_ms: int) -> int:
        """Check at most EXPIRE_BATCH ids that are due; return how many.

        Raises the first error after all of them were checked.
        """
        flat = (
            await self.node.store.run(self.node.keys.transaction_list_due(limit=EXPIRE_BATCH))
        ).ids
        outcomes = await asyncio.gather(
            *(
                self._expire_one(decode_group(raw.decode()), int(float(due_ms)), forget_ms)
                for raw, due_ms in zip(flat[::2], flat[1::2], strict=True)
            ),
            return_exceptions=True,
        )
        for error in outcomes:
            if error is not None:
                raise error
        return len(outcomes)

    async def _expire_one(self, transactional_id: str, due_ms: int, forget_ms: int) -> None:
        """Check the id and schedule its next check, also if this one fails."""
        wait_ms = COMPLETION_TIMEOUT_MS
        try:
            reply = await self.expire(
                transactional_id, forget_ms=forget_ms, completion_timeout_ms=COMPLETION_TIMEOUT_MS
            )
            wait_ms = -1 if reply.wait_ms < 0 else max(reply.wait_ms, MIN_CHECK_INTERVAL_MS)
        finally:
            await self.node.store.run(
                self.node.keys.transaction_schedule_check(
                    id=transactional_id, after_ms=wait_ms, seen=due_ms
                )
            )

    async def abort_lost(self, lost: Collection[str] | None) -> None:
        """Abort each open transaction with one of these members; None: each that is open.

        Redis has lost records of them. Their producers are fenced; one with another epoch by now
        has begun another transaction, which stays open.
        """
        async for transactional_id, state in self.describe_all(await self.list_ids()):
            members = {member.decode() for member in state.members}
            if state.state == b"Ongoing" and (lost is None or not members.isdisjoint(lost)):
                log.warning("transaction aborted: Redis lost its records", id=transactional_id)
                await self.init(
                    transactional_id,
                    timeout_ms=state.timeout_ms,
                    producer_id=state.producer_id,
                    producer_epoch=state.producer_epoch,
                )

    async def _complete_prepared(self, transactional_id: str) -> None:
        """Complete a prepared end of the id, whichever broker prepared it."""
        await self.expire(transactional_id, forget_ms=NEVER_MS, completion_timeout_ms=0)

    def _schedule_check(
        self, transactional_id: str, after_ms: int
    ) -> asyncio.Future[TransactionScheduleCheckReply]:
        """Schedule a check of the id, to be run by any broker."""
        return self.node.store.submit(
            self.node.keys.transaction_schedule_check(id=transactional_id, after_ms=after_ms)
        )

    def _mark(self, transactional_id: str) -> tuple[str, str]:
        """Return the id's key and the run of its server, for `until_durable`."""
        key = self.node.keys.transaction(transactional_id).transaction
        return key, self.node.store.run_of(key)

    async def _complete(self, end: PreparedEnd, mark: tuple[str, str]) -> None:
        await self.node.store.until_durable(*mark, end.topics)
        await complete(self.node, end, self.on_commit)
