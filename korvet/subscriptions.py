"""What consumers say when they join a group: the topics they subscribe to.

The bytes are the client's (Kafka's ConsumerProtocolSubscription); what cannot be read may mean any
topic.
"""

import struct
from collections.abc import Iterable


def topics_of(metadata: Iterable[bytes]) -> set[str] | None:
    """Every topic that one of these members subscribes to; None when nobody can say."""
    found: set[str] = set()
    for text in metadata:
        names = _topics(text)
        if names is None:
            return None
        found.update(names)
    return found


def _topics(metadata: bytes) -> list[str] | None:
    names: list[str] = []
    try:
        _, count = struct.unpack_from(">hi", metadata, 0)
        at = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                return None
            names.append(metadata[at : at + size].decode())
            at += size
    except (struct.error, UnicodeDecodeError):
        return None
    return names
