"""The leader epoch: it is raised when Redis may have lost records, so that clients notice.

Rules
- All partitions have one epoch, in the cluster's hash. A server of Redis that was not seen before
  (restart, failover, another server) raises it, unless it is known to have lost nothing; so does a
  Redis with a lower epoch than a broker knows (an older file, FLUSHALL).
- Before a broker sends anything else to a new server, each log has begun the epoch: its row says
  where the log ended. Clients compare that with their position (OffsetForLeaderEpoch), and with a
  new epoch in Metadata they do so before they fetch on.
- A broker remembers where the logs ended that it appended to or read, and at which server. If one
  ends lower on a new server, records were lost: that is logged, and the log continues above them.
- A transaction with lost records is aborted, and its producer fenced. A broker that starts knows no
  ends: if Redis does not sync each write, it aborts all that are open.
- Every broker begins the epoch in all logs, as it cannot know how far another one is; the scripts
  do it once.
- No process uses the new server before all others have begun the epoch, with the ends that they
  know, or their time is over: `broker.raise_epoch` decides it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from time import time

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.scripts.call import Call
from korvet.scripts.calls.namespace import BrokerRaiseEpochReply
from korvet.scripts.calls.partition import BeginEpochReply
from korvet.store.async_store import AsyncStore, ignore_result
from korvet.store.errors import CommandFailed, StoreRefused, StoreUnavailable
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire import control_records

AT_ONCE = 500
"""Logs per pipeline that begin an epoch."""
ASK_S = 0.05
"""Interval at which a broker asks whether the others have begun the epoch."""
UNDEFINED = -1
"""The epoch of a client that names none."""
log = logfmt.get("log.epochs")

Connect = Callable[[], Awaitable[AsyncStore]]
Abort = Callable[[AsyncStore, Collection[str] | None], Awaitable[None]]
"""Aborts the transactions with records in partitions (`p:<topic>:<number>`); None: all of them."""


class EpochRow(msgspec.Struct, frozen=True):
    """A leader epoch above 0 of one log."""

    epoch: int
    start: int
    """Its first offset, above the one after the last record that was lost."""
    ended: int
    """The log end when it began: from there to `start` there are no records."""
    known: int
    """The end of the records that a broker knew of; those from `ended` on were lost."""


@lru_cache(maxsize=256)
def parse_rows(text: bytes | None) -> tuple[EpochRow, ...]:
    """Return the rows of a log's state, oldest first.

    Every read of a log asks for them, and they are the same in most logs: at most 50 each.
    """
    return tuple(EpochRow(*map(int, row.split(b":"))) for row in (text or b"").split())


def end_of(epoch: int, rows: Sequence[EpochRow], log_end: int) -> int:
    """Return where a leader epoch ended in a log: records above it were lost."""
    return next((row.ended for row in rows if row.epoch > epoch), log_end)


def loss_at(offset: int, rows: Sequence[EpochRow]) -> EpochRow | None:
    """Return the row of the loss between whose ends the offset is, None if there is none."""
    return next((row for row in rows if row.ended < offset < row.start), None)


def is_lost(offset: int, rows: Sequence[EpochRow]) -> bool:
    """Return whether only a reader of lost records can be at this offset.

    One that begins at the log's first entry can, too, if no record below the lost ones is left.
    """
    return loss_at(offset, rows) is not None


def lost_from(offset: int, rows: Sequence[EpochRow], first: int, log_end: int) -> int:
    """Return the first lost offset for a reader of lost records, which continues there; else -1.

    `first` is the offset of the log's first entry. Above the log's end is also one whose lost
    records no process knew of.
    """
    if offset == first:
        return -1
    if loss := loss_at(offset, rows):
        return loss.ended
    if offset > log_end:
        return rows[-1].ended if rows else log_end
    return -1


def begin_call(topic: Topic, partition: int, epoch: int, known: int) -> Call[BeginEpochReply]:
    """Return the call that begins the epoch in a log, which a broker knows up to `known`."""
    fields = control_records.entry_of(int(time() * 1000), 0, 0, False, is_batch=topic.is_batch)
    return topic.partition(partition).begin_epoch(
        epoch=epoch,
        known=known,
        size=sum(map(len, fields)),
        fields=[] if topic.is_bytes else fields,
    )


async def _syncs_each_write(store: AsyncStore) -> bool:
    """Return whether a restarted Redis has all that it acknowledged."""
    try:
        found = await store.command("CONFIG", "GET", "append*")
    except (CommandFailed, StoreRefused):
        return False  # This user may not read settings.
    settings = dict(zip(found[::2], found[1::2], strict=True))
    return settings.get(b"appendonly") == b"yes" and settings.get(b"appendfsync") == b"always"


def is_behind(known: int, epoch: int) -> bool:
    """Return whether a log has begun an epoch that the client does not know yet.

    It is to compare its position with that before it reads on: among records of both epochs it
    could no longer say which it has read.
    """
    return 0 <= known < epoch


class LeaderEpochs:
    """The leader epoch as this broker knows it, and the ends of the logs that it has seen."""

    def __init__(self, node: Node, name: str, connect: Connect, abort: Abort) -> None:
        self.epoch = 0
        self._name = name
        """The name of this process among those that may know of lost records."""
        self._others = b""
        """These processes, as of the last answer."""
        self._store = node.store
        self._keys = node.keys
        self._topics = node.topics
        self._metrics = node.metrics
        self._connect = connect
        self._abort = abort
        self._seen: dict[tuple[str, int], tuple[int, str]] = {}
        """Topic id and partition to the greatest log end seen, and the history of its server."""
        self._lost: set[str] = set()
        """Partitions with lost records whose transactions are still to be aborted."""
        self._accepted: frozenset[str] = frozenset()
        self._accepting: dict[str, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    def check(self, current: int) -> ErrorCode:
        """Return the error for the epoch that a client names as current."""
        if current > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        is_current = current in (UNDEFINED, self.epoch)
        return ErrorCode.NONE if is_current else ErrorCode.FENCED_LEADER_EPOCH

    def saw(self, topic: Topic, partition: int, end: int) -> None:
        """Note that the log has reached this end."""
        known = topic.id, partition
        if self._seen.get(known, (-1, ""))[0] < end:
            self._seen[known] = end, self._store.history_of(topic.partition(partition).stream)

    async def start(self, *, is_clean: bool = False) -> None:
        """Begin the epoch in all logs, if Redis is new and does not count as `is_clean`.

        From now on a new server is accepted only after that.
        """
        await self._renew(self._store, is_clean=is_clean)
        self._store.accept_server = self._accept

    async def renew(self) -> None:
        """Read the epoch again: Redis may have lost it, or another broker may have raised it.

        It does not wait for others: this broker has waited at each server that it uses.
        """
        await self._renew(self._store, waits=False)

    async def follow(self, epoch: int) -> None:
        """Begin an epoch that another broker has begun in a log, if this one has not yet.

        Raises StoreError. In between, clients would learn the earlier one again from Metadata.
        """
        if epoch > self.epoch:
            if self._following is None or self._following.done():
                self._following = asyncio.create_task(self.renew())
                ignore_result(self._following)  # the requests that wait may be cancelled
            await asyncio.shield(self._following)

    async def leave(self) -> None:
        """Note that this process ends: no later epoch waits for it."""
        await self.renew()
        await self._raise(self._store, self.epoch, leaves=True)

    async def _accept(self, run: str) -> None:
        """Return once every log has begun its epoch at this server, by all that know of it.

        Raises StoreError: the connection is then made again.
        """
        if run in self._accepted:
            return
        task = self._accepting.get(run)
        if task is None:
            task = self._accepting[run] = asyncio.create_task(self._begin_at(run))
            task.add_done_callback(lambda _: self._accepting.pop(run))
        await asyncio.shield(task)

    async def _begin_at(self, run: str) -> None:
        async with await self._connect() as store:
            # Of a cluster only masters are connected: another node redirects each call.
            if run not in store.histories() and not store.is_cluster:
                raise StoreUnavailable("another server is the master now")
            await self._renew(store)

    async def _raise(
        self, store: AsyncStore, begun: int, *, is_clean: bool = False, leaves: bool = False
    ) -> BrokerRaiseEpochReply:
        runs = self._accepted.union(store.histories())
        reply = await store.run(
            self._keys.broker_raise_epoch(
                sorted(runs),
                begun=begun,
                is_clean=int(is_clean),
                witness=self._name,
                leaves=int(leaves),
                by_time=1,
                witnesses=self._others,
            )
        )
        self._others = reply.witnesses
        return reply

    async def _renew(
        self, store: AsyncStore, *, is_clean: bool = False, waits: bool = True
    ) -> None:
        begun = self.epoch if self._accepted else UNDEFINED
        while True:
            reply = await self._raise(store, begun, is_clean=is_clean)
            if reply.due or reply.epoch > begun >= 0:
                await self._begin(store, reply.epoch)
                begun = reply.epoch
            elif reply.wait_ms and waits:
                await asyncio.sleep(ASK_S)
            else:
                break
        self.epoch, self._accepted = reply.epoch, frozenset(store.histories())

    async def _begin(self, store: AsyncStore, epoch: int) -> None:
        """Begin the epoch in every log, and report what was lost."""
        before = {topic.id: topic.name for topic in self._topics}
        topics = await self._topics.through(store).all()
        logs = [(topic, number) for topic in topics for number in range(topic.partitions)]
        lost = self._lost
        for some in chunks(logs, AT_ONCE):
            known = [self._known(store, topic, number) for topic, number in some]
            replies = await store.run_many(
                begin_call(topic, number, epoch, end)
                for (topic, number), end in zip(some, known, strict=True)
            )
            for (topic, number), end, reply in zip(some, known, replies, strict=True):
                if not reply.error and reply.lost >= 0:
                    lost.add(f"p:{topic.name}:{number}")
                    self._report(topic.name, number, reply.lost, end)
        if lost:
            await self._abort(store, frozenset(lost))
        elif not self._accepted and not await _syncs_each_write(store):
            await self._abort(store, None)
        count = len(lost)
        lost.clear()
        missing = before.keys() - {topic.id for topic in topics}
        for topic_id in missing:
            log.error("topic lost: Redis has no such topic", topic=before[topic_id])
        self._seen = {key: end for key, end in self._seen.items() if key[0] not in missing}
        if logs or missing:
            log.warning(
                "leader epoch raised: Redis was restarted, replaced or emptied",
                epoch=epoch,
                partitions=len(logs),
                with_lost_records=count,
            )
        self._topics.invalidate()

    def _known(self, store: AsyncStore, topic: Topic, partition: int) -> int:
        """Return the end that the log had at another server; -1 if that is not known."""
        end, run = self._seen.get((topic.id, partition), (-1, ""))
        return end if run != store.history_of(topic.partition(partition).stream) else -1

    def _report(self, topic: str, partition: int, first: int, end: int) -> None:
        log.error(
            "records lost: Redis does not have them any more",
            topic=topic,
            partition=partition,
            first=first,
            end=end,
        )
        self._metrics.lost_records.add(end - first, topic)
