"""The request for one read of a partition."""

import msgspec

from korvet.topics.table import Topic


class ReadRequest(msgspec.Struct, frozen=True):
    """Entries of one partition from an offset on: about `max_bytes`, at least one entry."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    committed: bool = False
    """End at the last stable offset, and list aborted transactions."""
    raw: bool = False
    """Layout `bytes`: include the entry whose last record is below the offset, for its bytes."""
    batches: bool = False
    """Return records as stored batches where possible, in `ReadResult.batches`."""
    decompress: bool = False
    """Return values that are compressed at rest as they are sent, and count them so."""
