"""The client's side of the wire: frames and headers, as commands write them, and batches."""

import struct
from collections.abc import Iterator

from korvet.wire.headers import decode_response_header as decode_response_header
from korvet.wire.headers import encode_request_header as encode_request_header
from korvet.wire.headers import frame as frame
from korvet.wire.primitives import Buffer
from korvet.wire.records import LOG_OVERHEAD


def batches_in(data: Buffer) -> Iterator[memoryview]:
    """Yield the whole batches in `data`; an incomplete one at the end is left out."""
    view = memoryview(data)
    at = 0
    while at + LOG_OVERHEAD <= len(view):
        (length,) = struct.unpack_from(">i", view, at + 8)
        end = at + LOG_OVERHEAD + length
        if length <= 0 or end > len(view):
            return
        yield view[at:end]
        at = end
