"""Resolve start and end options to offsets: earliest, latest, JSON, timestamps."""

import logging
from collections.abc import Sequence

from korvet.spark.errors import DataLoss, InvalidOption
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import EARLIEST, LATEST, Offsets, OffsetSpec, ReadOptions
from korvet.spark.partitions import (
    OffsetRange,
    PartitionBounds,
    PartitionLog,
    data_lost_error,
    truncated_error,
)

logger = logging.getLogger("korvet.spark")


def resolve_offsets(
    metadata: MetadataClient,
    spec: OffsetSpec,
    logs: Sequence[PartitionLog],
    bounds: Sequence[PartitionBounds],
    options: ReadOptions,
) -> list[int]:
    """Return the offset of the spec in each partition, given its bounds.

    Raises InvalidOption if the spec does not cover every partition. Unless the options allow data
    loss, raises DataLoss for an offset that is not in the log.
    """
    if spec.timestamp is not None:
        return _resolve_timestamps(metadata, spec, logs, bounds, [spec.timestamp] * len(logs))
    if spec.timestamps is not None:
        moments = _one_per_partition(spec, spec.timestamps, logs)
        return _resolve_timestamps(metadata, spec, logs, bounds, moments)
    return _resolve_spec(spec, logs, bounds, options.fail_on_data_loss)


def _resolve_spec(
    spec: OffsetSpec, logs: Sequence[PartitionLog], bounds: Sequence[PartitionBounds], strict: bool
) -> list[int]:
    """Return the offsets of a spec without timestamps, given the bounds of each partition."""
    if spec.offsets is None:
        return [bound.first if spec.every_partition == EARLIEST else bound.next for bound in bounds]
    asked = _one_per_partition(spec, spec.offsets, logs)
    return [
        _check_offset(part, bound, at, strict)
        for part, bound, at in zip(logs, bounds, asked, strict=True)
    ]


def batch_ranges(
    metadata: MetadataClient, options: ReadOptions, logs: Sequence[PartitionLog]
) -> list[OffsetRange]:
    """Return the offset range of each partition that a batch read covers, without empty ones."""
    bounds = metadata.bounds(logs, committed=options.committed_only)
    starts = resolve_offsets(metadata, options.start, logs, bounds, options)
    ends = resolve_offsets(metadata, options.end, logs, bounds, options)
    found = []
    for part, bound, start, end in zip(logs, bounds, starts, ends, strict=True):
        # A start at "earliest" may be after a named end if a trim removed all in between.
        at = options.start.named(part.topic, part.partition)
        gone = (start if at is None or at in (EARLIEST, LATEST) else at) <= end < start
        if not gone:
            _check_order(options, part, start, end)
        end = _limit_to_stable(part, bound, end)
        if start < end:
            found.append(bound.range_of(part, start, end))
    return found


def ranges_within(
    options: ReadOptions, logs: Sequence[PartitionLog], bounds: Sequence[PartitionBounds]
) -> list[OffsetRange]:
    """Return the range of each partition, resolved from offsets only; ranges may be empty."""
    starts = _resolve_spec(options.start, logs, bounds, options.fail_on_data_loss)
    ends = _resolve_spec(options.end, logs, bounds, options.fail_on_data_loss)
    found = []
    for part, bound, start, end in zip(logs, bounds, starts, ends, strict=True):
        _check_order(options, part, start, end)
        found.append(bound.range_of(part, start, max(start, _limit_to_stable(part, bound, end))))
    return found


def _limit_to_stable(part: PartitionLog, bound: PartitionBounds, end: int) -> int:
    """Return the end, lowered to the last stable offset if transactions are open below it."""
    if end <= bound.next:
        return end
    logger.warning(
        "%s: read ends at offset %d instead of %d: open transaction", part, bound.next, end
    )
    return bound.next


def _check_order(options: ReadOptions, part: PartitionLog, start: int, end: int) -> None:
    # An open transaction may have begun below an offset that the options name.
    latest = LATEST in (options.end.every_partition, options.end.named(part.topic, part.partition))
    if start > end and not latest:
        raise InvalidOption(
            options.end.option, f"{part} would end at {end}, before its start at {start}."
        )


def _check_offset(part: PartitionLog, bound: PartitionBounds, at: int, strict: bool) -> int:
    if at == EARLIEST:
        return bound.first
    if at == LATEST:
        return bound.next
    # An option's offset above the log's end need not be that of a reader.
    lost = bound.lost_from(at) if at <= bound.end else -1
    if bound.start <= at <= bound.end and lost < 0:
        return at
    if strict:
        if lost >= 0:
            raise truncated_error(part, at, lost)
        if at < bound.start:
            raise data_lost_error(part, at, bound.end, bound.start)
        raise DataLoss(
            f"{part}: offset {at} is after the log end offset {bound.end}. "
            "Set failOnDataLoss to false to use the end instead."
        )
    near = min(max(at if lost < 0 else lost, bound.first), bound.next)
    logger.warning("%s: offset %d is not in the log, using %d", part, at, near)
    return near


def _one_per_partition(spec: OffsetSpec, given: Offsets, logs: Sequence[PartitionLog]) -> list[int]:
    """Return the value for each partition; raise InvalidOption unless exactly these are named."""
    wanted = {(part.topic, part.partition) for part in logs}
    named = {(topic, number) for topic, places in given.items() for number in places}
    if wanted != named:
        missing = ", ".join(f"{topic}-{number}" for topic, number in sorted(wanted - named))
        beyond = ", ".join(f"{topic}-{number}" for topic, number in sorted(named - wanted))
        raise InvalidOption(
            spec.option,
            "must name each partition that is read, and no other"
            + (f"; missing {missing}" if missing else "")
            + (f"; not read {beyond}" if beyond else "")
            + ".",
        )
    return [given[part.topic][part.partition] for part in logs]


def _resolve_timestamps(
    metadata: MetadataClient,
    spec: OffsetSpec,
    logs: Sequence[PartitionLog],
    bounds: Sequence[PartitionBounds],
    moments: Sequence[int],
) -> list[int]:
    from korvet.spark.decode.offset_for_time import offset_for_time

    found = []
    for part, bound, moment in zip(logs, bounds, moments, strict=True):
        if moment in (EARLIEST, LATEST):
            found.append(_check_offset(part, bound, moment, True))
            continue
        at = offset_for_time(metadata, part, moment, bound.next)
        if at is None and not spec.latest_if_missing:
            raise InvalidOption(
                spec.option,
                f"no record of {part} has timestamp {moment} or later. Option "
                "startingOffsetsByTimestampStrategy=latest uses the end of the log instead.",
            )
        found.append(bound.next if at is None else at)
    return found
