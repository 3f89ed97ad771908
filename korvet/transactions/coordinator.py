"""Ending transactions: decided once in Redis, then carried out by whichever broker gets to it.

Rules
- `transaction.end` (or `init`, `look`) decides; from then on the end can only be carried out.
- Carrying it out is a marker in each partition, the groups' offsets, then `transaction.complete`.
  Every one of these may be repeated, by any broker, and changes nothing the second time: the
  transaction's number tells a repetition from the next transaction.
- Before the decision the id is put down to be looked at soon, so a broker that dies in between
  leaves nothing that nobody would find. Moments are Redis's, and who has looked puts down the next
  one only where nobody asked meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import time
from typing import Any, Protocol, TypeVar

import msgspec

from korvet.errors import TOPIC_GONE, ErrorCode
from korvet.groups.offset_commit import Row, parse_commit, parse_field
from korvet.keys import Keys, decode_group
from korvet.scripts import group, log, producer, transaction
from korvet.scripts.call import Call, Reply
from korvet.scripts.log import WriteTxnMarkerReply
from korvet.scripts.transaction import (
    AddPartitionsReply,
    DescribeReply,
    EndReply,
    ExpireReply,
    InitReply,
    ScheduleCheckReply,
)
from korvet.topics.table import Topic, TopicTable
from korvet.wire import control_records

PATIENCE_MS = 2000
"""An end that was decided this long ago and is not carried out has lost its broker."""
ATTEMPTS = 4
SOONEST_MS = 1000
"""Nobody is looked at more often, however short a transaction's timeout is."""
DUE = 100
"""Ids that are looked at side by side, at most."""
FOR_EVER_MS = 2**52

R = TypeVar("R", bound=Reply)
OnCommit = Callable[[str, list[Row]], Awaitable[None]]


class Store(Protocol):
    """What ending transactions needs of a store."""

    def submit(self, call: Call[R]) -> asyncio.Future[R]: ...
    async def run(self, call: Call[R]) -> R: ...
    async def command(self, *command: Any) -> Any: ...
    def submit_command(self, *command: Any) -> asyncio.Future[Any]: ...


class Decided(msgspec.Struct, frozen=True):
    """How a transaction ends, and where that has to be said."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int
    committed: bool
    members: tuple[str, ...]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The topics and partitions that take part."""
        return [partition_of(member) for member in self.members if member.startswith("p:")]

    @property
    def groups(self) -> list[str]:
        """The groups whose offsets take part."""
        return [member[2:] for member in self.members if member.startswith("g:")]


def member_of(topic: str, partition: int) -> str:
    """A partition as a member of a transaction."""
    return f"p:{topic}:{partition}"


def member_group(group_id: str) -> str:
    """A group as a member of a transaction."""
    return f"g:{group_id}"


def partition_of(member: str) -> tuple[str, int]:
    """The topic and partition that `member_of` wrote."""
    _, topic, number = member.split(":")
    return topic, int(number)


async def _nobody(group_id: str, rows: list[Row]) -> None:
    """Nobody wants to know."""


def rows_of(flat: Sequence[bytes]) -> list[Row]:
    """Stream keys and commits as rows: topic, partition, offset, epoch, topic id, metadata."""
    rows: list[Row] = []
    for field, raw in zip(flat[::2], flat[1::2], strict=True):
        place, commit = parse_field(field), parse_commit(raw)
        if place is not None and commit is not None:
            rows.append((*place, commit.offset, commit.epoch, commit.topic_id, commit.metadata))
    return rows


class TransactionCoordinator:
    """The transactions of one store, as one broker looks after them."""

    def __init__(self, store: Store, keys: Keys, topics: TopicTable) -> None:
        self._store = store
        self._keys = keys
        self._topics = topics
        self.on_commit: OnCommit = _nobody
        """Told of a group's rows that a transaction has committed."""

    async def init(
        self, transactional_id: str, *, timeout_ms: int, producer_id: int, producer_epoch: int
    ) -> InitReply:
        """The id has an epoch that fences everybody before; what they left open is aborted."""
        await self._soon(transactional_id, timeout_ms)
        fresh_id = -1
        for _ in range(ATTEMPTS):
            reply = await self._store.run(
                transaction.init(
                    self._keys,
                    transactional_id,
                    timeout_ms=timeout_ms,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    fresh_id=fresh_id,
                )
            )
            if reply.fresh:
                fresh_id = await self._fresh_id()
            elif reply.error == ErrorCode.CONCURRENT_TRANSACTIONS:
                await self._help(transactional_id)
            else:
                break
        return reply

    async def add(
        self, transactional_id: str, producer_id: int, producer_epoch: int, members: Sequence[str]
    ) -> AddPartitionsReply:
        """The members take part in the transaction, which is open now, or `error` says why not."""
        for attempt in range(2):
            reply = await self._store.run(
                transaction.add_partitions(
                    self._keys,
                    transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    members=members,
                )
            )
            if reply.error != ErrorCode.CONCURRENT_TRANSACTIONS or attempt:
                break
            await self._help(transactional_id)
        return reply

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, member: str
    ) -> AddPartitionsReply:
        """The number of the open transaction, provided that the member takes part in it."""
        return await self._store.run(
            transaction.verify(
                self._keys,
                transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                member=member,
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
    ) -> EndReply:
        """The transaction has ended as asked, markers and all, or `error` says why not."""
        fresh_id = -1
        for _ in range(ATTEMPTS):
            reply = await self._end(
                transactional_id, producer_id, producer_epoch, committed, bump, fresh_id
            )
            if reply.fresh:
                fresh_id = await self._fresh_id()
            elif reply.error == ErrorCode.CONCURRENT_TRANSACTIONS:
                await self._help(transactional_id)
            else:
                break
        return reply

    async def view(self, transactional_id: str) -> DescribeReply:
        """What is known of the id."""
        return await self._store.run(transaction.describe(self._keys, transactional_id))

    async def views(self, ids: Sequence[str]) -> AsyncIterator[tuple[str, DescribeReply]]:
        """What is known of each, a few at a time: of very many nobody else would get an answer."""
        for at in range(0, len(ids), DUE):
            some = ids[at : at + DUE]
            for row in zip(some, await asyncio.gather(*map(self.view, some)), strict=True):
                yield row

    async def ids(self) -> list[str]:
        """Every transactional id there is."""
        found = await self._store.command("ZRANGE", self._keys.transactions(), 0, -1)
        return [decode_group(raw.decode()) for raw in found]

    async def _fresh_id(self) -> int:
        return (await self._store.run(producer.allocate(self._keys))).producer_id

    async def _help(self, transactional_id: str) -> None:
        """A decided end of the id is carried out, whoever decided it."""
        await self.look(transactional_id, forget_ms=FOR_EVER_MS, patience_ms=0)

    def _soon(self, transactional_id: str, after_ms: int) -> asyncio.Future[ScheduleCheckReply]:
        """Somebody looks at the id within `after_ms`, whatever happens to this broker."""
        return self._store.submit(
            transaction.schedule_check(self._keys, id=transactional_id, after_ms=after_ms)
        )

    async def _end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        bump: bool,
        fresh_id: int,
    ) -> EndReply:
        """The transaction has ended as asked, or was refused, or needs a fresh id."""
        watched = self._soon(transactional_id, PATIENCE_MS)
        decided = self._store.submit(
            transaction.end(
                self._keys,
                transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=int(committed),
                bump=int(bump),
                fresh_id=fresh_id,
            )
        )
        await asyncio.gather(watched, decided)
        reply = decided.result()
        if reply.pending:
            await self.carry_out(_decided(transactional_id, reply, committed))
        return reply

    async def look(self, transactional_id: str, *, forget_ms: int, patience_ms: int) -> ExpireReply:
        """What the id's timeouts ask for has been done, and what was left half done is finished."""
        reply = await self._store.run(
            transaction.expire(
                self._keys, transactional_id, forget_ms=forget_ms, patience_ms=patience_ms
            )
        )
        if reply.pending:
            await self.carry_out(_decided(transactional_id, reply, bool(reply.committed)))
        return reply

    async def look_at_due(self, *, forget_ms: int) -> int:
        """Ids that are due have been looked at, DUE at most; returns how many. An error on the way
        is raised once all of them had their turn."""
        flat = (await self._store.run(transaction.list_due(self._keys, limit=DUE))).ids
        outcomes = await asyncio.gather(
            *(
                self._look_at(decode_group(raw.decode()), int(float(moment)), forget_ms)
                for raw, moment in zip(flat[::2], flat[1::2], strict=True)
            ),
            return_exceptions=True,
        )
        for error in outcomes:
            if error is not None:
                raise error
        return len(outcomes)

    async def _look_at(self, transactional_id: str, moment: int, forget_ms: int) -> None:
        """The id was looked at, or will be again in a while: then it is in nobody's way."""
        wait_ms = PATIENCE_MS
        try:
            reply = await self.look(transactional_id, forget_ms=forget_ms, patience_ms=PATIENCE_MS)
            wait_ms = -1 if reply.wait_ms < 0 else max(reply.wait_ms, SOONEST_MS)
        finally:
            await self._store.run(
                transaction.schedule_check(
                    self._keys, id=transactional_id, after_ms=wait_ms, seen=moment
                )
            )

    async def carry_out(self, decided: Decided) -> None:
        """The end stands everywhere and the transaction is complete."""
        marked = self._mark_all(decided, await self._topics_of(decided))
        await asyncio.gather(*marked)
        if any(future.result().error in TOPIC_GONE for future in marked):
            # A topic of that name is another one by now, or gone: then nothing is open in it.
            self._topics.drop()
            again = self._mark_all(decided, await self._topics_of(decided))
            await asyncio.gather(*again)
        await asyncio.gather(*(self._resolve(decided, group_id) for group_id in decided.groups))
        await self._store.run(
            transaction.complete(
                self._keys, decided.transactional_id, transaction=decided.transaction
            )
        )

    async def _resolve(self, decided: Decided, group_id: str) -> None:
        reply = await self._store.run(
            group.txn_complete(
                self._keys,
                group_id,
                producer_id=decided.producer_id,
                producer_epoch=decided.producer_epoch,
                transaction=decided.transaction,
                committed=int(decided.committed),
            )
        )
        if reply.committed:
            await self.on_commit(group_id, rows_of(reply.committed))

    async def _topics_of(self, decided: Decided) -> dict[str, Topic]:
        """The topics that take part, none with fewer partitions than do."""
        found = await self._cached(decided)
        if any(
            name in found and number >= found[name].partitions
            for name, number in decided.partitions
        ):
            # It has grown since this broker last looked, and is written to through another.
            self._topics.drop()
            found = await self._cached(decided)
        return found

    async def _cached(self, decided: Decided) -> dict[str, Topic]:
        names = {topic for topic, _ in decided.partitions}
        found = {name: await self._topics.get(name) for name in names}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _mark_all(
        self, decided: Decided, topics: dict[str, Topic]
    ) -> Sequence[asyncio.Future[WriteTxnMarkerReply]]:
        now_ms = int(time() * 1000)
        return [
            self._store.submit(mark_call(self._keys, topics[name], number, decided, now_ms))
            for name, number in decided.partitions
            if name in topics and number < topics[name].partitions
        ]


def mark_call(
    keys: Keys, topic: Topic, partition: int, decided: Decided, now_ms: int
) -> Call[WriteTxnMarkerReply]:
    """The call that writes the marker into one partition, in its topic's layout."""
    fields = marker_of(
        topic, now_ms, decided.producer_id, decided.producer_epoch, decided.committed
    )
    return log.write_txn_marker(
        keys,
        topic.name,
        partition,
        topic_id=topic.id,
        producer_id=decided.producer_id,
        producer_epoch=decided.producer_epoch,
        transaction=decided.transaction,
        committed=int(decided.committed),
        size=sum(map(len, fields)),
        fields=fields,
    )


def marker_of(
    topic: Topic, now_ms: int, producer_id: int, epoch: int, committed: bool
) -> Sequence[bytes]:
    """A marker's entry in the topic's layout, fields and values."""
    if topic.is_batch:
        batch = bytes(control_records.control_batch(0, now_ms, producer_id, epoch, committed))
        return [b"batch", batch, b"count", b"1", b"max.timestamp", b"%d" % now_ms]
    return control_records.fields_of(now_ms, producer_id, epoch, committed)


def _decided(transactional_id: str, reply: EndReply | ExpireReply, committed: bool) -> Decided:
    return Decided(
        transactional_id,
        reply.marker_id,
        reply.marker_epoch,
        reply.transaction,
        committed,
        tuple(names(reply.members)),
    )


def names(members: Iterable[bytes]) -> list[str]:
    """Members as Redis has them, as text."""
    return sorted(member.decode("utf-8", "surrogateescape") for member in members)
