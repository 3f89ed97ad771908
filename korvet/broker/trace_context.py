"""Find W3C trace contexts in the headers of records, without decoding the records.

A header is its key's length, the key, its value's length and the value. `traceparent` has one
length, so that its bytes can be searched for.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from korvet.wire import compression
from korvet.wire.records import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT, Buffer

MAX_CONTEXTS = 32
"""Max contexts of one request."""
MAX_DECOMPRESSED_BYTES = 1 << 20
"""Max size of the records of a compressed batch that is searched."""
_HEADER = re.compile(rb"\x16traceparent\x6e(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")


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
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        return batch
    codec = batch[ATTRIBUTES_AT + 1] & CODEC_MASK
    if not codec:
        return batch
    try:
        records = memoryview(batch)[HEADER_SIZE:]
        return compression.decompress(codec, records, MAX_DECOMPRESSED_BYTES)
    except Exception:  # the validator reports it
        return b""
