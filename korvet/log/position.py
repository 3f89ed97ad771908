"""Places in a log as people write them: for every command that takes one, the same.

A time is ISO 8601 (`2026-01-31T12:00`, `2026-01-31T12:00+01:00`) and UTC unless it says otherwise:
what a command means does not depend on the machine it runs on.
"""

import re
from datetime import UTC, datetime, timedelta

EARLIEST, LATEST = "earliest", "latest"
_AGE = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Place = str | int | datetime
"""`earliest`, `latest`, an offset, or a moment."""


class BadPosition(Exception):
    """The text is no place in a log; the message says what would be."""


def parse_place(text: str, now: datetime) -> Place:
    """Parse `earliest`, `latest`, an offset, or a moment: a time, or an age before `now`.

    Raises BadPosition.
    """
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return word
    if word.isascii() and word.isdigit() and len(word) < 20 and int(word) < 2**63:
        return int(word)
    age = _AGE.fullmatch(word)
    try:
        if age:
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise BadPosition(
            f"{text!r} is no place: earliest, latest, an offset, a time like 2026-01-31T12:00Z "
            "or an age like 15m, 2h, 1d."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
