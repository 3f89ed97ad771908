"""Find the end of a reply in received bytes, without an object per value."""

import re

_LINE = re.compile(rb"[^\r\n]*\r\n")
_COUNTED = re.compile(rb"(?:\$-1|\$(\d+)|\*-1|\*(\d+)|[-+:][^\r\n]*)\r\n")


class BadReply(ValueError):
    """The bytes are no reply of Redis."""


def end_of(view: memoryview, at: int, end: int) -> int:
    """Return the position after the reply that begins at `at`; -1 if it is incomplete.

    Raises BadReply.
    """
    left = 1
    while left:
        found = _COUNTED.match(view, at, end)
        if found is None:
            if at < end and (view[at] not in b"$*-+:" or _LINE.match(view, at, end)):
                raise BadReply(f"unexpected byte {view[at]} in a reply")
            return -1
        at = found.end()
        size, items = found.groups()
        if size is not None:
            at += int(size) + 2
        elif items is not None:
            left += int(items)
        left -= 1
    return at if at <= end else -1
