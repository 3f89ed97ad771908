"""The footers of segments: each is read and verified once, and cached."""

from collections import OrderedDict

from korvet.remote_log.manifest import checked_footer
from korvet.remote_log.store import SegmentStore
from korvet.wire.segments import Segment

MAX_FOOTERS = 1000
"""Footers in memory; one of a segment of 32 MiB has about 16 KiB."""


class Footers:
    """The last footers that were read."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._footers: OrderedDict[str, Segment] = OrderedDict()

    def known(self, name: str) -> Segment | None:
        """Return the footer of an object if it is in memory."""
        return self._footers.get(name)

    async def get(self, name: str, begin: int, end: int) -> Segment:
        """Return the footer of an object, which has it at these positions."""
        found = self._footers.get(name)
        if found is None:
            found = checked_footer(name, await self._store.get(name, begin, end))
            self._footers[name] = found
            if len(self._footers) > MAX_FOOTERS:
                self._footers.popitem(last=False)
        else:
            self._footers.move_to_end(name)
        return found
