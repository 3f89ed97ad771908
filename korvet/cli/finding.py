"""A finding of `korvet doctor`."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A checked property. `bad` can lose records or stop the broker; `note` is information."""

    grade: str
    subject: str
    sentence: str
