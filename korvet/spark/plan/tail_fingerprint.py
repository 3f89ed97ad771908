"""Fingerprint the last entry that was read of a partition, to detect that the log lost it.

A Redis that fails over may lose the end of a log; later appends then reuse the lost offsets. A log
whose entry has another fingerprint than a table or checkpoint recorded has records that neither
would read.

Rules
- The fingerprint is a hash of the entry that contains the offset, or "" if no entry does: it was
  trimmed, or the log ends below it.
- A log that was compacted has no fingerprints: compaction also replaces entries.
- Time mode has no fingerprints: offsets are never reused.
- One fingerprint, of the last offset, covers all offsets below it: appends that reuse lost offsets
  reuse all of them up to the end of the log.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from korvet.log.entry import DENSE_MS, entry_id, split_id
from korvet.log.layouts.batch import batch_of
from korvet.spark.metadata import MetadataClient
from korvet.spark.partitions import PartitionLog

MAX_ENTRIES = 64
"""Max entries in memory at once: one entry may exceed 1 MB."""
DIGEST_BYTES = 8

Position = tuple[PartitionLog, int]


def fingerprints(metadata: MetadataClient, places: Sequence[Position]) -> list[str]:
    """Return the fingerprint of each offset, or "" if it has none."""
    found: list[str] = []
    for low in range(0, len(places), MAX_ENTRIES):
        some = places[low : low + MAX_ENTRIES]
        asked = [known for known in some if _has_fingerprint(*known)]
        commands = [each for at in asked for each in _commands(metadata, *at)]
        replies = iter(metadata.store.commands(commands))
        for part, offset in some:
            if not _has_fingerprint(part, offset):
                found.append("")
            else:
                rows, cleaned = next(replies), next(replies)
                found.append(_fingerprint(part, offset, rows) if cleaned is None else "")
    return found


def _has_fingerprint(part: PartitionLog, offset: int) -> bool:
    return part.mode != "time" and offset >= 0


def _commands(
    metadata: MetadataClient, part: PartitionLog, offset: int
) -> Iterator[tuple[str | int, ...]]:
    names = part.handle(metadata.keys)
    yield "XRANGE", names.stream, entry_id(part.mode, part.bits, offset), "+", "COUNT", 1
    yield "HGET", names.log, "cleaned"  # after the entry: compaction may replace it in between


def _fingerprint(part: PartitionLog, offset: int, rows: Sequence[tuple[bytes, list[bytes]]]) -> str:
    """Return the entry's fingerprint if it contains the offset, else ""."""
    if not rows:
        return ""
    raw_id, fields = rows[0]
    milliseconds, last = split_id(raw_id)
    count = max(1, batch_of(fields)[1]) if part.is_batch else 1
    if milliseconds != DENSE_MS or last - count >= offset:
        return ""
    seen = blake2b(raw_id, digest_size=DIGEST_BYTES)
    for each in fields:
        seen.update(b"%d:" % len(each))
        seen.update(each)
    return seen.hexdigest()
