"""Parse positions in a log, for every command that takes one.

A time is ISO 8601 (`2026-01-31T12:00`, `2026-01-31T12:00+01:00`), and UTC unless it names another
time zone: a command means the same on every machine.
"""

from datetime import UTC, datetime, timedelta

from korvet.config.setting import age_ms

EARLIEST, LATEST = "earliest", "latest"

Position = str | int | datetime
"""`earliest`, `latest`, an offset, or a time."""


class BadPosition(Exception):
    """The text is no position; the message lists the valid forms."""


def parse_position(text: str, now: datetime) -> Position:
    """Parse `earliest`, `latest`, an offset, a time, or an age before `now`. Raises BadPosition."""
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return word
    if word.isascii() and word.isdigit() and len(word) < 20 and int(word) < 2**63:
        return int(word)
    age = age_ms(word)
    try:
        if age is not None:
            return now - timedelta(milliseconds=age)
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise BadPosition(
            f"{text!r} is no position: earliest, latest, an offset, a time like 2026-01-31T12:00Z "
            "or an age like 15m, 2h, 1d."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
