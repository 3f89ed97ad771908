"""Findings of the checks, for the doctor, the console and the lines of a start."""

from collections.abc import Iterable

import msgspec

_ORDER = ("bad", "note", "ok")


class Finding(msgspec.Struct, frozen=True):
    """A checked property.

    `bad` can lose records or is a cause, `note` is information, `ok` says that nothing is wrong.
    """

    grade: str
    subject: str
    sentence: str
    path: str = ""
    """The page of the console that shows it."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort the findings by their grades."""
    return sorted(findings, key=lambda each: _ORDER.index(each.grade))


def times_as_offsets(topics: str) -> str:
    """Return the sentence for topics whose offsets are times."""
    return (
        f"offsets of {topics} are times (offset.mode=time): tools that subtract them show a lag "
        "that is no number of records, and fewer records than the newest N (`kcat -o -N`, AKHQ, "
        "Redpanda Console). `korvet groups describe` counts records; offset.mode=dense is for such "
        "tools"
    )
