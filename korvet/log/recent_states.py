"""The states of logs that consumers catch up on, each read once for all fetches of FRESH_S.

A consumer that catches up from a local directory fetches every few hundred microseconds. A round
trip to Redis for each of its fetches costs a fifth of the fetch, and the state hardly changes.

Rules
- Only reads of records in segments, and of large batches read ahead (`range_reads`), use a state
  that was read before. It is used for FRESH_S from the moment its command was submitted.
- DeleteRecords through any broker is answered FRESH_S after Redis has done it: no fetch that begins
  after the response returns deleted records.
- A state that is used in the second half of its time is read again in the background. So are the
  others in use, in the same pipeline.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from korvet.store.calls import ReadCalls
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

FRESH_S = 0.05
RENEW_S = FRESH_S / 2
MAX_STATES = 1000
MAX_RENEWED = 64
"""States that are read again in one pipeline."""
_STATE = """
    topic_id next start epoch bytes entries largest_append stable cleaned local_start tiered shifts
    epochs
"""
STATE = tuple(_STATE.split())
"""Fields of a log's state."""
BOUNDS = STATE[0], STATE[2], STATE[9]
"""Fields that are read after entries: they show what was deleted or left Redis meanwhile."""
Fields = Sequence[bytes | None]


class RecentState(msgspec.Struct, frozen=True):
    """The fields of a log's state, and when their command was submitted."""

    fields: Fields
    submitted_at: float
    start: int
    end: int
    last_stable: int
    """The offset of the oldest record of an open transaction, or the end."""
    local_start: int
    copied: int
    """The offset up to which segments have the records."""
    epoch: int
    stable: int | None
    """As `last_stable`, -1 without an open transaction; None if there has never been one."""
    appended: int
    """Bytes ever appended."""
    shifts: bytes | None
    """The ids that are not natural, for OffsetMap."""


def parse_state(topic: Topic, fields: Fields, submitted_at: float) -> RecentState | None:
    """Return the state that the fields give; None if they are of another topic, or of none."""
    if fields[0] is None or fields[0].decode() != topic.id:
        return None
    end, start, epoch, appended = (int(text or 0) for text in fields[1:5])
    stable = None if fields[7] is None else int(fields[7])
    return RecentState(
        fields,
        submitted_at,
        start,
        end,
        end if stable is None or stable < 0 else max(stable, start),
        int(fields[9] or 0),
        int(fields[10] or 0),
        epoch,
        stable,
        appended,
        fields[11],
    )


class RecentStates:
    """The last states of partitions, by topic id and partition."""

    def __init__(self, store: ReadCalls) -> None:
        self._store = store
        self._states: dict[tuple[str, int], RecentState] = {}
        self._used: dict[tuple[str, int], Topic] = {}
        """Partitions whose state was used since states were read again."""
        self._renewals = 0
        """States that are being read again."""

    def fresh(self, topic: Topic, partition: int) -> RecentState | None:
        """Return the state if it is fresh, else None."""
        key = (topic.id, partition)
        found = self._states.get(key)
        if found is None:
            return None
        age = monotonic() - found.submitted_at
        if age >= FRESH_S:
            return None
        self._used[key] = topic
        if age >= RENEW_S and not self._renewals:
            self._renewals = 1
            asyncio.get_running_loop().call_soon(self._renew)
        return found

    def young(self, topic: Topic, partition: int) -> RecentState | None:
        """Return the state if it need not be read again yet, else None."""
        found = self._states.get((topic.id, partition))
        return found if found and monotonic() - found.submitted_at < RENEW_S else None

    async def read(self, topic: Topic, partition: int) -> Fields:
        """Read the state from Redis, and keep it."""
        submitted_at = monotonic()
        fields: Fields = await self._submit(topic, partition)
        self.keep(topic, partition, fields, submitted_at)
        return fields

    def _submit(self, topic: Topic, partition: int) -> "asyncio.Future[Any]":
        key = topic.partition(partition).log
        return self._store.submit_command("HMGET", key, *STATE)

    def _renew(self) -> None:
        """Read the states in use again, without waiting for them."""
        submitted_at, used = monotonic(), list(self._used.items())[:MAX_RENEWED]
        self._used.clear()
        self._renewals = 0
        for key, topic in used:
            try:
                reply = self._submit(topic, key[1])
            except StoreError:
                return  # the fetch that finds no fresh state reports it
            self._renewals += 1
            reply.add_done_callback(partial(self._renewed, key, topic, submitted_at))

    def _renewed(
        self, key: tuple[str, int], topic: Topic, submitted_at: float, reply: "asyncio.Future[Any]"
    ) -> None:
        self._renewals -= 1
        if not reply.cancelled() and reply.exception() is None:
            self.keep(topic, key[1], reply.result(), submitted_at)

    def keep(
        self, topic: Topic, partition: int, fields: Fields, submitted_at: float
    ) -> RecentState | None:
        """Keep and return the state, unless it is that of another topic or an older one."""
        key = (topic.id, partition)
        known = self._states.get(key)
        state = parse_state(topic, fields, submitted_at)
        if state is None:
            self._states.pop(key, None)
        elif known is None or known.submitted_at <= submitted_at:
            if len(self._states) >= MAX_STATES and known is None:
                del self._states[next(iter(self._states))]
            self._states[key] = state
        return state
