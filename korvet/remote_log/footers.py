"""The footers of segments: each is read and verified once, and cached."""

from collections import OrderedDict
from collections.abc import Callable

from korvet.remote_log.manifest import checked_footer
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.wire.segments import Segment

CACHE_BYTES = 16 << 20
"""Bytes of footers in memory by default; one of a segment of 32 MiB has about 16 KiB."""


class Footers:
    """The last footers that were read: at least one, and up to `capacity` bytes of them."""

    def __init__(self, store: SegmentStore, capacity: Callable[[], int]) -> None:
        self.size = 0
        self._store = store
        self._capacity = capacity
        self._footers: OrderedDict[str, tuple[Segment, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._footers)

    def known(self, name: str) -> Segment | None:
        """Return the footer of an object if it is in memory."""
        found = self._footers.get(name)
        return None if found is None else found[0]

    async def get(self, name: str, begin: int, end: int) -> Segment:
        """Return the footer of an object, which has it at these positions."""
        found = self._footers.get(name)
        if found is not None:
            self._footers.move_to_end(name)
            return found[0]
        try:
            segment = checked_footer(name, await self._store.get(name, begin, end))
        except RemoteStorageError:
            await self._store.forget(name)
            raise
        if name not in self._footers:
            self._footers[name] = segment, end - begin
            self.size += end - begin
        capacity = self._capacity()
        while self.size > capacity and len(self._footers) > 1:
            _, (_, size) = self._footers.popitem(last=False)
            self.size -= size
        return segment
