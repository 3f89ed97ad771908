"""What can be wrong with bytes, and with values that are to become bytes.

The first three are the peer's fault: answer if the protocol has an answer, otherwise hang up.
The last is ours: a handler built a value its version cannot carry.
"""


class MalformedRequest(ValueError):
    """The bytes are not what their API and version say; the message begins with the field."""


class UnsupportedVersion(ValueError):
    """The message does not exist in this version."""


class FrameTooLarge(ValueError):
    """The announced length of a frame is negative or above the limit."""


class NotEncodable(ValueError):
    """A value does not fit its field in this version: our mistake, never the peer's."""
