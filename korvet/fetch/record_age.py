"""The age of fetched records, by the timestamps of their batches."""

import struct
from collections.abc import Sequence
from itertools import islice

from korvet.wire.records import Buffer

_MAGIC_AT, _BATCHES = 16, 2
MAX_TIMESTAMP_AT = 35
_INT64 = struct.Struct(">q")
_HEAD_BYTES = MAX_TIMESTAMP_AT + _INT64.size


def max_timestamp_of(parts: Sequence[Buffer]) -> int:
    """Return the max timestamp of the first batch in ms; -1 if it has none.

    A message set of a client below Fetch version 4 has none either.
    """
    head = b"".join(memoryview(part)[:_HEAD_BYTES] for part in islice(parts, 3))
    if len(head) < _HEAD_BYTES or head[_MAGIC_AT] != _BATCHES:
        return -1
    timestamp: int = _INT64.unpack_from(head, MAX_TIMESTAMP_AT)[0]
    return timestamp
