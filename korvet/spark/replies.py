"""An XRANGE reply as columns, out of the bytes that Redis sent: no object an entry.

Where every entry has the same fields in the same order, the reply is one template in which only
lengths and contents differ:

    *2 $<n> <id> *6 $3 key $<n> <bytes> $5 value $<n> <bytes> $9 timestamp $<n> <bytes>

Rules
- Where an entry may begin is found by its first bytes; that it does is proven: each must end
  exactly where the next begins, and all that is template is compared.
- A reply that this is not for (fields differ, contents that look like an entry) is parsed by the
  ordinary parser, entry by entry.
- A column is an Arrow array over the reply itself, from which the contents are taken.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.offsets import DENSE_MS
from korvet.spark import arrays
from korvet.store.bulk import parsed

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_STAR, _CR, _LF, _ZERO = b"*"[0], b"\r"[0], b"\n"[0], b"0"[0]
_MOST_DIGITS = 10
_ENTRY = b"*2\r\n"


class Unlike(Exception):
    """The entries are not of one kind."""


class Spans(NamedTuple):
    """Where the contents of one column begin and end."""

    start: Ints
    end: Ints


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
        made.alike = None
        return made

    def __len__(self) -> int:
        return self._count

    @cached_property
    def rows(self) -> list[Any]:
        """The entries as Redis sent them: [id, [field, value, ...]]."""
        found: list[Any] = parsed(self._reply)
        return found

    @cached_property
    def alike(self) -> "Alike | None":
        """The entries as columns, if all have the same fields."""
        try:
            return Alike(self._reply[self._body :], self._count) if self._count else None
        except Unlike:
            return None

    @property
    def last_id(self) -> bytes:
        """The id of the last entry; there is one."""
        last: bytes = self.rows[-1][0] if self.alike is None else self.alike.last_id
        return last


class Alike:
    """Entries that have the same fields in the same order. Raises Unlike for others."""

    def __init__(self, body: memoryview, count: int) -> None:
        self._buffer = pa.py_buffer(body)
        self._body: Bytes = np.frombuffer(body, dtype=np.uint8)
        self.count = count
        self.columns: dict[bytes, Spans] = {}
        if not self._is_matrix():
            self._walk()

    def _walk(self) -> None:
        """Ids and columns are found, however long each content is."""
        begins = self._begins()
        at, self._ids = self._content(begins + 5)
        ends = int(begins[1]) if self.count > 1 else len(self._body)
        first, names = _names_of(self._body[int(at[0]) : ends].tobytes())
        at = self._expect(at, first)
        for name, template in names:
            at, self.columns[name] = self._content(self._expect(at, template))
        if at[-1] != len(self._body) or (at[:-1] != begins[1:]).any():
            raise Unlike

    def _is_matrix(self) -> bool:
        """Whether the contents have the same length in every entry. An entry is then a row of a
        matrix; ids and columns are found in the first, the rest has to look like it."""
        size, rest = divmod(len(self._body), self.count)
        if rest:
            return False
        rows = self._body.reshape(self.count, size)
        found = _contents_of(rows[0].tobytes())
        if found is None:
            return False
        behind = 0
        for _, start, end in [*found, (b"", size, size)]:
            if (rows[:, behind:start] != rows[0, behind:start]).any():
                return False
            behind = end
        begins = np.arange(0, len(self._body), size)
        (_, start, end), *fields = found
        self._ids = Spans(begins + start, begins + end)
        self.columns = {name: Spans(begins + start, begins + end) for name, start, end in fields}
        return True

    @property
    def last_id(self) -> bytes:
        return bytes(self._body[self._ids.start[-1] : self._ids.end[-1]])

    def binary(self, spans: Spans) -> Any:
        """The contents as an Arrow array."""
        return self._taken(spans, pa.binary())

    def numbers(self, spans: Spans) -> Ints:
        """The contents as whole numbers; Unlike where one is none."""
        second = self._at(spans.start + 1) | 0x20
        if (second == b"x"[0]).any():
            raise Unlike  # Arrow would read hexadecimal
        try:
            return arrays.numbers(self._taken(spans, pa.string()).cast(pa.int64()))
        except pa.ArrowInvalid:
            raise Unlike from None

    def ids(self) -> tuple[Ints, Ints]:
        """Milliseconds and sequence of each id. Those of dense logs are read by their second half
        alone: ids ascend, so that where the first and the last are dense all are."""
        start, end = self._ids
        dash = self.last_id.index(b"-")
        dense = b"%d-" % DENSE_MS
        if self.last_id.startswith(dense):
            if not self._body[start[0] : end[0]].tobytes().startswith(dense):
                raise Unlike
            return np.full(self.count, DENSE_MS), self.numbers(Spans(start + dash + 1, end))
        if (self._at(start + dash) != b"-"[0]).any():
            raise Unlike
        return (
            self.numbers(Spans(start, start + dash)),
            self.numbers(Spans(start + dash + 1, end)),
        )

    def _begins(self) -> Ints:
        """Where entries begin, if there are no more such places than entries."""
        found: Ints = np.flatnonzero(self._body == _STAR)
        for n, byte in enumerate(b"2\r\n$", 1):
            found = found[self._at(found + n) == byte]
        if len(found) == 2 * self.count:
            found = found[::2]  # the fields of an entry with a single one begin like an entry
        if len(found) != self.count or found[0]:
            raise Unlike
        return found

    def _content(self, at: Ints) -> tuple[Ints, Spans]:
        """The bulk strings whose lengths stand here, and what comes behind them."""
        length = np.zeros(self.count, dtype=np.int64)
        for _ in range(_MOST_DIGITS):
            byte = self._at(at)
            ended = byte == _CR
            if ended.all():
                break
            digit = (byte - np.uint8(_ZERO)).astype(np.int64)
            if (digit[~ended] > 9).any():
                raise Unlike
            length = np.where(ended, length, length * 10 + digit)
            at = at + ~ended
        start = at + 2
        end = start + length
        if (end > len(self._body)).any():
            raise Unlike
        return end + 2, Spans(start, end)

    def _expect(self, at: Ints, template: bytes) -> Ints:
        """What comes behind the template, which stands here in every entry."""
        for n, byte in enumerate(template):
            if (self._at(at + n) != byte).any():
                raise Unlike
        return at + len(template)

    def _at(self, places: Ints) -> Bytes:
        found: Bytes = self._body.take(places, mode="clip")
        return found

    def _taken(self, spans: Spans, type_: Any) -> Any:
        edges = np.empty(2 * self.count + 1, dtype=np.int32)
        edges[0:-1:2] = spans.start
        edges[1::2] = spans.end
        edges[-1] = edges[-2]
        between = pa.Array.from_buffers(
            type_, 2 * self.count, [None, pa.py_buffer(edges), self._buffer]
        )
        return between.take(arrays.of(np.arange(0, 2 * self.count, 2)))


def _contents_of(entry: bytes) -> list[tuple[bytes, int, int]] | None:
    """Where the id of an entry stands, under no name, and the contents of its fields; None if this
    is not one whole entry."""
    try:
        id_, at = _bulk(entry, len(_ENTRY))
        found = [(b"", at - 2 - len(id_), at - 2)]
        head, names = _names_of(entry[at:])
        at += len(head)
        for name, template in names:
            content, at = _bulk(entry, at + len(template) - 1)
            found.append((name, at - 2 - len(content), at - 2))
    except (ValueError, IndexError, Unlike):
        return None
    return found if at == len(entry) and entry.startswith(_ENTRY) else None


def _names_of(first: bytes) -> tuple[bytes, Sequence[tuple[bytes, bytes]]]:
    """Of an entry's fields: the template before the first, then each name with the template up to
    its value's length."""
    try:
        at = first.index(b"\r\n") + 2
        head, fields = first[:at], int(first[1 : at - 2])
        found = []
        for _ in range(fields // 2):
            begun = at
            name, at = _bulk(first, at)
            found.append((name, first[begun : at + 1]))
            _, at = _bulk(first, at)
    except (ValueError, IndexError):
        raise Unlike from None
    if len(dict(found)) != len(found):
        raise Unlike
    return head, found


def _bulk(data: bytes, at: int) -> tuple[bytes, int]:
    """The bulk string at `at`, and what comes behind it. IndexError where the data ends."""
    start = data.index(b"\r\n", at) + 2
    end = start + int(data[at + 1 : start - 2])
    if end + 2 > len(data):
        raise IndexError
    return data[start:end], end + 2
