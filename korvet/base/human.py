"""Numbers, sizes and times as people read them: on pages, in tables and in reports."""

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(nbytes: float) -> str:
    """Return bytes in the largest unit that fits."""
    value, unit = float(nbytes), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def moment(ms: int) -> str:
    """Return a time in UTC, a dash for none; in ms if it is outside of the calendar's range."""
    if ms < 0:
        return "-"
    try:
        time = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return time.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"


def ago(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            count = seconds / length
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
