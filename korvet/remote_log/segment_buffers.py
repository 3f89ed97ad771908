"""A buffer for segments that is used again: 32 MB of fresh memory cost 8,000 page faults."""


class SegmentBuffers:
    """Lends buffers to the copies of one process, and keeps one of them."""

    def __init__(self) -> None:
        self._kept: bytearray | None = None
        self._is_used = False

    def take(self) -> bytearray:
        """Return a buffer of any size and content."""
        self._is_used = True
        found, self._kept = self._kept, None
        return bytearray() if found is None or _is_in_use(found) else found

    def give_back(self, buffer: bytearray) -> None:
        """Keep the buffer for the next segment. Its object must be written, or never have been."""
        self._kept = buffer

    def drop_unused(self) -> None:
        """Free the memory if no segment was copied since the last call."""
        if not self._is_used:
            self._kept = None
        self._is_used = False


def _is_in_use(buffer: bytearray) -> bool:
    """Return whether a view of the buffer exists: Python then refuses to resize it."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
