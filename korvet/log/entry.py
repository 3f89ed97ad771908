"""An entry of a partition's stream."""

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """A stream entry with the first and the last offset it holds."""

    first: int
    last: int
    fields: list[bytes]
    milliseconds: int
    """When it was appended, by its id; when it was read, if ids hold no time."""
    size: int
