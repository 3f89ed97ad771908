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
    leader_epoch: int = -1
    """The epoch that the client knows, -1 if it names none."""

    def epoch_of(self, log_epoch: int) -> int:
        """Return the epoch of the records: no newer one than the client knows.

        It takes theirs for the epoch of its position, and compares that with the one it learns
        later.
        """
        return log_epoch if self.leader_epoch < 0 else min(log_epoch, self.leader_epoch)
