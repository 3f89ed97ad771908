"""From what the options say to offsets: earliest, latest, JSON, moments."""

import logging
from collections.abc import Sequence

from korvet.scripts import log
from korvet.spark.catalog import Catalog, Live, Log, Range, lost, refuse
from korvet.spark.columns import ALWAYS
from korvet.spark.errors import BadOption, DataLost
from korvet.spark.options import EARLIEST, LATEST, Offsets, Place, ReadOptions

logger = logging.getLogger("korvet.spark")


def resolve(catalog: Catalog, place: Place, logs: Sequence[Log], options: ReadOptions) -> list[int]:
    """The offset that the place means in each partition.

    Raises BadOption for a place that does not speak of every partition, DataLost (unless the
    options allow it) for an offset that the log does not have.
    """
    bounds = catalog.bounds(logs, committed=options.committed_only)
    return _resolved(catalog, place, logs, bounds, options)


def _resolved(
    catalog: Catalog,
    place: Place,
    logs: Sequence[Log],
    bounds: Sequence[Live],
    options: ReadOptions,
) -> list[int]:
    """The same within the bounds of each partition."""
    if place.timestamp is not None:
        return _at_moments(catalog, place, logs, bounds, [place.timestamp] * len(logs))
    if place.timestamps is not None:
        moments = _each(place, place.timestamps, logs)
        return _at_moments(catalog, place, logs, bounds, moments)
    return _placed(place, logs, bounds, options.fail_on_data_loss)


def _placed(place: Place, logs: Sequence[Log], bounds: Sequence[Live], strict: bool) -> list[int]:
    """The offset that a place without moments means within the bounds of each partition."""
    if place.offsets is None:
        return [bound.first if place.everywhere == EARLIEST else bound.next for bound in bounds]
    asked = _each(place, place.offsets, logs)
    return [
        _offset(part, bound, at, strict)
        for part, bound, at in zip(logs, bounds, asked, strict=True)
    ]


def ranges(catalog: Catalog, options: ReadOptions, logs: Sequence[Log]) -> list[Range]:
    """What a batch read covers, one range a partition, empty ones left out."""
    bounds = catalog.bounds(logs, committed=options.committed_only)
    starts = _resolved(catalog, options.start, logs, bounds, options)
    ends = _resolved(catalog, options.end, logs, bounds, options)
    found = []
    for part, bound, start, end in zip(logs, bounds, starts, ends, strict=True):
        gone = _asked(options.start, part, start) <= end < start  # all of it, trimmed meanwhile
        if not gone:
            _check_order(options, part, start, end)
        end = _decided(part, bound, end)
        if start < end:
            found.append(Range(part, start, end))
    return found


def spanned(options: ReadOptions, logs: Sequence[Log], bounds: Sequence[Live]) -> list[Range]:
    """What a batch read covers of partitions with these bounds, by offsets; also empty ranges."""
    starts = _placed(options.start, logs, bounds, options.fail_on_data_loss)
    ends = _placed(options.end, logs, bounds, options.fail_on_data_loss)
    found = []
    for part, bound, start, end in zip(logs, bounds, starts, ends, strict=True):
        _check_order(options, part, start, end)
        found.append(Range(part, start, max(start, _decided(part, bound, end))))
    return found


def _decided(part: Log, bound: Live, end: int) -> int:
    """Where the read really ends: before what is undecided, also where a later end was named."""
    if end <= bound.next:
        return end
    logger.warning(
        "%s: the read ends at %d, not at %d: what lies between is undecided", part, bound.next, end
    )
    return bound.next


def _check_order(options: ReadOptions, part: Log, start: int, end: int) -> None:
    # What is undecided may begin before an offset that was named.
    latest = LATEST in (options.end.everywhere, options.end.named(part.topic, part.partition))
    if start > end and not latest:
        raise BadOption(
            options.end.option, f"{part} would end at {end}, before its start at {start}."
        )


def _asked(place: Place, part: Log, found: int) -> int:
    """The offset that the place names for the partition; the one found where it names none."""
    at = place.named(part.topic, part.partition)
    return found if at is None or at in (EARLIEST, LATEST) else at


def _offset(part: Log, bound: Live, at: int, strict: bool) -> int:
    if at == EARLIEST:
        return bound.first
    if at == LATEST:
        return bound.next
    if bound.start <= at <= bound.end:
        return at
    if strict:
        if at < bound.start:
            raise lost(part, at, bound.end, bound.start)
        raise DataLost(
            f"{part}: offset {at} lies behind the log's end {bound.end}. "
            "Set failOnDataLoss to false to take the end instead."
        )
    near = min(max(at, bound.first), bound.next)
    logger.warning("%s: offset %d is not in the log, %d is taken instead", part, at, near)
    return near


def _each(place: Place, given: Offsets, logs: Sequence[Log]) -> list[int]:
    """The place's number for each partition; it must name exactly these."""
    wanted = {(part.topic, part.partition) for part in logs}
    named = {(topic, number) for topic, places in given.items() for number in places}
    if wanted != named:
        missing = ", ".join(f"{topic}-{number}" for topic, number in sorted(wanted - named))
        beyond = ", ".join(f"{topic}-{number}" for topic, number in sorted(named - wanted))
        raise BadOption(
            place.option,
            "must name each partition that is read, and no other"
            + (f"; missing {missing}" if missing else "")
            + (f"; not read {beyond}" if beyond else "")
            + ".",
        )
    return [given[part.topic][part.partition] for part in logs]


def _at_moments(
    catalog: Catalog,
    place: Place,
    logs: Sequence[Log],
    bounds: Sequence[Live],
    moments: Sequence[int],
) -> list[int]:
    found = []
    for part, bound, moment in zip(logs, bounds, moments, strict=True):
        if moment in (EARLIEST, LATEST):
            found.append(_offset(part, bound, moment, True))
            continue
        at = at_moment(catalog, part, moment, bound.next)
        if at is None and not place.or_latest:
            raise BadOption(
                place.option,
                f"no record of {part} is as late as {moment}. Option "
                "startingOffsetsByTimestampStrategy=latest takes the end instead.",
            )
        found.append(bound.next if at is None else at)
    return found


def at_moment(catalog: Catalog, part: Log, moment: int, end: int) -> int | None:
    """The offset of the first record with a timestamp (ms) of at least `moment`, or None."""
    from korvet.spark.decode import Decoder
    from korvet.spark.scan import Scan
    from korvet.spark.schema import arrow_schema

    sought = catalog.store.run(
        log.find_timestamp(
            catalog.keys, part.topic, part.partition, topic_id=part.topic_id, timestamp=moment
        )
    )
    refuse(part, sought.error)
    whole = Range(part, sought.offset, end)
    decoder = Decoder(whole, arrow_schema(tuple(n for n in ALWAYS if n in ("offset", "timestamp"))))
    for rows in Scan(catalog.store, catalog.keys, whole, fail_on_data_loss=False):
        for batch in decoder.decode(rows):
            offsets, times = batch.column("offset"), batch.column("timestamp").cast("int64")
            later = (times.to_numpy() >= moment * 1000).nonzero()[0]
            if len(later):
                return int(offsets[int(later[0])].as_py())
    return None
