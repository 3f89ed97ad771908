"""What consumers say when they join a group: the topics they subscribe to.

The bytes are the client's (Kafka's ConsumerProtocolSubscription); what cannot be read says nothing.
"""

import struct
from collections.abc import Iterable


def topics_of(metadata: Iterable[bytes]) -> set[str]:
    """Every topic that one of these members subscribes to."""
    found: set[str] = set()
    for text in metadata:
        found.update(_topics(text))
    return found


def _topics(metadata: bytes) -> list[str]:
    names: list[str] = []
    try:
        _, count = struct.unpack_from(">hi", metadata, 0)
        at = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                return []
            names.append(metadata[at : at + size].decode())
            at += size
    except (struct.error, UnicodeDecodeError):
        return []
    return names
