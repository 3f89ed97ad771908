"""Which batch of a producer a partition takes first that does not know the producer.

It may have forgotten one that was silent for long, which then goes on at any sequence (KIP-360). Or
it was never given the first of several batches on their way: Redis, or this broker, refused it for
the moment. If it took the next before that, the first would be one from long ago when it comes
again, and lost.

Rules
- log.append takes of a producer it does not know what has sequence 0. What it refuses is asked for
  again here: all that a connection has on its way passes through one broker.
- What comes again is first. Nothing behind it is taken before it: its producer is told to send that
  again, too (OUT_OF_ORDER_SEQUENCE_NUMBER).
- One batch is asked for at a time, what was behind it after it. That has its order from the store.
- What left between the first try of one batch and its second comes to the partition before that:
  what is refused as out of order while others are asked for again, is asked for again too.
- Nobody is waited for longer than LASTING_S: who never sends that batch again goes on without it.
"""

from collections.abc import Callable
from enum import Enum
from time import monotonic

import msgspec

LASTING_S = 300.0
"""Longer than a producer tries by default (delivery.timeout.ms)."""
MOST = 10_000
_WRAP = 2**31

Beginner = tuple[str, int, int, int]
"""Topic, by the word its requests have for it, partition, producer id and epoch."""


class Verdict(Enum):
    """What to do about a batch of an unknown producer."""

    BEGIN = "it may be the first here"
    REPEAT = "the one before it has been asked for: after that one"
    REFUSE = "one before it comes again"


class _Expected(msgspec.Struct):
    sequence: int
    until: float
    asked: bool


class UnknownProducers:
    """What is to come before the rest, producer by producer; nothing, most of the time."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._firsts: dict[Beginner, _Expected] = {}
        self._asking: dict[Beginner, int] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def comes_again(self, who: Beginner, sequence: int) -> None:
        """A batch was not taken, and its producer will send it again."""
        self._put_first(who, sequence, asked=False)

    def step(self, who: Beginner, sequence: int) -> Verdict:
        """The partition does not know who sent this batch."""
        if self._put_first(who, sequence, asked=True):
            return Verdict.BEGIN
        return Verdict.REPEAT if self._firsts[who].asked else Verdict.REFUSE

    def asks(self, who: Beginner) -> None:
        """A batch is asked for again, until it is `heard`."""
        self._asking[who] = self._asking.get(who, 0) + 1

    def heard(self, who: Beginner) -> None:
        """There is a reply to what was asked for again, or will be none."""
        left = self._asking.pop(who) - 1
        if left:
            self._asking[who] = left

    def is_asking(self, who: Beginner) -> bool:
        """Whether batches are asked for again now."""
        return who in self._asking

    def known(self, who: Beginner) -> None:
        """The partition knows the producer: it sees by itself what comes next."""
        self._firsts.pop(who, None)

    def _put_first(self, who: Beginner, sequence: int, *, asked: bool) -> bool:
        """The batch is the first to come, unless one before it is."""
        now = self._clock()
        found = self._firsts.get(who)
        if found and now < found.until and 0 < (sequence - found.sequence) % _WRAP < _WRAP // 2:
            return False
        if found is None and len(self._firsts) >= MOST:
            del self._firsts[next(iter(self._firsts))]
        self._firsts[who] = _Expected(sequence, now + LASTING_S, asked)
        return True
