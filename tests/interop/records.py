"""The records that every client has to send and read unchanged."""

import time
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BIG = 900_000
PRESENT = time.time_ns() // 1_000_000_000 * 1000 - 60_000
"""One minute ago, in ms: within every broker's retention and not in its future."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """A record as a producer sends it and a consumer reads it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = PRESENT


EVERY_SHAPE = (
    Record(b"key", b"value"),
    Record(None, b"no key"),
    Record(b"", b"empty key"),
    Record(b"tombstone", None),
    Record(b"empty value", b""),
    Record(None, None),
    Record(b"", b""),
    Record(b"headers", b"v", (("a", b"1"), ("b", b"2"))),
    Record(b"repeated headers", b"v", (("a", b"2"), ("b", b""), ("a", b"1"), ("a", b"2"))),
    Record(b"null header", b"v", (("a", None), ("b", b""))),
    Record(b"odd header names", b"v", (("", b"x"), ("key", b"k"), ("sch\u00fc", b"\xff\x00"))),
    Record(b"tombstone with header", None, (("why", b"gone"),)),
    Record(bytes(range(256)), bytes(reversed(range(256)))),
    Record(b"late", b"v", timestamp=PRESENT + 50_000),
    Record(b"early", b"v", timestamp=PRESENT - 3_600_000),
    Record(b"big", bytes(range(250)) * (BIG // 250)),
)
