"""An XRANGE reply as columns, read from the raw RESP bytes without an object per entry.

Entries that differ too much in their fields are parsed one by one by the ordinary parser.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from korvet.log.entry_id import OffsetMap, split_id
from korvet.spark.decode.fixed_width import FixedWidth
from korvet.spark.decode.uniform_entries import NotUniform, UniformEntries
from korvet.spark.decode.variable_width import group_by_fields
from korvet.store.raw_reply import parsed


class XRangeReply:
    """The entries of a reply as columns or as rows. Valid as long as its buffer is."""

    def __init__(self, reply: memoryview) -> None:
        self.places: OffsetMap | None = None
        """The ids and offsets of the log; None if all ids are natural."""
        self._reply = reply
        head = bytes(reply[:24])
        self._body = head.index(b"\r\n") + 2
        self._count = int(head[1 : self._body - 2])

    @classmethod
    def of(cls, rows: list[Any]) -> Self:
        """Return a reply of entries that are already parsed."""
        made = cls(memoryview(b"*%d\r\n" % len(rows)))
        made.rows = rows
        made.groups = None
        return made

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Return the number of bytes that Redis sent, or 0 for parsed entries."""
        return len(self._reply) - self._body

    @cached_property
    def rows(self) -> list[Any]:
        """Return the entries as rows: [id, [field, value, ...]]."""
        found: list[Any] = parsed(self._reply)
        return found

    @cached_property
    def groups(self) -> Sequence[UniformEntries] | None:
        """Return the entries as columns, one group per list of fields, or None if they differ."""
        if not self._count:
            return None
        body = self._reply[self._body :]
        fixed = FixedWidth.of(body, self._count)
        if fixed is not None:
            return [fixed]
        try:
            return group_by_fields(body, self._count)
        except NotUniform:
            return None

    @property
    def uniform(self) -> UniformEntries | None:
        """Return the entries as columns if all have the same fields, else None."""
        return self.groups[0] if self.groups is not None and len(self.groups) == 1 else None

    @property
    def last_id(self) -> bytes:
        """Return the id of the last entry. There must be one."""
        if self.groups is None:
            last: bytes = self.rows[-1][0]
            return last
        return max((kind.last_id for kind in self.groups), key=split_id)
