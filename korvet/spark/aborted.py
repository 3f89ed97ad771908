"""What a committed read leaves out beside markers: records of aborted transactions."""

from collections.abc import Sequence

import msgspec


class Aborted(msgspec.Struct, frozen=True):
    """A producer's transaction that never happened: its records from `first` to the marker."""

    producer_id: int
    first: int
    marker: int


def is_aborted(aborted: Sequence[Aborted], producer_id: int, offset: int) -> bool:
    """Whether a transactional record belongs to any of them."""
    return any(
        each.producer_id == producer_id and each.first <= offset < each.marker for each in aborted
    )
