"""Limit the bytes of fetch responses that one process holds."""

MAX_BYTES = 512 << 20
"""Above this, a response is limited to MIN_RESPONSE_BYTES."""
MIN_RESPONSE_BYTES = 1 << 20


class ResponseMemory:
    """The bytes of responses that are being read, or that clients have not received yet."""

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def available(self) -> int:
        """Bytes the next response may have."""
        return max(MAX_BYTES - self.bytes, MIN_RESPONSE_BYTES)
