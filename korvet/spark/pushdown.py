"""Filters on topic, partition, offset and timestamp as ranges of what has to be read.

Rules
- Topic, partition and offset are known exactly, so Spark need not look again. A timestamp only
  narrows: timestamps may go back within a log, so Spark still filters.
- Spark refuses a reader that has `pushFilters` unless spark.sql.python.filterPushdown.enabled is
  set. `Pushdown` looks like the method nobody overrode, so the source works with and without it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from korvet.spark.catalog import Catalog, Range

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_LAST = 2**63 - 1


class Bounds(msgspec.Struct, frozen=True):
    """What the filters leave: `since` in ms; None where they say nothing."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    low: int = 0
    high: int = _LAST
    since: int | None = None

    def covers(self, topic: str, partition: int) -> bool:
        """Whether anything of the partition is left."""
        return (self.topics is None or topic in self.topics) and (
            self.numbers is None or partition in self.numbers
        )


class Pushdown:
    """`pushFilters` of one reader."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        found: Iterable[Filter] = self._reader.accept(filters)
        return found


def understood(bounds: Bounds, each: Filter) -> tuple[Bounds, bool]:
    """The bounds with this filter, and whether they say all that it says."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if len(attribute) != 1:
        return bounds, False
    name = attribute[0]
    if isinstance(each, IsNotNull):
        return bounds, name in _NEVER_NULL
    if isinstance(each, EqualTo | In):
        values = each.value if isinstance(each, In) else (each.value,)
        return _among(bounds, name, values)
    if name == "offset":
        return _beyond(bounds, each)
    if name == "timestamp" and isinstance(each, GreaterThan | GreaterThanOrEqual):
        return _since(bounds, each.value), False
    return bounds, False


def _among(bounds: Bounds, name: str, values: Sequence[Any]) -> tuple[Bounds, bool]:
    change = msgspec.structs.replace
    found = frozenset(value for value in values if value is not None)
    if name == "topic":
        both = found if bounds.topics is None else found & bounds.topics
        return change(bounds, topics=both), True
    if name == "partition":
        numbers = found if bounds.numbers is None else found & bounds.numbers
        return change(bounds, numbers=numbers), True
    if name == "offset" and found:
        low, high = max(bounds.low, min(found)), min(bounds.high, max(found) + 1)
        return change(bounds, low=low, high=high), len(found) == 1
    if name == "timestamp" and len(found) == 1:
        return _since(bounds, next(iter(found))), False
    return bounds, False


def _beyond(bounds: Bounds, each: Filter) -> tuple[Bounds, bool]:
    change = msgspec.structs.replace
    if isinstance(each, GreaterThan):
        return change(bounds, low=max(bounds.low, each.value + 1)), True
    if isinstance(each, GreaterThanOrEqual):
        return change(bounds, low=max(bounds.low, each.value)), True
    if isinstance(each, LessThan):
        return change(bounds, high=min(bounds.high, each.value)), True
    if isinstance(each, LessThanOrEqual):
        return change(bounds, high=min(bounds.high, each.value + 1)), True
    return bounds, False


def _since(bounds: Bounds, value: Any) -> Bounds:
    if not isinstance(value, datetime):
        return bounds
    moment = int(value.timestamp() * 1000)
    if moment <= 0:
        return bounds  # records without a time count as just before 1970
    return msgspec.structs.replace(bounds, since=max(moment, bounds.since or 0))


def narrowed(catalog: Catalog, bounds: Bounds, ranges: Sequence[Range]) -> list[Range]:
    """The ranges within the bounds; empty ones left out."""
    from korvet.spark.places import at_moment

    found = []
    for each in ranges:
        start, end = max(each.start, bounds.low), min(each.end, bounds.high)
        if bounds.since is not None and start < end:
            first = at_moment(catalog, each.log, bounds.since, end)
            start = end if first is None else max(start, first)
        if start < end:
            found.append(Range(each.log, start, end))
    return found
