"""Browse records: by offset, time, key or content; one record; a download."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from korvet.console.avro import TopicAvro
from korvet.console.browse import Browsed, Cursors, LargeRecords, Match, Search
from korvet.console.pages.topic import find_topic
from korvet.console.shown import FORMATS, PREFIX_BYTES, Shown, field_of, show, value_of
from korvet.console.visit import PageError, Visit
from korvet.groups.lag import find_offset
from korvet.library.values import PartitionOffsets, StoredRecord
from korvet.log.position import BadPosition, parse_position
from korvet.security.acl import Operation
from korvet.security.quotas import CONSUMER_BYTES
from korvet.topics.table import Topic

PAGE = 25
"""Records on a page, by default."""
MAX_PAGE = 200
MAX_PARTITIONS = 32
"""Max partitions that one page reads."""


class RecordRow(msgspec.Struct, frozen=True):
    """A record; key and value are cut to a prefix."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]


class Records(msgspec.Struct, frozen=True):
    """A page of records, and the cursor of the next one."""

    topic: str
    partition_count: int
    records: list[RecordRow]
    is_newest_first: bool
    cursor: str
    """`partition:offset,...`: where the next page starts."""
    scanned: int
    """Records that were read, matching or not."""
    is_end: bool
    """Whether the page reaches the end of the log."""
    is_limited: bool
    """Whether the limit of work ended the page before it was full."""
    older: str
    """`before` of the page with the records before these; empty unless the newest are first."""
    left_out: int
    """Partitions that the page does not read: choose one."""
    query: dict[str, str]
    """The parameters that are set."""


QUERY = ("partition", "from", "key", "value", "field", "equals", "format", "limit")


async def load(visit: Visit) -> Records:
    """Return a page of records; what is read for it is charged to the user's quota."""
    topic = await find_topic(visit, Operation.READ)
    browsed, ends, avro = await read_page(
        visit, topic, max(1, visit.number("limit", PAGE, MAX_PAGE))
    )
    read = len(ends)
    is_one = bool(visit.query("partition"))
    how = format_of(visit)
    rows = [row_of(record, avro, how) for record in browsed.records]
    is_newest = _is_newest(visit)
    older, cursors = {}, browsed.cursors
    if is_newest:
        # Records that arrive are above the ends.
        older, cursors = cursors, {number: end.latest for number, end in ends.items()}
    return Records(
        topic=topic.name,
        partition_count=topic.partitions,
        records=rows[::-1] if is_newest else rows,
        is_newest_first=is_newest,
        cursor=_cursor(cursors),
        older=_cursor(older),
        scanned=browsed.scanned,
        is_end=browsed.is_end,
        is_limited=browsed.is_limited,
        left_out=0 if is_one else topic.partitions - read,
        query=_query(visit),
    )


async def read_page(
    visit: Visit, topic: Topic, limit: int
) -> tuple[Browsed, Mapping[int, PartitionOffsets], TopicAvro]:
    """Read the records of the query, with the ends of the partitions that are read."""
    await visit.charge(CONSUMER_BYTES, 0)
    numbers = _partitions(visit, topic)
    offsets = await visit.log.offsets(topic.name)
    ends = {number: offsets[number] for number in numbers}
    avro = visit.console.avro.of(topic.name)
    search = Search(visit.log, topic, limit, _matches(visit, avro), avro.prepare)
    if _is_newest(visit):
        upper = {number: end.latest for number, end in ends.items()}
        if visit.query("before"):
            given = _parse_cursor("before", visit.query("before"), ends)
            upper = {
                number: max(ends[number].earliest, min(given.get(number, offset), offset))
                for number, offset in upper.items()
            }
        found = await search.read_newest(ends, upper)
    else:
        cursor, position = visit.query("cursor"), visit.query("from") or "earliest"
        start = (
            _parse_cursor("cursor", cursor, ends)
            if cursor
            else await offsets_at(visit, topic, position, ends)
        )
        found = await search.read(ends, start)
    await visit.charge(CONSUMER_BYTES, found.size)
    return found, ends, avro


def _cursor(offsets: Cursors) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in offsets.items())


def _query(visit: Visit) -> dict[str, str]:
    return {name: text for name in QUERY if (text := visit.query(name))}


async def load_form(visit: Visit) -> Records:
    """Return the page without records, for a query that was refused."""
    topic = await find_topic(visit, Operation.READ)
    return Records(
        topic=topic.name,
        partition_count=topic.partitions,
        records=[],
        is_newest_first=False,
        cursor="",
        older="",
        scanned=0,
        is_end=True,
        is_limited=False,
        left_out=0,
        query=_query(visit),
    )


def row_of(
    record: StoredRecord,
    avro: TopicAvro,
    how: str = "auto",
    limit: int = PREFIX_BYTES,
    *,
    indents: bool = False,
) -> RecordRow:
    """Return the record as a page shows it."""
    if isinstance(record, LargeRecords):
        large = Shown(None, "large", record.size, True)
        return RecordRow(record.partition, record.offset, -1, large, large, [])
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp_ms,
        show(record.key, how, limit, indents=indents, decode=avro.decode_key(how)),
        show(record.value, how, limit, indents=indents, decode=avro.decode_value(how)),
        [(name, show(value, "auto", limit)) for name, value in list(record.headers)[:50]],
    )


def _is_newest(visit: Visit) -> bool:
    """Return whether the page is of the newest records: by default."""
    return not visit.query("cursor") and visit.query("from", "newest") in ("", "newest")


def format_of(visit: Visit) -> str:
    how = (not visit.is_refused and visit.query("format")) or "auto"
    if how not in FORMATS:
        raise PageError(400, f"format must be one of {', '.join(FORMATS)}, not {how!r}.")
    return how


def _partitions(visit: Visit, topic: Topic) -> list[int]:
    text = visit.query("partition")
    if not text:
        return list(range(min(topic.partitions, MAX_PARTITIONS)))
    number = visit.number("partition", 0, 2**31)
    if number >= topic.partitions:
        raise PageError(404, f"{topic.name} has partitions 0 to {topic.partitions - 1}.")
    return [number]


def parse_offsets(name: str, text: str) -> Cursors:
    """Return the offset of each partition in a parameter. Raises PageError."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise PageError(400, f"{name} must be PARTITION:OFFSET,...") from None


def _parse_cursor(name: str, text: str, ends: Mapping[int, PartitionOffsets]) -> Cursors:
    found = parse_offsets(name, text)
    return {number: offset for number, offset in found.items() if number in ends and offset >= 0}


async def offsets_at(visit: Visit, topic: Topic, text: str, numbers: Iterable[int]) -> Cursors:
    """Return the offset of partitions at the position that the text is. Raises PageError."""
    try:
        position = parse_position(text, datetime.now(UTC))
    except BadPosition as error:
        raise PageError(400, str(error)) from None
    store, reader = visit.services.store, visit.log.reader
    return {number: await find_offset(store, reader, topic, number, position) for number in numbers}


def _matches(visit: Visit, avro: TopicAvro) -> Match | None:
    """Return the filter of the query, None without one."""
    key, value, path = visit.query("key"), visit.query("value"), visit.query("field")
    equals = visit.query("equals")
    wanted_key, wanted_value = key.encode(), value.encode()
    names: Sequence[str] = path.removeprefix("$.").split(".") if path else ()
    if not (key or value or names):
        return None

    def matches(record: StoredRecord) -> bool:
        if key and record.key != wanted_key and not avro.has_text(record.key, key):
            return False
        if not (value or names):
            return True
        decoded = avro.decode(record.value)
        if value and wanted_value not in (decoded.json if decoded else record.value or b""):
            return False
        if names:
            found = field_of(value_of(record.value, decoded), names)
            return found is not None and (not equals or found == equals)
        return True

    return matches
