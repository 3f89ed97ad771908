"""Order the first batches of a producer whose state the partition does not have.

Producer state is missing because it expired (KIP-360: any sequence may follow), or because an
earlier in-flight batch was rejected with a retriable error. Accepting a later batch first would
turn the retry into a false duplicate.

    (no entry)  -- batch rejected, the producer retries it ------> RETRY_EXPECTED(its sequence)
    (no entry)  -- UNKNOWN_PRODUCER_ID for a batch --------------> STARTING(its sequence)
    RETRY_EXPECTED(s) -- UNKNOWN_PRODUCER_ID for a batch <= s ---> STARTING(its sequence)
    STARTING(s) -- batch <= s rejected, the producer retries it -> RETRY_EXPECTED(its sequence)
    either      -- a batch is stored, or EXPIRES_S have passed --> (no entry)

Rules
- log.append accepts sequence 0 of a producer unknown to the partition, and answers
  UNKNOWN_PRODUCER_ID to any other. Those batches are sent again from here: all in-flight batches
  of one client connection pass through one broker.
- The batch that starts the producer's state is sent again with leave to have any sequence.
- RETRY_EXPECTED(s): a later batch is rejected. Within IN_FLIGHT_S it may have been in flight, and
  gets a retriable error: its producer repeats both in their order. librdkafka takes
  OUT_OF_ORDER_SEQUENCE_NUMBER for a lost batch, and sends all that are not acknowledged as batches
  of a new epoch: one that Redis has stored, while its reply was lost, would be there twice.
- STARTING(s): a later batch is sent again as it was: the store keeps their order.
- While batches of a producer are being sent again, its OUT_OF_ORDER_SEQUENCE_NUMBER batches are
  sent again, too: they left before the starting batch was stored.
- An entry expires after EXPIRES_S: a producer that gave up its batch may continue after it.
"""

from collections.abc import Callable
from enum import Enum
from time import monotonic

import msgspec

from korvet.base.bounded import ByteBounded

EXPIRES_S = 300.0
"""Seconds to wait for a retry: more than the default of delivery.timeout.ms."""
IN_FLIGHT_S = 5.0
"""Seconds in which batches that were sent with one that failed arrive."""
_WRAP = 2**31

ProducerKey = tuple[str, int, int, int]
"""Topic as its requests name it (name or id), partition, producer id, epoch."""


class Verdict(Enum):
    """Decision about a batch of an unknown producer."""

    START = "send it again as the first batch"
    RESEND = "send it again unchanged, after the first batch"
    REJECT = "an earlier batch will be retried"


class _First(msgspec.Struct):
    """The batch that has to be stored before later ones."""

    sequence: int
    expires_s: float
    sent: bool

    def precedes(self, sequence: int) -> bool:
        """Return whether a batch with that sequence is a later one."""
        return 0 < (sequence - self.sequence) % _WRAP < _WRAP // 2


class UnknownProducers:
    """The expected first batch of each unknown producer; usually empty."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._first = ByteBounded[ProducerKey, _First]("unknown producers", 8 << 20)
        self._resends: dict[ProducerKey, int] = {}

    def __len__(self) -> int:
        return len(self._first)

    def expect_retry(self, producer: ProducerKey, sequence: int) -> None:
        """Note that a batch was not stored and that its producer will retry it."""
        self._note_first(producer, sequence, sent=False)

    def decide(self, producer: ProducerKey, sequence: int) -> Verdict:
        """Return what to do with a batch that log.append answered with UNKNOWN_PRODUCER_ID."""
        if self._note_first(producer, sequence, sent=True):
            return Verdict.START
        found = self._first.get(producer)
        return Verdict.RESEND if found is not None and found.sent else Verdict.REJECT

    def is_early(self, producer: ProducerKey, sequence: int) -> bool:
        """Return whether an earlier batch failed a moment ago, which the producer will retry."""
        found, now = self._first.get(producer), self._clock()
        return (
            found is not None
            and not found.sent
            and now < found.expires_s - EXPIRES_S + IN_FLIGHT_S
            and found.precedes(sequence)
        )

    def begin_resend(self, producer: ProducerKey) -> None:
        """Count a batch that is sent again."""
        self._resends[producer] = self._resends.get(producer, 0) + 1

    def end_resend(self, producer: ProducerKey) -> None:
        """Count the reply to a batch that was sent again, or its failure."""
        left = self._resends.pop(producer) - 1
        if left:
            self._resends[producer] = left

    def has_resends(self, producer: ProducerKey) -> bool:
        """Return whether batches of the producer are being sent again."""
        return producer in self._resends

    def forget(self, producer: ProducerKey) -> None:
        """Drop the entry: the partition has the producer's state and checks sequences itself."""
        self._first.pop(producer)

    def _note_first(self, producer: ProducerKey, sequence: int, *, sent: bool) -> bool:
        """Make the batch the expected first one, unless an earlier batch is expected."""
        now = self._clock()
        found = self._first.get(producer)
        if found and now < found.expires_s and found.precedes(sequence):
            return False
        self._first.put(producer, _First(sequence, now + EXPIRES_S, sent))
        return True
