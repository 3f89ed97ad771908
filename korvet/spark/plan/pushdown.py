"""Use filters on topic, partition, offset and timestamp to narrow the ranges to read.

Rules
- Topic, partition and offset are exact: Spark need not filter again. A timestamp only narrows,
  because timestamps may decrease within a log: Spark still filters.
- Spark shares the narrowed ranges between all uses of a DataFrame or view. So only the option
  `pushFilters` selects a reader that takes filters.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from korvet.spark.metadata import MetadataClient
from korvet.spark.partitions import OffsetRange

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_LAST = 2**63 - 1
_OFFSET_RANGES: dict[type[Filter], Callable[[int], tuple[int, int]]] = {
    GreaterThan: lambda value: (value + 1, _LAST),
    GreaterThanOrEqual: lambda value: (value, _LAST),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}
"""The offsets that a filter selects, from the first up to the second."""
_COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class Bounds(msgspec.Struct, frozen=True):
    """Bounds left by the filters: `since` in ms; None: not bounded."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    low: int = 0
    high: int = _LAST
    since: int | None = None

    def covers(self, topic: str, partition: int) -> bool:
        """Return whether the bounds include any of the partition."""
        return (self.topics is None or topic in self.topics) and (
            self.numbers is None or partition in self.numbers
        )


def narrow_bounds(bounds: Bounds, filter_: Filter) -> tuple[Bounds, bool]:
    """Return the bounds narrowed by the filter, and whether they express it completely."""
    attribute: tuple[str, ...] = getattr(filter_, "attribute", ())
    if len(attribute) != 1:
        return bounds, False
    name = attribute[0]
    if isinstance(filter_, IsNotNull):
        return bounds, name in _NEVER_NULL
    if isinstance(filter_, EqualTo | In):
        values = filter_.value if isinstance(filter_, In) else (filter_.value,)
        return _narrow_to_values(bounds, name, values)
    if name == "offset" and isinstance(filter_, _COMPARISONS):
        low, high = _OFFSET_RANGES[type(filter_)](filter_.value)
        return _narrow_offsets(bounds, low, high), True
    if name == "timestamp" and isinstance(filter_, GreaterThan | GreaterThanOrEqual):
        return _narrow_timestamp(bounds, filter_.value), False
    return bounds, False


def _narrow_to_values(bounds: Bounds, name: str, values: Sequence[Any]) -> tuple[Bounds, bool]:
    change = msgspec.structs.replace
    found = frozenset(value for value in values if value is not None)
    if name == "topic":
        both = found if bounds.topics is None else found & bounds.topics
        return change(bounds, topics=both), True
    if name == "partition":
        numbers = found if bounds.numbers is None else found & bounds.numbers
        return change(bounds, numbers=numbers), True
    if name == "offset" and found:
        return _narrow_offsets(bounds, min(found), max(found) + 1), len(found) == 1
    if name == "timestamp" and len(found) == 1:
        return _narrow_timestamp(bounds, next(iter(found))), False
    return bounds, False


def _narrow_offsets(bounds: Bounds, low: int, high: int) -> Bounds:
    low, high = max(bounds.low, low), min(bounds.high, high)
    return msgspec.structs.replace(bounds, low=low, high=high)


def _narrow_timestamp(bounds: Bounds, value: Any) -> Bounds:
    if not isinstance(value, datetime):
        return bounds
    moment = int(value.timestamp() * 1000)
    if moment <= 0:
        return bounds  # a record without a timestamp has -1: just before 1970
    return msgspec.structs.replace(bounds, since=max(moment, bounds.since or 0))


def narrow_ranges(
    metadata: MetadataClient, bounds: Bounds, ranges: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """Return the ranges narrowed to the bounds, without empty ones."""
    from korvet.spark.decode.offset_for_time import offset_for_time

    found = []
    for each in ranges:
        start, end = max(each.start, bounds.low), min(each.end, bounds.high)
        if bounds.since is not None and start < end:
            first = offset_for_time(metadata, each.log, bounds.since, end)
            start = end if first is None else max(start, first)
        if start < end:
            found.append(OffsetRange(each.log, start, end))
    return found
