"""Partitions by topic id as lua/lib/consumer_group.lua spells them: `id:0,1;id:2`."""

from collections.abc import Iterable


def encode_assignment(partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    """These partitions, spelled."""
    rows = [(topic, ",".join(map(str, numbers))) for topic, numbers in partitions]
    return ";".join(f"{topic}:{numbers}" for topic, numbers in rows if numbers).encode()


def decode_assignment(spelled: bytes) -> dict[str, list[int]]:
    """The partitions that were spelled, in order, by topic id."""
    rows = [row.partition(":") for row in spelled.decode().split(";") if row]
    return {topic: sorted(map(int, numbers.split(","))) for topic, _, numbers in sorted(rows)}
