"""An XRANGE reply as columns, out of the bytes that Redis sent: no object an entry.

A reply that columns are not for (fields of many kinds, contents that look like an entry) is parsed
by the ordinary parser, entry by entry.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from korvet.log.entry_id import split_id
from korvet.spark.alike import Alike, Unlike
from korvet.spark.matrix import Matrix
from korvet.spark.walk import kinds_of
from korvet.store.raw_reply import parsed


class Reply:
    """The entries of a reply, in whichever form is asked for. Valid as long as its bytes are."""

    def __init__(self, reply: memoryview) -> None:
        self._reply = reply
        head = bytes(reply[:24])
        self._body = head.index(b"\r\n") + 2
        self._count = int(head[1 : self._body - 2])

    @classmethod
    def of(cls, rows: list[Any]) -> Self:
        """Entries that have been parsed."""
        made = cls(memoryview(b"*%d\r\n" % len(rows)))
        made.rows = rows
        made.kinds = None
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """How many bytes Redis sent, 0 where these entries had been parsed."""
        return len(self._reply) - self._body

    @cached_property
    def rows(self) -> list[Any]:
        """The entries as Redis sent them: [id, [field, value, ...]]."""
        found: list[Any] = parsed(self._reply)
        return found

    @cached_property
    def kinds(self) -> Sequence[Alike] | None:
        """The entries as columns, those with the same fields together; None where columns are not
        for them."""
        if not self._count:
            return None
        body = self._reply[self._body :]
        matrix = Matrix.of(body, self._count)
        if matrix is not None:
            return [matrix]
        try:
            return kinds_of(body, self._count)
        except Unlike:
            return None

    @property
    def alike(self) -> Alike | None:
        """The entries as columns, if all have the same fields."""
        return self.kinds[0] if self.kinds is not None and len(self.kinds) == 1 else None

    @property
    def last_id(self) -> bytes:
        """The id of the last entry; there is one."""
        if self.kinds is None:
            last: bytes = self.rows[-1][0]
            return last
        return max((kind.last_id for kind in self.kinds), key=split_id)
