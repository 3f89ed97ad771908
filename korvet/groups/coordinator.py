"""Groups as one broker process works on them: calls on a group, and what they need around them.

Rules
- All state is in Redis and moves in scripts; what is kept here are hints that save round trips.
- A script refuses to work on a group in which something is due: then the group is ticked, and the
  call runs again. So whoever comes by drives the group, and no decision is made on a dead member.
- A group stands in the registry before its first write: a topic's deletion must know it.
- Every deadline has somebody who looks at the group in time: the list of due groups holds a moment
  that is no later than the group's next deadline.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from korvet import logfmt
from korvet.bounded import AT_ONCE
from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.groups.heartbeat_batcher import HeartbeatBatcher
from korvet.groups.offset_commit import Row, place_of
from korvet.keys import Keys, decode_group, encode_group
from korvet.scripts import group as scripts
from korvet.scripts import log
from korvet.scripts.call import Call, Reply
from korvet.scripts.group import JoinReply, SyncReply
from korvet.store.async_store import AsyncStore
from korvet.store.errors import StoreError, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.topics.table import VERSION_FIELD

TICK_FIRST = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REGISTER_FIRST = ErrorCode.COORDINATOR_NOT_AVAILABLE
LONGEST_WAIT_S = 5.0
"""A waiting member looks at least so often, should a ring be lost with Redis's connection."""
HOLD_MS = 10_000
CLAIM = 100
SILENCE_S = 2.5
"""A broker that looks for due groups all the time and has not had an answer for so long could hear
no member: Redis was away or stood still, or the broker did."""


R = TypeVar("R", bound=Reply)

logger = logfmt.get("groups")


class GroupCoordinator:
    """The groups of one namespace, as one broker process reaches them."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        settings: Callable[[], Settings],
        wake: Notifier | None = None,
        on_rebalance: Callable[[int], None] | None = None,
        present_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._keys = keys
        self._settings = settings
        self._wake = wake
        self._on_rebalance = on_rebalance
        self._present_ms = present_ms
        self._answered_at: float | None = None
        self._back_at: float | None = None
        self._scheduled: dict[str, float] = {}
        self.beats = HeartbeatBatcher(store, keys, self)

    async def run(self, group_id: str, make: Callable[[int], Call[R]]) -> R:
        """The reply of a call on the group; `make(registered)` builds it, maybe several times."""
        registered = 0
        while True:
            reply = await self._store.run(make(registered))
            error = getattr(reply, "error", 0)
            if error == TICK_FIRST:
                await self.tick(group_id)
            elif error == REGISTER_FIRST and not registered:
                await self._store.run(scripts.register(self._keys, group=group_id))
                registered = 1
            else:
                self._began(getattr(reply, "began", 0))
                if registered:
                    await self._stay_registered(group_id)
                await self.watch(group_id, getattr(reply, "wait_ms", -1))
                return reply

    async def _stay_registered(self, group_id: str) -> None:
        """The group is in the registry, also if somebody who had deleted the one before struck it
        between its registration and its first write. Whoever does so later finds it written."""
        if not await self._store.command("HEXISTS", self._keys.groups(), encode_group(group_id)):
            await self._store.run(scripts.register(self._keys, group=group_id))

    async def join(
        self, group_id: str, instance: str, make: Callable[[int], Call[JoinReply]]
    ) -> JoinReply:
        """The member's place in the generation that follows, or a refusal."""
        reply = await self.run(group_id, make)
        if reply.error or not reply.waiting:
            return reply
        keys, member = self._keys, reply.member.decode()

        def look(_: int) -> Call[JoinReply]:
            return scripts.poll_join(keys, group_id, member=member, instance=instance)

        async with self._ears().listen([keys.group(group_id).group]) as bell:
            while True:
                reply = await self.run(group_id, look)
                if reply.error or not reply.waiting:
                    return reply
                await bell.wait(_patience(reply.wait_ms))

    async def sync(
        self,
        group_id: str,
        make: Callable[[int], Call[SyncReply]],
        again: Callable[[int], Call[SyncReply]],
    ) -> SyncReply:
        """The member's assignment as soon as the leader has spoken, or a refusal."""
        reply = await self.run(group_id, make)
        if reply.error or not reply.waiting:
            return reply
        async with self._ears().listen([self._keys.group(group_id).group]) as bell:
            while True:
                reply = await self.run(group_id, again)
                if reply.error or not reply.waiting:
                    return reply
                await bell.wait(_patience(reply.wait_ms))

    def _began(self, rebalances: int) -> None:
        if rebalances and self._on_rebalance is not None:
            self._on_rebalance(rebalances)

    def _ears(self) -> Notifier:
        assert self._wake is not None, "only brokers wait"
        return self._wake

    def unwatched(self, group_id: str, wait_ms: int) -> bool:
        """Whether nobody is known to look at the group within `wait_ms`; nobody has to where that
        is negative."""
        if wait_ms < 0:
            return False
        now = monotonic()
        return not now < self._scheduled.get(group_id, 0.0) <= now + wait_ms / 1000 + 0.05

    async def watch(self, group_id: str, wait_ms: int) -> None:
        """Somebody looks at the group within `wait_ms`, unless that is negative."""
        if not self.unwatched(group_id, wait_ms):
            return
        if len(self._scheduled) > 100_000:
            self._scheduled.clear()
        self._scheduled[group_id] = monotonic() + wait_ms / 1000
        try:
            await self._store.run(
                scripts.schedule_tick(self._keys, group=group_id, after_ms=wait_ms)
            )
        except BaseException:
            self._scheduled.pop(group_id, None)
            raise

    async def tick(self, group_id: str) -> int:
        """What was due in the group has happened; the ms until its next deadline, -1 for none."""
        retention_ms = self._settings().integer("offsets.retention.minutes") * 60_000
        reply = await self._store.run(
            scripts.tick(
                self._keys, group_id, retention_ms=retention_ms, present_ms=self._hearing_ms()
            )
        )
        self._answered()
        self._began(reply.began)
        if reply.gone:
            logger.info("group expired", group=group_id)
            await self.strike(group_id)
        await self.unfollow(group_id, reply.expired)
        return reply.wait_ms

    def _answered(self) -> None:
        """Redis is there; if it was away for this process, then from now on."""
        now = monotonic()
        if self._answered_at is not None:
            if now - self._answered_at > SILENCE_S:
                self._back_at = now
            self._answered_at = now

    def _hearing_ms(self) -> int:
        """For how long members can be heard again; -1 if they could all the while."""
        now, present_ms = monotonic(), self._present_ms()
        if self._answered_at is not None and now - self._answered_at > SILENCE_S:
            return 0
        if self._back_at is None:
            return present_ms
        back_ms = int((now - self._back_at) * 1000)
        return back_ms if present_ms < 0 else min(back_ms, present_ms)

    async def tick_due(self) -> int:
        """Groups whose moment has passed were ticked; how many. An error on the way is raised once
        all of them had their turn."""
        store, keys = self._store, self._keys
        self._answered_at = self._answered_at or monotonic()
        claimed = await store.run(scripts.claim_due(keys, hold_ms=HOLD_MS, limit=CLAIM))
        self._answered()
        failed: StoreError | None = None
        for encoded in claimed.groups:
            group_id = decode_group(encoded.decode())
            try:
                wait_ms = await self.tick(group_id)
                await store.run(
                    scripts.release_claim(
                        keys, group=group_id, held_until=claimed.held_until, after_ms=wait_ms
                    )
                )
            except StoreError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return len(claimed.groups)

    async def delete(self, group_id: str) -> ErrorCode:
        """The group is gone with all it committed, provided it has no members."""
        keys = self._keys
        reply = await self.run(group_id, lambda _: scripts.delete(keys, group_id))
        if not reply.error:
            await self.strike(group_id)
            await self.unfollow(group_id, reply.fields)
        return ErrorCode(reply.error)

    async def follow(self, group_id: str, rows: Iterable[Row], *, move: bool = True) -> None:
        """The Redis groups of that name want what was just committed next."""
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
            # The commit stands; the Redis group follows with the next one.
            logger.warning("a Redis group did not follow", group=group_id, reason=str(error))

    async def unfollow(self, group_id: str, fields: Iterable[bytes]) -> None:
        """There are no Redis groups of that name where these commits were."""
        places = [place for place in map(place_of, fields) if place is not None]
        if group_id and places:
            await self._run_each(
                log.group_destroy(self._keys, topic, partition, group=group_id)
                for topic, partition in places
            )

    async def _run_each(self, calls: Iterable[Call[Any]]) -> None:
        """All are run, some at a time, and again while there is more for one to do. The first
        failure is raised in the end; Redis's absence at once, as each would wait for it."""
        todo, failed = iter(calls), None
        while some := list(islice(todo, AT_ONCE)):
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

    async def forget(
        self, group_id: str, fields: Sequence[str], state: str, generation: int
    ) -> ErrorCode:
        """These commits are gone; CONCURRENT_TRANSACTIONS when the group is not as it was seen."""
        keys = self._keys
        reply = await self.run(
            group_id,
            lambda _: scripts.delete_offsets(
                keys, group_id, fields, state=state, generation=generation
            ),
        )
        return ErrorCode(reply.error)

    async def strike(self, group_id: str) -> None:
        """A group that is gone is out of the registry; one that came back meanwhile is in it."""
        store, keys = self._store, self._keys
        mark = await store.command("HGET", keys.groups(), encode_group(group_id))
        if mark is None:
            return
        await store.run(scripts.unregister(keys, group=group_id, mark=mark))
        if await store.command("EXISTS", keys.group(group_id).group):
            await store.run(scripts.register(keys, group=group_id))

    async def names(self) -> list[str]:
        """Every group there is."""
        return _decoded(await self._store.command("HKEYS", self._keys.groups()))

    async def some(self, most: int) -> list[str]:
        """Not more than so many groups, the same ones as long as none come or go."""
        key = self._keys.groups()
        if await self._store.command("HLEN", key) <= most + 1:
            return sorted(await self.names())
        _, flat = await self._store.command("HSCAN", key, 0, "COUNT", most)
        return sorted(_decoded(flat[::2]))[:most]


def _decoded(fields: Iterable[bytes]) -> list[str]:
    return [decode_group(name.decode()) for name in fields if name != VERSION_FIELD.encode()]


def _patience(wait_ms: int) -> float:
    return LONGEST_WAIT_S if wait_ms < 0 else min(wait_ms / 1000, LONGEST_WAIT_S)
