"""Entry ids and offsets, the arithmetic between them: the twin of lua/lib/entry_id.lua.

time   id = (offset >> bits) "-" (offset & (2^bits - 1)).
dense  id = DENSE_MS "-" offset. So many milliseconds lie in the far future, and a plain
       `XADD stream *` therefore takes the next dense offset by itself.
bytes  as dense.
"""

DENSE_MS = 1_000_000_000_000_000


def entry_id(mode: str, bits: int, offset: int) -> str:
    """The id of the entry that holds `offset`."""
    if mode == "time":
        return f"{offset >> bits}-{offset & ((1 << bits) - 1)}"
    return f"{DENSE_MS}-{offset}"


def offset_of(mode: str, bits: int, raw: bytes) -> int:
    """The offset that an id stands for; the highest before it, where it has none of its own."""
    milliseconds, sequence = split_id(raw)
    if mode == "time":
        return (milliseconds << bits) | min(sequence, (1 << bits) - 1)
    return sequence if milliseconds == DENSE_MS else 0


def split_id(raw: bytes) -> tuple[int, int]:
    """The milliseconds and the sequence of an id."""
    milliseconds, _, sequence = raw.partition(b"-")
    return int(milliseconds), int(sequence)
