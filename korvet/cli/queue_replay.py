"""Put the records of a dead letter queue back into the partitions they came from, each once.

Rules
- A chunk of the queue's partition is committed before its first record is put back: its end and a
  new producer id, as metadata of the group GROUP. So a repeated replay finds the same chunk
  and producer, and the target partitions know how many of its records they have.
- The chunk's end is committed once all its records are put back.
- One replay of a queue runs at a time: it holds a lease.
- A dead letter without the record (errors.deadletterqueue.copy.record.enable=false) is read from
  its source partition. If the record is gone, the letter is passed and counted. Offsets of such
  letters are committed too before anything else of the chunk is put back: a repeated replay counts
  the records of a target partition in the same way, whatever has expired meanwhile.
"""

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Self

import msgspec

from korvet.base.errors import ErrorCode
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.batches import Batcher
from korvet.library.values import KorvetError, Producer, Record, StoredRecord
from korvet.scripts.producer_state import ProducerStateEntry

GROUP = "korvet.replay"
"""The group whose commits say how far a replay is."""
LEASE_MS = 30_000
TRIES, PAUSE_S = 4, 0.005
"""A lease that has just been ended expires within a millisecond."""
CHUNK_BYTES = 1 << 20
_PREFIX = "__dlq."
_PINNED = re.compile(r"producer=(\d+) to=(\d+)(?: gone=([\d,]+))?")
Target = tuple[str, int]
"""Topic and partition that records are put back into."""


class Replayed(msgspec.Struct):
    """The result of a replay."""

    records: int = 0
    """Records put back."""
    gone: int = 0
    """Dead letters whose record is nowhere any more."""
    not_dead_letters: int = 0
    """Records of the queue that are no dead letters."""


Row = tuple[int, Record | None]
"""A dead letter's offset, and its record; None: it is gone."""


class Chunk(msgspec.Struct):
    """Dead letters that are put back together: producer, end, and those without a record."""

    producer: Producer
    to: int
    gone: set[int] = set()

    @classmethod
    def of(cls, producer: str, to: str, gone: str | None) -> Self:
        """Parse the numbers of committed metadata."""
        return cls(Producer(int(producer)), int(to), set(map(int, gone.split(",") if gone else ())))

    @property
    def metadata(self) -> str:
        """Return the text to commit."""
        gone = ",".join(map(str, sorted(self.gone)))
        return f"producer={self.producer.id} to={self.to}" + (f" gone={gone}" if gone else "")

    def remaining(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that are not gone."""
        return [row for row in rows if row[0] not in self.gone]


class Replay:
    """A replay of a queue. `progress` gets the number of dead letters of each finished chunk."""

    def __init__(
        self, log: AsyncKorvet, queue: str, progress: Callable[[int], None] = lambda count: None
    ) -> None:
        self._log = log
        self._queue = queue
        self._progress = progress
        self._holder = f"replay-{uuid.uuid4().hex}"
        self.result = Replayed()

    async def run(self) -> Replayed:
        """Put back what the queue holds now. Raises KorvetError."""
        await self._hold()
        try:
            for row in await self._log.offsets(self._queue):
                while await self._chunk(row.partition, row.latest):
                    pass
        finally:
            await self._hold(ends=True)
        return self.result

    async def _hold(self, *, ends: bool = False) -> None:
        """Acquire, renew or end the lease."""
        call = self._log.keys.broker_lease(
            name=f"replay:{self._queue}", holder=self._holder, ttl_ms=1 if ends else LEASE_MS
        )
        for _ in range(TRIES):
            if (await self._log.store.run(call)).held:
                return
            await asyncio.sleep(PAUSE_S)
        raise KorvetError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"Another replay of {self._queue!r} is running, or was ended less than "
            f"{LEASE_MS // 1000} s ago. Wait for it.",
        )

    async def _chunk(self, partition: int, end: int) -> bool:
        """Put back a chunk; return False at the end of the partition."""
        await self._hold()
        offset, chunk = await self._position(partition)
        if chunk is None:
            if offset >= end:
                return False
            fetched = await self._log.fetch(
                self._queue, partition, offset, max_bytes=CHUNK_BYTES, committed=True
            )
            if fetched.next_offset == offset:
                return False
            producer = await self._log.new_producer()
            chunk = Chunk(producer, fetched.next_offset)
            await self._commit(partition, offset, chunk.metadata)
        found = self._log.records(self._queue, partition, offset, chunk.to, committed=True)
        letters = [letter async for letter in found]
        targets = await self._by_target(letters)
        done = {target: await self._stored(chunk.producer, target) for target in targets}
        known = len(chunk.gone)
        for target, rows in targets.items():
            # The records before are put back: they may be gone since.
            left = chunk.remaining(rows)[done[target] :]
            chunk.gone.update(at for at, record in left if record is None)
        if len(chunk.gone) > known:
            await self._commit(partition, offset, chunk.metadata)
        for target, rows in targets.items():
            left = chunk.remaining(rows)[done[target] :]
            records = [record for _, record in left if record is not None]
            await self._append(chunk.producer, target, records, done[target])
        await self._commit(partition, chunk.to, "")
        self.result.gone += len(chunk.gone)
        self._progress(len(letters))
        return True

    async def _position(self, partition: int) -> "tuple[int, Chunk | None]":
        """Return the offset to continue from, and the chunk that was begun there."""
        start = next(
            row.earliest
            for row in await self._log.offsets(self._queue)
            if row.partition == partition
        )
        for row in await self._log.committed(GROUP):
            if (row.topic, row.partition) == (self._queue, partition) and row.offset >= start:
                match = _PINNED.fullmatch(row.metadata)
                return row.offset, Chunk.of(*match.groups()) if match else None
        return start, None

    async def _commit(self, partition: int, offset: int, metadata: str) -> None:
        await self._log.commit(GROUP, {(self._queue, partition): offset}, metadata)

    async def _by_target(self, letters: Sequence[StoredRecord]) -> "dict[Target, list[Row]]":
        """Return the dead letters with the records to put back, by topic and partition."""
        found: dict[Target, list[Row]] = {}
        for letter in letters:
            source = _source(letter)
            if source is None:
                self.result.not_dead_letters += 1
                continue
            topic, partition, offset = source
            record = await self._record(letter, topic, partition, offset)
            found.setdefault((topic, partition), []).append((letter.offset, record))
        return found

    async def _record(
        self, letter: StoredRecord, topic: str, partition: int, offset: int
    ) -> Record | None:
        """Return the dead letter's record, from itself or from its source; None if it is gone."""
        own = [header for header in letter.headers if not header[0].startswith(_PREFIX)]
        if letter.value is not None or letter.key is not None or own:
            return Record(letter.value, letter.key, own)
        try:
            fetched = await self._log.fetch(topic, partition, offset, max_bytes=1)
        except KorvetError as error:
            if error.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        for stored in islice(fetched.records, 1):
            if stored.offset == offset:
                return Record(stored.value, stored.key, stored.headers)
        return None

    async def _stored(self, producer: Producer, target: Target) -> int:
        """Return how many records of the producer the target has."""
        key = self._log.keys.partition(*target).producers
        row = await self._log.store.command("HGET", key, producer.id)
        return ProducerStateEntry.of(row).next if row is not None else 0

    async def _append(
        self, producer: Producer, target: Target, records: Sequence[Record], done: int
    ) -> None:
        """Append records to the target, which has `done` of the producer."""
        topic, partition = target
        found = await self._log.find_topic(topic)
        self.result.records += len(records)
        rows = [(partition, record) for record in records]
        for _, batch in Batcher().batches(rows, found.partitions, found.policy.max_message_bytes):
            await self._log.append(topic, partition, batch, producer=producer, sequence=done)
            done += len(batch)


def _source(letter: StoredRecord) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of a dead letter; None for any other record."""
    headers = {name: value or b"" for name, value in letter.headers}
    try:
        return (
            headers["__dlq.errors.topic"].decode(),
            int(headers["__dlq.errors.partition"]),
            int(headers["__dlq.errors.offset"]),
        )
    except (KeyError, ValueError):
        return None
