"""A group driven by its scripts alone, with the calls that a broker adds around each."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from korvet.base.errors import ErrorCode
from korvet.groups.heartbeat_batcher import heartbeats_of
from korvet.scripts.call import Call, Signal
from korvet.scripts.calls.group import (
    CommitReply,
    DescribeReply,
    JoinReply,
    LeaveReply,
    SyncReply,
    TickReply,
)
from korvet.scripts.keys import Keys
from tests.support.store_runners import Runner

KEYS = Keys()
SESSION_MS, REBALANCE_MS = 10_000, 60_000
RETENTION_MS = 7 * 24 * 3600 * 1000
TOPIC_ID = "0" * 32
TICK_MS = 4_000
"""Shorter than the absence of brokers that scripts assume after 5 s."""
Row = tuple[str, int, int, int, str, str]
R = TypeVar("R", bound=Any)
RANGE = (("range", b"what I read"),)


class ModernGroup:
    """Group `g` of a newer protocol on a runner."""

    retention_ms = RETENTION_MS
    session_ms = 45_000

    def __init__(self, runner: Runner, keys: Keys = KEYS) -> None:
        self.runner, self.keys = runner, keys.group("g")
        self.version = 1
        """The version of the topics table."""

    def send(self, call: Call[R]) -> R:
        """Run a heartbeat; tick the group first if the reply requires it."""
        while (reply := self.runner.run(call)).error == Signal.TICK_FIRST:
            self.tick()
        return reply

    def tick(self, retention_ms: int = 0) -> TickReply:
        """Process expired deadlines."""
        kept_ms = retention_ms or self.retention_ms
        return self.runner.run(self.keys.tick(retention_ms=kept_ms, present_ms=-1))


class Group:
    """A group on a runner. Member ids are `m1`, `m2`, ..."""

    def __init__(self, runner: Runner, name: str = "readers", delay_ms: int = 0) -> None:
        self.runner = runner
        self.name = name
        self.delay_ms = delay_ms
        self.next_id = 0
        self.ticks: list[TickReply] = []

    def run(self, make: Callable[[int], Call[Any]]) -> Any:
        """Run a call; tick and register the group first if the reply requires it."""
        registered = 0
        while True:
            reply = self.runner.run(make(registered))
            if reply.error == Signal.TICK_FIRST:
                self.tick()
            elif reply.error == Signal.REGISTER_FIRST:
                assert not registered
                self.runner.run(KEYS.group_register(group=self.name))
                registered = 1
            else:
                return reply

    def tick(self, retention_ms: int = RETENTION_MS, present_ms: int = -1) -> TickReply:
        reply = self.runner.run(
            KEYS.group(self.name).tick(retention_ms=retention_ms, present_ms=present_ms)
        )
        self.ticks.append(reply)
        return reply

    def join(
        self,
        member: str = "",
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        *,
        instance: str = "",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        require_member_id: int = 0,
        skip: int = 0,
        max_size: int = 1000,
        max_bytes: int = 1_000_000,
    ) -> JoinReply:
        """Send a JoinGroup; the first reply may be `waiting`."""
        if not member:
            self.next_id += 1
        fresh_id = f"m{self.next_id}"
        return self.run(
            lambda registered: KEYS.group(self.name).join(
                protocols,
                member=member,
                fresh_id=fresh_id,
                instance=instance,
                client_id="tests",
                client_host="/127.0.0.1",
                session_ms=session_ms,
                rebalance_ms=rebalance_ms,
                protocol_type=protocol_type,
                require_member_id=require_member_id,
                skip=skip,
                is_registered=registered,
                delay_ms=self.delay_ms,
                max_size=max_size,
                max_bytes=max_bytes,
            )
        )

    def poll_join(self, member: str, instance: str = "") -> JoinReply:
        return self.run(lambda _: KEYS.group(self.name).poll_join(member=member, instance=instance))

    def sync(
        self,
        member: str,
        generation: int,
        assignments: tuple[tuple[str, bytes], ...] = (),
        *,
        instance: str = "",
        protocol_type: str = "",
        protocol: str = "",
    ) -> SyncReply:
        return self.run(
            lambda _: KEYS.group(self.name).sync(
                assignments,
                member=member,
                instance=instance,
                generation=generation,
                protocol_type=protocol_type,
                protocol=protocol,
            )
        )

    def heartbeat(self, member: str, generation: int, instance: str = "") -> ErrorCode:
        return self.heartbeats((member, instance, generation))[0]

    def heartbeats(self, *beats: tuple[str, str, int]) -> list[ErrorCode]:
        """Send heartbeats in one call; return the error codes."""
        while True:
            reply = self.runner.run(heartbeats_of(KEYS, [(self.name, *beat) for beat in beats]))
            if Signal.TICK_FIRST not in reply.errors:
                return list(map(ErrorCode, reply.errors))
            self.tick()

    def leave(self, *leavers: tuple[str, str]) -> LeaveReply:
        return self.run(lambda _: KEYS.group(self.name).leave(leavers))

    def commit(
        self,
        offset: int,
        *,
        member: str = "",
        generation: int = -1,
        instance: str = "",
        partition: int = 0,
        retention_ms: int = -1,
        metadata: str = "",
    ) -> ErrorCode:
        reply = self.run(
            lambda registered: KEYS.group(self.name).commit(
                KEYS.commit_rows([("orders", partition, offset, 0, TOPIC_ID, metadata)]),
                member=member,
                instance=instance,
                generation=generation,
                allow_member_epoch=1,
                is_registered=registered,
                retention_ms=retention_ms,
            )
        )
        return ErrorCode(reply.error)

    def committed(self, partition: int = 0) -> int | None:
        field = KEYS.partition("orders", partition).stream
        raw = self.runner.command("HGET", KEYS.group_offsets(self.name), field)
        return None if raw is None else int(bytes(raw).split(b" ")[0])  # type: ignore[call-overload]

    def describe(self, full: int = 1) -> DescribeReply:
        return self.run(lambda _: KEYS.group(self.name).describe(full=full))

    @property
    def state(self) -> str:
        return self.describe(0).state.decode()

    def delete(self) -> Any:
        commits: Any = self.runner.command("HLEN", KEYS.group_offsets(self.name))
        return self.run(lambda _: KEYS.group(self.name).delete(commits=commits))

    def keys(self) -> list[str]:
        """Return every key of the group that exists."""
        k = KEYS.group(self.name)
        names = [getattr(k, field) for field in k.__struct_fields__]
        return [name for name in names if self.runner.command("EXISTS", name)]

    def stable(self, count: int = 1, **settings: Any) -> tuple[list[str], int]:
        """Make the group Stable with `count` new members; return ids, leader first, generation."""
        members = [self.join(**settings).member.decode() for _ in range(count)]
        for member in members[:1] if count > 1 else ():
            self.join(member, **settings)
        generation = 0
        leader = ""
        for _ in range(count):
            for member in members:
                reply = self.poll_join(member)
                if reply.waiting:
                    self.join(member, **settings)
        for member in members:
            reply = self.poll_join(member)
            assert not reply.waiting
            generation, leader = reply.generation, reply.leader.decode()
        assignments = tuple((member, b"for " + member.encode()) for member in members)
        self.sync(leader, generation, assignments)
        for member in members:
            assert not self.sync(member, generation).waiting
        members.sort(key=lambda member: member != leader)
        return members, generation


def commit_call(
    rows: Iterable[Row], member: str, epoch: int, allowed: int = 1
) -> Call[CommitReply]:
    """Build an OffsetCommit of a KIP-848 member."""
    return KEYS.group("g").commit(
        KEYS.commit_rows(rows),
        member=member,
        instance="",
        generation=epoch,
        allow_member_epoch=allowed,
        is_registered=1,
        retention_ms=-1,
    )
