"""Consume as a member of a consumer group (KIP-848), and commit in the caller's own step.

Rules
- Kafka's consumers and these see each other's commits. A member whose handler takes longer than
  the session loses its partitions; its commits are then refused.
- A commit names the offset from which the member began to read: see lua/group/commit_owned.lua.
  After a step that failed, the consumer continues from what the group has committed. Before it
  reads that, it writes its member's row: so Redis can no longer execute a step that WATCHes it.
  A step that began with `check` and did not reach its commit has failed, too.
- Records that were returned and not committed before their partition was revoked: the next step is
  refused, because another member reads them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any
from uuid import UUID

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.groups.coordinator import ROWS_PER_CALL
from korvet.groups.modern import group_timeout_ms
from korvet.groups.offset_commit import Row, parse_commit, parse_field
from korvet.library.following import FollowCalls, PartitionId, Reading, Track
from korvet.library.membership import AsyncMember
from korvet.library.publishing import OnRefused, Queued, check_queues, enqueue
from korvet.library.session import check
from korvet.library.values import KorvetError, StoredRecord
from korvet.log.position import EARLIEST, Position
from korvet.scripts.call import Call, ErrorReply
from korvet.store.redis_py import result_of
from korvet.topics.table import Topic
from korvet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

_UNSTABLE_S = 0.1
"""Seconds between two looks at offsets that wait for the end of a transaction."""
_MOVED = (
    "The group's offsets or partitions are not those with which the records were read: continue "
    "the iteration, which begins again at the committed offsets."
)


class CommitReceipt(Queued):
    """The result of a commit, known after the pipeline was executed.

    Until then `offsets` raises RuntimeError. Afterwards it raises KorvetError if the commit was
    refused, or if replicas or disk do not have it in time; and what `execute` raised if it raised.
    """

    def __init__(
        self, consumer: "AsyncConsumer", rows: Sequence[Row], calls: Sequence[Call[ErrorReply]]
    ) -> None:
        super().__init__(calls)
        self._consumer = consumer
        self._rows = rows

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        """The committed offsets, by topic and partition. Raises if the commit was refused."""
        for reply in self._settled():
            check(reply.error, _MOVED)
        self._check_durable("The commit is")
        return {(row[0], row[1]): row[2] for row in self._rows}

    def _add_reply(self, raw: object) -> None:
        super()._add_reply(raw)
        if getattr(self._replies[-1], "error", True):
            self._consumer._is_behind = True
        elif len(self._replies) == len(self._calls):
            self._consumer._committed += self._rows

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        self._consumer._is_behind = True


class AsyncConsumer(AsyncMember[StoredRecord]):
    """A member of a consumer group: iterate it with `async for`.

    An object belongs to one task at a time.
    """

    _other_types = "another type, or members of the classic protocol"

    def __init__(
        self,
        log: FollowCalls,
        group: str,
        topics: Sequence[str],
        reading: Reading,
        rebalance_timeout_ms: int,
    ) -> None:
        super().__init__(log, group, topics, reading)
        self._rebalance_ms = rebalance_timeout_ms
        self._is_behind = False
        """True after a step that failed: the records are read again from the committed offsets."""
        self._has_begun = False
        """True from `check` to the commit."""
        self._is_lost = False
        """True after a partition was revoked whose records were returned and not committed."""
        self._committed: list[Row] = []
        """Commits to which the Redis groups are not yet moved."""
        self._pending: set[tuple[str, int] | None] = set()
        """The partitions whose offsets wait for the end of a transaction."""

    @property
    def hash_tag(self) -> str:
        """The hash tag of the group: keys with it are in the slot of its commits."""
        return self._keys.offsets

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit the records that were returned, or those below an offset of each partition.

        Raises KorvetError if another member has them.
        """
        self._is_lost = False
        rows, calls = self._queue_commit(offsets=offsets)
        try:
            for reply in await self._log.store.run_many(calls):
                check(reply.error, _MOVED)
        except BaseException:
            self._is_behind = True
            raise
        self._committed += rows

    async def commit_with(
        self, pipe: Any, *, on_refused: OnRefused = "receipt", durable: str | None = None
    ) -> CommitReceipt:
        """Queue the commit of the returned records on a pipeline of redis-py or valkey-py.

        With `on_refused="error"` a refusal is an error reply, which `execute` raises. MULTI does
        not undo the commands before it: call `check` first. `durable` is that of `publish`.
        """
        durability = check_queues(pipe, durable)
        self._refuse_lost()
        rows, calls = self._queue_commit()
        receipt = CommitReceipt(self, rows, calls)
        enqueue(pipe, receipt, calls, on_refused, durability, self._log)
        return receipt

    @contextmanager
    def commit_args(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield KEYS and ARGV that commit the returned records, for `korvet.commit` in a script.

        If the block raises, the iteration continues at the committed offsets.
        """
        self._refuse_lost()
        rows, (call,) = self._queue_commit(limit=None)
        try:
            yield list(call.keys), [str(arg) for arg in call.args]
        except BaseException:
            self._is_behind = True
            raise
        self._committed += rows

    async def check(self, pipe: Any) -> None:
        """Begin a step: make a pipeline's next EXEC do nothing if the group changes before it.

        WATCHes the group's members: call it before `pipe.multi()`. Raises KorvetError if the
        member no longer has its partitions; then continue the iteration. A step that does not
        reach its commit before the next record is wanted has failed.
        """
        self._refuse_lost()
        self._has_begun = True
        await result_of(pipe.watch(self._keys.consumer_members))
        reply = await self._log.store.run(self._commit_call([]))
        check(reply.error, _MOVED)

    async def rewind(self) -> None:
        """Continue from the committed offsets."""
        self._is_behind = True

    # Membership.

    async def _prepare(self) -> None:
        if self._is_behind or self._has_begun:
            self._is_behind = self._is_full = True
            await self._beat()
            self._drop(self._owned)
            self._is_behind = self._has_begun = self._is_lost = False
        await super()._prepare()

    async def _send(self, owned: Sequence[PartitionId], *, is_full: bool = False) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            rebalance_timeout_ms=self._rebalance_ms if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            topic_partitions=[
                TopicPartitions(topic_id=UUID(hex=topic_id), partitions=[number])
                for topic_id, number in owned
            ],
        )
        session_ms = self._setting("consumer.session.timeout.ms")
        return await self._heartbeat().run_consumer(
            request, self._log.settings, self.client, session_ms
        )

    def _interval_ms(self) -> int:
        return self._setting("consumer.heartbeat.interval.ms")

    def _setting(self, name: str) -> int:
        return group_timeout_ms(self._log.dynamic_configs, self._log.settings, self.group, name)

    async def _beaten(self) -> None:
        rows, self._committed = self._committed, []
        await self._log.coordinator.redis_groups.seek(self.group, rows)

    def _drop(self, partition_ids: set[PartitionId]) -> list[Track]:
        tracks = super()._drop(partition_ids)
        self._is_lost |= any(track.is_read for track in tracks)
        return tracks

    async def _load(self, partition_ids: set[PartitionId]) -> None:
        # Pending offsets are read first: one that is committed in between is looked at again.
        fields = (
            await self._log.store.command("HKEYS", self._keys.txn_pending) if partition_ids else []
        )
        self._pending = {parse_field(field.partition(b" ")[2]) for field in fields}
        await super()._load(partition_ids)

    async def _track(self, topic: Topic, number: int) -> Track | None:
        """Read a partition from its committed offset, unless that waits for a transaction."""
        log = self._log
        if (topic.name, number) in self._pending:
            self._load_at = monotonic() + _UNSTABLE_S
            return None
        raw = await log.store.command("HGET", self._keys.offsets, topic.partition(number).stream)
        commit = parse_commit(raw) if raw else None
        committed = commit.offset if commit is not None and commit.is_of(topic) else -1
        offset = committed
        if committed < 0:
            offset = await log.find_offset(topic.name, number, self._reset)
        return Track(topic, number, offset, committed)

    # Commits.

    def _refuse_lost(self) -> None:
        if self._is_lost or self._is_behind:
            self._is_behind = True
            raise KorvetError(ErrorCode.REBALANCE_IN_PROGRESS, _MOVED)

    def _queue_commit(
        self,
        limit: int | None = ROWS_PER_CALL,
        offsets: Mapping[tuple[str, int], int] | None = None,
    ) -> tuple[list[Row], list[Call[ErrorReply]]]:
        """Return what was read since the last commit, and the calls that commit it."""
        self._has_begun = False
        rows: list[Row] = []
        cells = []
        for track in self._tracks.values():
            name, number, end = track.topic.name, track.number, track.offset
            offset = end if offsets is None else min(offsets.get((name, number), -1), end)
            if track.is_read and offset >= 0:
                stream = track.topic.partition(number).stream
                cells.append((stream, str(track.committed), offset, track.topic.id, ""))
                rows.append((name, number, offset, -1, track.topic.id, ""))
                track.committed, track.is_read = offset, offset < end
        some = [cells] if limit is None else chunks(cells, limit)
        return rows, [self._commit_call(each) for each in some]

    def _commit_call(self, cells: Sequence[tuple[str, str, int, str, str]]) -> Call[ErrorReply]:
        return self._keys.commit_owned(cells, member=self.member_id, epoch=self.member_epoch)


class ConsumeCalls(FollowCalls):
    """Consume as a member of a group."""

    async def consumer(
        self,
        group: str,
        topics: Sequence[str],
        *,
        auto_offset_reset: Position = EARLIEST,
        committed: bool = True,
        idle_s: float | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> AsyncConsumer:
        """Join a consumer group (KIP-848) and return its records in these topics, as they arrive.

        Partitions without a committed offset begin at `auto_offset_reset`. The iteration ends once
        no record has arrived for `idle_s` seconds, by default never. `committed` leaves out
        aborted transactions. A partition is given up between two records: a member that does not
        ask for the next one within `rebalance_timeout_ms` is removed.
        """
        names = [topics] if isinstance(topics, str) else topics
        for name in names:
            await self.find_topic(name)
        consumer = AsyncConsumer(
            self,
            group,
            names,
            Reading(auto_offset_reset, committed, idle_s),
            rebalance_timeout_ms,
        )
        await consumer._prepare()
        return consumer
