"""Entries that have the same fields in the same order, as columns.

Where contents stand is found in one of two ways: `matrix` for contents that are equally long in
every entry, `walk` for any others. Both say it with a `start` and an `end`, of each row or in the
whole reply.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from korvet.log.entry_id import DENSE_MS
from korvet.spark import arrays

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_DENSE = b"%d-" % DENSE_MS
ENTRY = b"*2\r\n"


class Unlike(Exception):
    """The entries are not of one kind, or their contents are not what was asked for."""


class Spans(NamedTuple):
    """Where the contents of one column begin and end."""

    start: Any
    end: Any


class Alike(ABC):
    """Entries as columns."""

    count: int
    columns: Mapping[bytes, Spans]
    """Where the contents of each field stand."""
    _ids: Spans

    @abstractmethod
    def content(self, spans: Spans, entry: int) -> bytes:
        """The contents in one entry."""

    @abstractmethod
    def binary(self, spans: Spans) -> Any:
        """The contents as an Arrow array."""

    @abstractmethod
    def numbers(self, spans: Spans) -> Ints:
        """The contents as whole numbers; Unlike where one is none."""

    @abstractmethod
    def _all(self, place: Any, byte: int) -> bool:
        """Whether this byte stands there in every entry."""

    @property
    def last_id(self) -> bytes:
        """The id of the last entry."""
        return self.content(self._ids, -1)

    def ids(self) -> tuple[Ints, Ints]:
        """Milliseconds and sequence of each id. Ids ascend: where the first and the last are dense
        all are, and where they are as far apart as entries are many none is missing between."""
        start, end = self._ids
        first, last = self.content(self._ids, 0), self.last_id
        dash = last.index(b"-")
        if last.startswith(_DENSE):
            if not first.startswith(_DENSE):
                raise Unlike
            low, high = (int(each[len(_DENSE) :]) for each in (first, last))
            whole = high - low == self.count - 1
            return np.full(self.count, DENSE_MS), (
                np.arange(low, high + 1) if whole else self.numbers(Spans(start + dash + 1, end))
            )
        if not self._all(start + dash, b"-"[0]):
            raise Unlike
        return self.numbers(Spans(start, start + dash)), self.numbers(Spans(start + dash + 1, end))


def numbers_in(texts: Any) -> Ints:
    """The whole numbers that the texts of an Arrow array say; Unlike where one says none."""
    data = texts.buffers()[2]
    if data is not None and b"x" in data.to_pybytes().lower():
        raise Unlike  # Arrow would read hexadecimal
    try:
        return arrays.numbers(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        raise Unlike from None


def contents_of(entry: bytes) -> list[tuple[bytes, int, int]] | None:
    """Where the id of an entry stands, under no name, and the contents of its fields; None if this
    is not one whole entry."""
    try:
        id_, at = _bulk(entry, len(ENTRY))
        found = [(b"", at - 2 - len(id_), at - 2)]
        head, names = names_of(entry[at:])
        at += len(head)
        for name, template in names:
            content, at = _bulk(entry, at + len(template) - 1)
            found.append((name, at - 2 - len(content), at - 2))
    except (ValueError, IndexError, Unlike):
        return None
    return found if at == len(entry) and entry.startswith(ENTRY) else None


def names_of(first: bytes) -> tuple[bytes, Sequence[tuple[bytes, bytes]]]:
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
