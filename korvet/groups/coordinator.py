"""The group coordinator: runs scripts on groups, and what has to happen around them.

Rules
- All state is in Redis and changes in scripts. This process caches only which ticks it scheduled.
- A script answers TICK_FIRST if a deadline of the group has passed: the group is ticked, then the
  call is repeated. So each request moves its group on, and no decision counts an expired member.
- A group is registered before its first write: the deletion of a topic reads the registry.
- A tick is scheduled no later than the group's next deadline; any broker runs it.
- A registration schedules a tick, and a tick repairs the registry: an existing group is added, a
  missing one is removed. So a crash between two calls heals within seconds.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from korvet import logfmt
from korvet.bounded import MAX_CONCURRENT
from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.groups.heartbeat_batcher import HeartbeatBatcher
from korvet.groups.offset_commit import Row, parse_field
from korvet.keys import Keys, decode_group, encode_group
from korvet.scripts import group as scripts
from korvet.scripts import log
from korvet.scripts.call import Call, Reply
from korvet.scripts.group import JoinReply, SyncReply, TickReply
from korvet.scripts.signals import Signal
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.topics.table import VERSION_FIELD

MAX_POLL_S = 5.0
"""Longest time between two polls of a waiting member: a notification may be lost when a connection
to Redis breaks."""
CLAIM_MS = 10_000
"""How long a claim of due groups lasts, ms."""
CLAIM_LIMIT = 100
"""Max groups per claim."""
ABSENCE_S = 2.5
"""Seconds without a reply of Redis to a broker that ticks due groups, after which it counts as
absent: Redis or the broker did not run, and no member could send a heartbeat."""
NEW_GROUP_TICK_MS = 1_000
"""First tick of a new group, ms: no later than any deadline that a JoinGroup sets."""

R = TypeVar("R", bound=Reply)
W = TypeVar("W", JoinReply, SyncReply)

logger = logfmt.get("groups")


class GroupCoordinator:
    """The groups of one namespace, as one broker process coordinates them."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        settings: Callable[[], Settings],
        notifier: Notifier | None = None,
        on_rebalance: Callable[[int], None] | None = None,
        present_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._keys = keys
        self._settings = settings
        self._notifier = notifier
        self._on_rebalance = on_rebalance
        self._present_ms = present_ms
        self._answered_at: float | None = None
        self._back_at: float | None = None
        self._tick_at: dict[str, float] = {}
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
        if creates and not self._has_tick(group_id):
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

    async def _run_once(
        self, group_id: str, make: Callable[[int], Call[R]], is_registered: bool
    ) -> R:
        call = make(int(is_registered))
        if not is_registered:
            return await self._store.run(call)
        # Registered again in the same pipeline: another broker that deleted the former group of
        # that id may have unregistered it since.
        both: list[Call[Any]] = [call, scripts.register(self._keys, group=group_id)]
        reply: R = (await self._store.run_many(both))[0]
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
            lambda _: scripts.poll_join(self._keys, group_id, member=member, instance=instance),
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
        async with self._notifier.listen([self._keys.group(group_id).group]) as subscription:
            while True:
                reply = await self.run(group_id, poll)
                if reply.error or not reply.waiting:
                    return reply
                await subscription.wait(_poll_s(reply.wait_ms))

    async def check_epoch(self, group_id: str, member: str, epoch: int) -> ErrorCode:
        """Check the epoch of a KIP-848 member; NONE in a classic group."""
        reply = await self.run(
            group_id,
            lambda _: scripts.check_epoch(self._keys, group_id, member=member, epoch=epoch),
        )
        return ErrorCode(reply.error)

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete the group and its offsets. Returns NON_EMPTY_GROUP if it has members."""
        reply = await self.run(group_id, lambda _: scripts.delete(self._keys, group_id))
        if not reply.error:
            await self._unregister(group_id)
            await self.destroy_redis_groups(group_id, reply.fields)
        return ErrorCode(reply.error)

    def _count_rebalances(self, rebalances: int) -> None:
        if rebalances and self._on_rebalance is not None:
            self._on_rebalance(rebalances)

    # Registry.

    async def _register(self, group_id: str) -> None:
        """Register the group and schedule a tick, which repairs the registry after a crash."""
        delay_ms = self._settings().integer("group.initial.rebalance.delay.ms")
        await self._schedule(
            group_id,
            min(delay_ms or NEW_GROUP_TICK_MS, NEW_GROUP_TICK_MS),
            scripts.register(self._keys, group=group_id),
        )

    async def _unregister(self, group_id: str) -> None:
        """Remove a deleted group from the registry, unless it was created again."""
        store, keys = self._store, self._keys
        mark = await store.command("HGET", keys.groups(), encode_group(group_id))
        if mark is None:
            return
        await store.run(scripts.unregister(keys, group=group_id, mark=mark))
        if await store.command("EXISTS", keys.group(group_id).group):
            await store.run(scripts.register(keys, group=group_id))

    async def list_groups(self) -> list[str]:
        """Return all group ids."""
        return _decoded(await self._store.command("HKEYS", self._keys.groups()))

    async def list_some(self, limit: int) -> list[str]:
        """Return `limit` group ids at most, the same ones while the registry does not change."""
        key = self._keys.groups()
        if await self._store.command("HLEN", key) <= limit + 1:
            return sorted(await self.list_groups())
        _, flat = await self._store.command("HSCAN", key, 0, "COUNT", limit)
        return sorted(_decoded(flat[::2]))[:limit]

    # Ticks.

    def _has_tick(self, group_id: str) -> bool:
        return monotonic() < self._tick_at.get(group_id, 0.0)

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

    async def _schedule(self, group_id: str, after_ms: int, *calls: Call[Any]) -> None:
        """Schedule a tick, and run the other calls in the same pipeline."""
        if len(self._tick_at) > 100_000:
            self._tick_at.clear()
        self._tick_at[group_id] = monotonic() + after_ms / 1000
        schedule = scripts.schedule_tick(self._keys, group=group_id, after_ms=after_ms)
        try:
            await self._store.run_many([schedule, *calls])
        except BaseException:
            self._tick_at.pop(group_id, None)
            raise

    async def tick(self, group_id: str) -> int:
        """Process the group's expired deadlines. Returns the ms until its next one, -1 for none."""
        return (await self._tick(group_id)).wait_ms

    async def _tick(self, group_id: str) -> TickReply:
        retention_ms = self._settings().integer("offsets.retention.minutes") * 60_000
        reply = await self._store.run(
            scripts.tick(
                self._keys, group_id, retention_ms=retention_ms, present_ms=self._own_present_ms()
            )
        )
        self._note_reply()
        self._count_rebalances(reply.rebalances)
        if reply.gone == 1:
            logger.info("group expired", group=group_id)
        if reply.gone:
            await self._unregister(group_id)
        await self.destroy_redis_groups(group_id, reply.expired)
        return reply

    async def tick_due(self) -> int:
        """Tick all groups that are due, and return their number. An error of one group is raised
        after the other groups were ticked."""
        store, keys = self._store, self._keys
        self._answered_at = self._answered_at or monotonic()
        claimed = await store.run(scripts.claim_due(keys, hold_ms=CLAIM_MS, limit=CLAIM_LIMIT))
        self._note_reply()
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
            scripts.release_claim(
                self._keys, group=group_id, held_until=held_until, after_ms=reply.wait_ms
            )
        ]
        if not reply.gone:
            calls.append(scripts.register(self._keys, group=group_id))
        await self._store.run_many(calls)

    def _note_reply(self) -> None:
        """Note a reply of Redis; after an absence it was the first one."""
        now = monotonic()
        if self._answered_at is not None:
            if now - self._answered_at > ABSENCE_S:
                self._back_at = now
            self._answered_at = now

    def _own_present_ms(self) -> int:
        """Return for how long members can send heartbeats again; -1 if they always could."""
        now, present_ms = monotonic(), self._present_ms()
        if self._answered_at is not None and now - self._answered_at > ABSENCE_S:
            return 0
        if self._back_at is None:
            return present_ms
        back_ms = int((now - self._back_at) * 1000)
        return back_ms if present_ms < 0 else min(back_ms, present_ms)

    # Offsets.

    async def delete_offsets(
        self, group_id: str, fields: Sequence[str], state: str, generation: int
    ) -> int:
        """Delete commits; returns an ErrorCode, or GROUP_CHANGED if the group has changed."""
        reply = await self.run(
            group_id,
            lambda _: scripts.delete_offsets(
                self._keys, group_id, fields, state=state, generation=generation
            ),
        )
        return reply.error

    async def seek_redis_groups(
        self, group_id: str, rows: Iterable[Row], *, move: bool = True
    ) -> None:
        """Move the Redis groups of that name to the committed offsets. A failure is logged only:
        the offsets are committed, and the next commit moves the Redis group."""
        if not group_id:
            return
        calls = (
            log.group_seek(
                self._keys,
                topic,
                partition,
                group=group_id,
                topic_id=topic_id,
                offset=offset,
                move=int(move),
            )
            for topic, partition, offset, _, topic_id, _ in rows
        )
        try:
            await self._run_each(calls)
        except StoreError as error:
            logger.warning("Redis group seek failed", group=group_id, reason=str(error))

    async def destroy_redis_groups(self, group_id: str, fields: Iterable[bytes]) -> None:
        """Destroy the Redis groups of that name on the streams of deleted commits."""
        partitions = [found for found in map(parse_field, fields) if found is not None]
        if group_id and partitions:
            await self._run_each(
                log.group_destroy(self._keys, topic, partition, group=group_id)
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


def _decoded(fields: Iterable[bytes]) -> list[str]:
    return [decode_group(name.decode()) for name in fields if name != VERSION_FIELD.encode()]


def _poll_s(wait_ms: int) -> float:
    return MAX_POLL_S if wait_ms < 0 else min(wait_ms / 1000, MAX_POLL_S)
