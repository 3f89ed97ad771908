"""Find W3C trace contexts in the headers of records, without decoding the records.

A header is its key's length, the key, its value's length and the value. `traceparent` has one
length, so that its bytes can be searched for.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from korvet.wire import compression
from korvet.wire.records import Buffer

MAX_CONTEXTS = 32
"""Max contexts of one request."""
MAX_DECOMPRESSED_BYTES = 1 << 20
"""Max size of the records of a compressed batch that is searched."""
_HEADER = re.compile(rb"\x16traceparent\x6e(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
_ATTRIBUTES_AT, _RECORDS_AT = 21, 61
_CODECS = 7


def contexts_in(parts: Iterable[Buffer]) -> list[str]:
    """Return the different values of `traceparent` in these batches, at most MAX_CONTEXTS."""
    found: dict[str, None] = {}
    for part in parts:
        for value in _HEADER.findall(_records_of(part)):
            found[value.decode()] = None
            if len(found) == MAX_CONTEXTS:
                return list(found)
    return list(found)


def produced_parts(request: Any) -> Iterator[Buffer]:
    """Yield the batches of a Produce request."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records:
                yield partition.records


def fetched_parts(response: Any) -> Iterator[Buffer]:
    """Yield the buffers of a Fetch response."""
    for topic in response.responses:
        for partition in topic.partitions:
            yield from partition.records or ()


def _records_of(batch: Buffer) -> Buffer:
    """Return the records of a compressed batch; any other bytes as they are."""
    if len(batch) < _RECORDS_AT:
        return batch
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES_AT)
    if not attributes & _CODECS or batch[16] != 2:
        return batch
    try:
        records = memoryview(batch)[_RECORDS_AT:]
        return compression.decompress(attributes & _CODECS, records, MAX_DECOMPRESSED_BYTES)
    except Exception:  # the validator reports it
        return b""
