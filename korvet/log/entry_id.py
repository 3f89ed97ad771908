"""Convert between entry ids and offsets, as lua/lib/entry_id.lua does.

time   id = (offset >> bits) "-" (offset & (2^bits - 1)).
dense  id = DENSE_MS "-" offset. DENSE_MS is in the far future: `XADD stream *` therefore takes the
       next dense offset.
bytes  as dense.
"""

DENSE_MS = 1_000_000_000_000_000


def entry_id(mode: str, bits: int, offset: int) -> str:
    """Return the id of the entry that holds `offset`."""
    if mode == "time":
        return f"{offset >> bits}-{offset & ((1 << bits) - 1)}"
    return f"{DENSE_MS}-{offset}"


def offset_of(mode: str, bits: int, raw: bytes) -> int:
    """Return the offset of an id; for an id without one, the highest offset below it."""
    milliseconds, sequence = split_id(raw)
    if mode == "time":
        return (milliseconds << bits) | min(sequence, (1 << bits) - 1)
    return sequence if milliseconds == DENSE_MS else 0


def split_id(raw: bytes) -> tuple[int, int]:
    """Return the milliseconds and the sequence of an id."""
    milliseconds, _, sequence = raw.partition(b"-")
    return int(milliseconds), int(sequence)
