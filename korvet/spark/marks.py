"""What the log has at the last offset that somebody has read of a partition, as a mark: a hash.

A Redis that fails over may lose the end of a log, and where offsets are counted appends take them
again. Nothing else replaces an entry but compaction, of which a log keeps that it was there; so a
log with another mark than a table or a stream's checkpoint remembers has records that neither will
take.

Rules
- The mark is that of the entry that covers the offset. Where there is none (it was trimmed, or the
  log ends before it) nothing is said.
- In time mode offsets do not come again: there are no marks.
- What takes lost offsets takes all of them, up to where the log ends then: one mark, the last,
  tells of all before it.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from korvet.log.entry import batch_of
from korvet.log.entry_id import DENSE_MS, entry_id, split_id
from korvet.spark.catalog import Catalog, Log

AT_ONCE = 64
"""So many entries are in memory together; one may have a megabyte, and more."""
BYTES = 8

Place = tuple[Log, int]


def marks(catalog: Catalog, places: Sequence[Place]) -> list[str]:
    """The mark of each offset, or nothing where it has none."""
    return list(_marks(catalog, places))


def _marks(catalog: Catalog, places: Sequence[Place]) -> Iterator[str]:
    for low in range(0, len(places), AT_ONCE):
        some = places[low : low + AT_ONCE]
        asked = [place for place in some if _is_marked(*place)]
        replies = iter(catalog.store.commands([each for at in asked for each in _of(catalog, *at)]))
        for part, offset in some:
            if not _is_marked(part, offset):
                yield ""
            else:
                rows, cleaned = next(replies), next(replies)
                yield _mark(part, offset, rows) if cleaned is None else ""


def _is_marked(part: Log, offset: int) -> bool:
    return part.mode != "time" and offset >= 0


def _of(catalog: Catalog, part: Log, offset: int) -> Iterator[tuple[str | int, ...]]:
    names = catalog.keys.partition(part.topic, part.partition)
    yield "XRANGE", names.stream, entry_id(part.mode, part.bits, offset), "+", "COUNT", 1
    yield "HGET", names.log, "cleaned"  # behind the entry, which may have become another one by it


def _mark(part: Log, offset: int, rows: Sequence[tuple[bytes, list[bytes]]]) -> str:
    """The mark of the entry, if it covers the offset."""
    if not rows:
        return ""
    raw_id, fields = rows[0]
    milliseconds, last = split_id(raw_id)
    whole = part.is_batch or part.mode == "bytes"
    count = max(1, batch_of(fields)[1]) if whole else 1
    if milliseconds != DENSE_MS or last - count >= offset:
        return ""
    seen = blake2b(raw_id, digest_size=BYTES)
    for each in fields:
        seen.update(b"%d:" % len(each))
        seen.update(each)
    return seen.hexdigest()
