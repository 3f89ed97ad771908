"""Errors of bytes, and of values to encode.

The first two are the peer's fault: answer if the protocol has an answer, otherwise close. The
last is Korvet's: a handler built a value that its version cannot carry.
"""


class MalformedRequest(ValueError):
    """The bytes do not match their API and version; the message begins with the field."""


class UnsupportedVersion(ValueError):
    """The message does not exist in this version."""


class NotEncodable(ValueError):
    """A value does not fit its field in this version: a bug in Korvet."""
