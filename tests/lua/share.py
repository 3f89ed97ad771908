"""A share group in partition 0 for the tests of lua/share, through any runner."""

from dataclasses import dataclass
from typing import Any

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.partition import ShareAcquireReply, ShareDescribeReply, ShareReleaseReply
from korvet.share.service import Acknowledge
from tests.lua.partition import ID, KEYS, Part

LOCK_MS = 30_000
LIMIT = 5
MAX_LOCKS = 2_000

Runs = list[tuple[int, int, int]]
Letter = tuple[int, int, int, int, int]


def triples(reply: ShareAcquireReply) -> Runs:
    """Return the acquired runs: first, last, deliveries."""
    flat = iter(reply.runs)
    return list(zip(flat, flat, flat, strict=True))


@dataclass
class Group:
    """A share group that reads partition 0 of `part`."""

    part: Part
    name: str = "g"
    limit: int = LIMIT
    max_locks: int = MAX_LOCKS
    start: int = 0
    dead_letters: int = 0

    def call(
        self,
        member: str,
        ranges: list[tuple[int, Any]],
        read_from: int = -1,
        read_to: int = -1,
        **changes: Any,
    ) -> Any:
        words: dict[str, Any] = {
            "start": self.start,
            "most": 500,
            "exact": 0,
            "lock_ms": LOCK_MS,
            "delivery_limit": self.limit,
            "max_locks": self.max_locks,
            "dead_letters": self.dead_letters,
        }
        if ranges and read_from < 0:
            read_from, read_to = ranges[0][0], ranges[-1][1]
        place = KEYS.partition(self.part.topic, 0, changes.pop("topic_id", ID))
        return place.share_acquire(
            ranges,
            group=self.name,
            member=member,
            read_from=read_from,
            read_to=read_to,
            **{**words, **changes},
        )

    def probe(self, member: str = "m", **changes: Any) -> ShareAcquireReply:
        """Send an acquire without records."""
        reply: ShareAcquireReply = self.part.runner.run(self.call(member, [], **changes))
        return reply

    def acquire(
        self,
        member: str,
        *ranges: tuple[int, Any],
        read: tuple[int, int] = (-1, -1),
        **changes: Any,
    ) -> Runs:
        """Acquire the ranges; return the runs that the member got."""
        reply = self.part.runner.run(self.call(member, list(ranges), *read, **changes))
        assert reply.error == 0
        return triples(reply)

    def acknowledge(
        self, member: str, *ranges: tuple[int, int, int], topic_id: str = ID, **changes: Any
    ) -> ErrorCode:
        """Acknowledge the ranges; return the error."""
        words: dict[str, Any] = {
            "lock_ms": LOCK_MS,
            "delivery_limit": self.limit,
            "backoff_ms": 0,
            "max_backoff_ms": 0,
            "dead_letters": self.dead_letters,
        }
        call = KEYS.partition(self.part.topic, 0, topic_id).share_acknowledge(
            [(first, last, int(type)) for first, last, type in ranges],
            group=self.name,
            member=member,
            **{**words, **changes},
        )
        return ErrorCode(self.part.runner.run(call).error)

    def accept(self, member: str, first: int, last: int) -> ErrorCode:
        return self.acknowledge(member, (first, last, Acknowledge.ACCEPT))

    def hold(self, member: str, *offsets: int, **changes: int) -> list[int]:
        """Return those of the records that the member has acquired."""
        call = KEYS.partition(self.part.topic, 0, ID).share_hold(
            offsets, group=self.name, member=member, **changes
        )
        reply = self.part.runner.run(call)
        assert reply.error == 0
        return reply.held

    def release(self, member: str) -> int:
        """End the member's session; return the number of released records."""
        released = first = 0
        while first >= 0:
            reply = self.release_step(member, first)
            released, first = released + reply.released, reply.next
        return released

    def release_step(self, member: str, first: int = 0) -> ShareReleaseReply:
        call = KEYS.partition(self.part.topic, 0, ID).share_release(
            group=self.name,
            member=member,
            delivery_limit=self.limit,
            dead_letters=self.dead_letters,
            first=first,
        )
        return self.part.runner.run(call)

    def list_dead_letters(self, producer_id: int = 0, most: int = 100) -> tuple[int, list[Letter]]:
        """Return the producer id; and number, first, last, deliveries and reason of each run."""
        call = KEYS.partition(self.part.topic, 0, ID).share_dead_letters(
            group=self.name, producer_id=producer_id, most=most
        )
        reply = self.part.runner.run(call)
        assert reply.error == 0
        flat = map(int, reply.dead_letters)
        return reply.producer_id, list(zip(flat, flat, flat, flat, flat, strict=True))

    def copied(self, to: int) -> int:
        """Mark dead letters below `to` as copied; return the number that is left."""
        call = KEYS.partition(self.part.topic, 0, ID).share_dead_letters_copied(
            group=self.name, to=to
        )
        reply = self.part.runner.run(call)
        assert reply.error == 0
        return reply.dead_letters

    def describe(self, most: int = 100) -> ShareDescribeReply:
        call = KEYS.partition(self.part.topic, 0, ID).share_describe(group=self.name, most=most)
        return self.part.runner.run(call)

    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Return start, end, available, acquired, acknowledged, archived."""
        d = self.describe()
        return d.start, d.end, d.available, d.acquired, d.acknowledged, d.archived

    def rows(self) -> list[bytes]:
        """Return the rows of every group in the sorted set."""
        rows: Any = self.part.runner.command("ZRANGE", self.part.keys.share_runs, 0, -1)
        return list(rows)
