"""Lines of charts, as the points of SVG polylines."""

from collections.abc import Sequence

import msgspec

WIDTH, HEIGHT = 600, 60
"""The size of a chart in its own units."""
POINT = 4
"""The width of a sample's line."""


class Chart(msgspec.Struct, frozen=True):
    """Lines from `from_ms` to `to_ms`; a gap in the samples separates two lines."""

    lines: list[str]
    most: int
    last: int


def chart(
    times_ms: Sequence[int], values: Sequence[int], from_ms: int, to_ms: int, gap_ms: int
) -> Chart:
    """Return the chart of samples; a pause above `gap_ms` is a gap."""
    shown = [each for each in zip(times_ms, values, strict=True) if each[0] >= from_ms]
    most = max((value for _, value in shown), default=0)
    lines: list[list[str]] = []
    before = 0
    for time, value in shown:
        if not lines or time - before > gap_ms:
            lines.append([])
        before = time
        x = (time - from_ms) * WIDTH / max(1, to_ms - from_ms)
        y = HEIGHT - 1 - (HEIGHT - 3) * value / max(1, most)
        if not lines[-1]:
            # A line of one point would not be seen.
            lines[-1].append(f"{max(0.0, x - POINT):.1f},{y:.1f}")
        lines[-1].append(f"{x:.1f},{y:.1f}")
    return Chart([" ".join(points) for points in lines], most, values[-1] if values else 0)
