"""The group coordinator: runs the scripts of groups, and schedules their ticks.

Rules
- All state is in Redis and changes in scripts. This process caches only which ticks it scheduled.
- A script answers TICK_FIRST if a deadline of the group has passed: the group is ticked, then the
  call is repeated. So each request moves its group on, and no decision counts an expired member.
- A group is registered before its first write: the deletion of a topic reads the registry.
- A tick is scheduled no later than the group's next deadline; any broker runs it.
- A registration schedules a tick, and a tick repairs the registry: an existing group is added, a
  missing one is removed. So a crash between two calls is repaired within seconds.

Time since members can reach this broker and Redis, for group.tick.

After an absence of the broker or Redis, group.tick does not expire members at once, and neither
after Redis's clock was set forward: no member could send a heartbeat in time.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from korvet.base import logfmt
from korvet.base.bounded import MAX_CONCURRENT, ByteBounded, chunks
from korvet.base.errors import ErrorCode
from korvet.groups.heartbeat_batcher import HeartbeatBatcher
from korvet.groups.offset_commit import Row, parse_field
from korvet.groups.registry import GroupRegistry, scan_fields
from korvet.scripts.call import Call, ErrorReply, Reply, Signal, decode_group
from korvet.scripts.calls.group import JoinReply, SyncReply, TickReply
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore
from korvet.store.errors import LimitReached, StoreError, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.topics.node import Node


class RedisGroups:
    """Redis groups, one per committed stream, under the consumer group's name."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def seek(self, group_id: str, rows: Iterable[Row], *, move: bool = True) -> None:
        """Move the Redis groups to the committed offsets. A failure is only logged: the offsets are
        committed, and the next commit moves the Redis group."""
        if not group_id:
            return
        calls = (
            self._keys.partition(topic, partition, topic_id).group_seek(
                group=group_id, offset=offset, move=int(move)
            )
            for topic, partition, offset, _, topic_id, _ in rows
        )
        try:
            await self._run_each(calls)
        except StoreError as error:
            logger.warning("Redis group seek failed", group=group_id, reason=str(error))

    async def destroy(self, group_id: str, fields: Iterable[bytes]) -> None:
        """Destroy the Redis groups on the streams of deleted commits."""
        partitions = [found for found in map(parse_field, fields) if found is not None]
        if group_id and partitions:
            await self._run_each(
                self._keys.partition(topic, partition).group_destroy(group=group_id)
                for topic, partition in partitions
            )

    async def _run_each(self, calls: Iterable[Call[Any]]) -> None:
        """Run all calls, some at a time, each until it has no `more`. The first failure is raised
        at the end, StoreUnavailable at once: every further call would wait for Redis."""
        todo, failed = iter(calls), None
        while some := list(islice(todo, MAX_CONCURRENT)):
            try:
                while some:
                    replies = await self._store.run_many(some)
                    some = [
                        call
                        for call, reply in zip(some, replies, strict=True)
                        if getattr(reply, "more", 0)
                    ]
            except StoreUnavailable:
                raise
            except StoreError as error:
                failed = failed or error
        if failed is not None:
            raise failed


ABSENCE_S = 2.5
"""Seconds without a reply of Redis to a broker that ticks due groups, after which it counts as
absent: Redis or the broker did not run, and no member could send a heartbeat."""

SETTLE_S = 30.0
"""Seconds after Redis's clock was set forward in which no member expires: longer than the usual
time between two heartbeats."""


class Presence:
    """The presence of one process; `cluster_ms` is that of all brokers."""

    def __init__(self, cluster_ms: Callable[[], int]) -> None:
        self._cluster_ms = cluster_ms
        self._replied_at: float | None = None
        self._back_at: float | None = None
        self._clock: tuple[int, float] | None = None

    def begin(self) -> None:
        """Begin to watch: from now on this process calls Redis continuously."""
        self._replied_at = self._replied_at or monotonic()

    def note_clock(self, redis_ms: int) -> None:
        """Note the time of Redis, which may have been set forward."""
        now, expected_ms = monotonic(), self.expected_ms()
        if expected_ms >= 0 and redis_ms - expected_ms > ABSENCE_S * 1000:
            self._back_at = now + SETTLE_S
        self._clock = (redis_ms, now)

    def expected_ms(self) -> int:
        """Return the time of Redis by this process's clock, -1 if unknown."""
        if self._clock is None:
            return -1
        redis_ms, noted_at = self._clock
        return redis_ms + int((monotonic() - noted_at) * 1000)

    def note_reply(self) -> None:
        """Note a reply of Redis, which may be the first one after an absence."""
        now = monotonic()
        if self._replied_at is not None:
            if now - self._replied_at > ABSENCE_S:
                self._back_at = max(now, self._back_at or now)
            self._replied_at = now

    def ms(self) -> int:
        """Return the ms since members can send heartbeats again; -1 if they always could."""
        now, cluster_ms = monotonic(), self._cluster_ms()
        if self._replied_at is not None and now - self._replied_at > ABSENCE_S:
            return 0
        if self._back_at is None:
            return cluster_ms
        back_ms = max(0, int((now - self._back_at) * 1000))
        return back_ms if cluster_ms < 0 else min(back_ms, cluster_ms)


MAX_POLL_S = 5.0
"""Longest time between two polls of a waiting member: a notification may be lost when a connection
to Redis breaks."""
CLAIM_MS = 10_000
"""How long a claim of due groups lasts, ms."""
CLAIM_LIMIT = 100
"""Max groups per claim."""
ROWS_PER_CALL = 500
"""Commits, or members that leave, of one script: more would hold Redis for too long."""
NEW_GROUP_TICK_MS = 1_000
"""First tick of a new group, ms: no later than any deadline that a JoinGroup sets."""

R = TypeVar("R", bound=Reply)
W = TypeVar("W", JoinReply, SyncReply)

logger = logfmt.get("groups")


class GroupCoordinator:
    """The groups of one namespace, as one broker process coordinates them."""

    def __init__(
        self,
        node: Node,
        notifier: Notifier | None = None,
        on_rebalance: Callable[[int], None] | None = None,
        present_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        store, keys = node.store, node.keys
        self.node = node
        self._notifier = notifier
        self._on_rebalance = on_rebalance
        self._presence = Presence(present_ms)
        self._tick_at = ByteBounded[str, float]("group ticks", 16 << 20)
        self.registry = GroupRegistry(store, keys)
        self.redis_groups = RedisGroups(store, keys)
        self.heartbeats = HeartbeatBatcher(store, keys, self)

    # Requests.

    async def run(
        self, group_id: str, make: Callable[[int], Call[R]], *, creates: bool = False
    ) -> R:
        """Run a call on the group; `make(is_registered)` builds it, possibly several times.

        A call that `creates` groups registers the group first, unless this process has scheduled a
        tick of it: two round trips for a new group, one for another.
        """
        is_registered = creates
        if creates and monotonic() >= self._tick_at.get(group_id, 0.0):
            await self._register(group_id)
        while True:
            reply = await self._run_once(group_id, make, is_registered)
            error = getattr(reply, "error", 0)
            if error == Signal.TICK_FIRST:
                await self.tick(group_id)
            elif error == Signal.REGISTER_FIRST:
                await self._register(group_id)
                is_registered = True
            else:
                self._count_rebalances(getattr(reply, "rebalances", 0))
                await self.schedule_tick(group_id, getattr(reply, "wait_ms", -1))
                return reply

    async def run_rows(
        self, group_id: str, rows: Sequence[Any], make: Callable[[Sequence[Any], int], Call[R]]
    ) -> list[R]:
        """Run a call for some rows at a time, one without rows too, until one is refused.

        `make(rows, is_registered)` builds it. Returns the replies.
        """
        replies: list[R] = []
        for some in chunks(rows, ROWS_PER_CALL) if rows else (rows,):
            replies.append(await self.run(group_id, partial(make, some)))
            if getattr(replies[-1], "error", 0):
                break
        return replies

    async def _run_once(
        self, group_id: str, make: Callable[[int], Call[R]], is_registered: bool
    ) -> R:
        call = make(int(is_registered))
        if not is_registered:
            return await self.node.store.run(call)
        # Registered again in the same pipeline: another broker that deleted the former group of
        # that id may have unregistered it since.
        both: list[Call[Any]] = [call, self.registry.add(group_id)]
        reply: R = (await self.node.store.run_many(both))[0]
        return reply

    async def join(
        self, group_id: str, instance: str, make: Callable[[int], Call[JoinReply]]
    ) -> JoinReply:
        """Run a JoinGroup, and wait for the member's generation."""
        reply = await self.run(group_id, make, creates=True)
        member = reply.member.decode()
        return await self._wait(
            group_id,
            reply,
            lambda _: self.node.keys.group(group_id).poll_join(member=member, instance=instance),
        )

    async def sync(
        self,
        group_id: str,
        make: Callable[[int], Call[SyncReply]],
        poll: Callable[[int], Call[SyncReply]],
    ) -> SyncReply:
        """Run a SyncGroup, and wait for the leader's assignment."""
        return await self._wait(group_id, await self.run(group_id, make), poll)

    async def _wait(self, group_id: str, reply: W, poll: Callable[[int], Call[W]]) -> W:
        """Poll, at each change of the group, until the member no longer waits."""
        if reply.error or not reply.waiting:
            return reply
        assert self._notifier is not None, "only brokers wait"
        async with self._notifier.listen([self.node.keys.group(group_id).group]) as subscription:
            while True:
                reply = await self.run(group_id, poll)
                if reply.error or not reply.waiting:
                    return reply
                limit_s = MAX_POLL_S if reply.wait_ms < 0 else reply.wait_ms / 1000
                await subscription.wait(min(limit_s, MAX_POLL_S))

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete the group and its offsets. Returns NON_EMPTY_GROUP if it has members."""
        while True:
            fields = await scan_fields(self.node.store, self.node.keys.group_offsets(group_id))
            reply = await self.run(group_id, partial(self._deletion, group_id, len(fields)))
            if reply.error != Signal.GROUP_CHANGED:
                break
        if not reply.error:
            await self.registry.remove(group_id)
            await self.redis_groups.destroy(group_id, fields)
        return ErrorCode(reply.error)

    def _deletion(self, group_id: str, commits: int, _registered: int) -> Call[ErrorReply]:
        return self.node.keys.group(group_id).delete(commits=commits)

    def _count_rebalances(self, rebalances: int) -> None:
        if rebalances and self._on_rebalance is not None:
            self._on_rebalance(rebalances)

    # Registry.

    async def _register(self, group_id: str) -> None:
        """Register the group and schedule a tick, which repairs the registry after a crash.

        Raises LimitReached if there are `max.groups`.
        """
        delay_ms = self.node.settings().integer("group.initial.rebalance.delay.ms")
        max_groups = self.node.settings().integer("max.groups")
        reply, *_ = await self._schedule(
            group_id,
            min(delay_ms or NEW_GROUP_TICK_MS, NEW_GROUP_TICK_MS),
            self.registry.add(group_id, max_groups),
        )
        if reply.error:
            self._tick_at.pop(group_id)
            reason = f"Group {group_id!r} is not created: max.groups={max_groups} exist."
            raise LimitReached(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)

    # Ticks.

    def needs_tick(self, group_id: str, wait_ms: int) -> bool:
        """Return whether a tick within `wait_ms` has to be scheduled; no if that is negative."""
        if wait_ms < 0:
            return False
        at = self._tick_at.get(group_id, 0.0)
        now = monotonic()
        return not now < at <= now + wait_ms / 1000 + 0.05

    async def schedule_tick(self, group_id: str, wait_ms: int) -> None:
        """Schedule a tick of the group within `wait_ms`, unless there is one or it is negative."""
        if self.needs_tick(group_id, wait_ms):
            await self._schedule(group_id, wait_ms)

    async def _schedule(self, group_id: str, after_ms: int, *calls: Call[Any]) -> list[Any]:
        """Schedule a tick, and run the other calls in the same pipeline. Returns their replies."""
        self._tick_at.put(group_id, monotonic() + after_ms / 1000)
        schedule = self.node.keys.group_schedule_tick(group=group_id, after_ms=after_ms)
        try:
            return (await self.node.store.run_many([schedule, *calls]))[1:]
        except BaseException:
            self._tick_at.pop(group_id)
            raise

    async def tick(self, group_id: str) -> int:
        """Process the group's expired deadlines. Returns the ms until its next one, -1 for none."""
        return (await self._tick(group_id)).wait_ms

    async def _tick(self, group_id: str) -> TickReply:
        retention_ms = self.node.settings().integer("offsets.retention.minutes") * 60_000
        reply = await self.node.store.run(
            self.node.keys.group(group_id).tick(
                retention_ms=retention_ms,
                present_ms=self._presence.ms(),
                expected_ms=self._presence.expected_ms(),
            )
        )
        self._presence.note_reply()
        self._count_rebalances(reply.rebalances)
        if reply.gone == 1:
            logger.info("group expired", group=group_id)
        if reply.gone:
            await self.registry.remove(group_id)
        await self.redis_groups.destroy(group_id, reply.expired)
        return reply

    async def tick_due(self) -> int:
        """Tick all groups that are due, and return their number. An error of one group is raised
        after the other groups were ticked."""
        store, keys = self.node.store, self.node.keys
        self._presence.begin()
        claimed = await store.run(keys.group_claim_due(hold_ms=CLAIM_MS, limit=CLAIM_LIMIT))
        self._presence.note_reply()
        self._presence.note_clock(claimed.held_until - CLAIM_MS)
        failed: StoreError | None = None
        for encoded in claimed.groups:
            try:
                await self._tick_claimed(decode_group(encoded.decode()), claimed.held_until)
            except StoreError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return len(claimed.groups)

    async def _tick_claimed(self, group_id: str, held_until: int) -> None:
        """Tick a claimed group, schedule its next tick, and make sure that it is registered."""
        reply = await self._tick(group_id)
        calls: list[Call[Any]] = [
            self.node.keys.group_release_claim(
                group=group_id, held_until=held_until, after_ms=reply.wait_ms
            )
        ]
        if not reply.gone:
            calls.append(self.registry.add(group_id))
        await self.node.store.run_many(calls)
