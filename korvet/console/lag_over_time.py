"""The recorded lag of a group, as a page shows it."""

from collections.abc import Sequence

import msgspec

from korvet.console.visit import Visit
from korvet.groups import lag_history
from korvet.groups.description import Place

HOUR_MS = 3_600_000
MAX_LINES = 500
"""Max partitions with a line."""


class LagLine(msgspec.Struct, frozen=True):
    """The lag of a partition in the last hour, in records, at the times of the hour."""

    topic: str
    partition: int
    lags: list[int]


class LagOverTime(msgspec.Struct, frozen=True):
    """The lag of a group over time, in records. Empty until a sample is recorded."""

    times_ms: list[int]
    """A sample each minute for an hour, then one each quarter of an hour for a day."""
    totals: list[int]
    """The lag of all partitions at these times."""
    partitions: list[LagLine]
    """Partitions that had a lag in the last hour, in order."""
    hour: int
    """Samples of the last hour: the last ones of `times_ms`."""
    cut: int
    """The greatest lag that a partition without a row may have had, 0 if all have one."""


async def read(visit: Visit, group: str, at_ms: int) -> LagOverTime:
    """Return the recorded lag of a group, of topics that the user may see."""
    services = visit.services
    samples = await lag_history.read(services.store, services.keys, group)
    names = {topic for each in samples for topic, _ in each.lags}
    seen = {name for name in names if visit.context().may_describe(name, audit=False)}
    rows = [
        {place: lag for place, lag in each.lags.items() if place[0] in seen} for each in samples
    ]
    times = [each.at_ms for each in samples]
    hour = sum(time > at_ms - HOUR_MS for time in times)
    return LagOverTime(
        times,
        [sum(row.values()) for row in rows],
        _lines(rows[len(rows) - hour :]),
        hour,
        max((each.cut for each in samples), default=0),
    )


def _lines(rows: Sequence[dict[Place, int]]) -> list[LagLine]:
    places = sorted({place for row in rows for place in row})
    return [LagLine(*place, [row.get(place, 0) for row in rows]) for place in places[:MAX_LINES]]
