"""Lags that Redis has counted, for the next survey.

A lag is valid until the log's ends or its number of records change: a group that does not move on a
log that does not grow costs no call. Groups with one committed offset share a count.
"""

from korvet.scripts.calls.partition import ListOffsetsReply
from korvet.topics.table import Topic

LogOffset = tuple[str, int, int]
"""Id of the topic, partition and offset."""
Ends = tuple[int, int, int]
Counted = tuple[int, int]
"""Records, and the time of the first of them in ms, -1 if unknown."""


class CountedLags:
    """The lags that a survey has used, and those of the survey before."""

    def __init__(self) -> None:
        self._now: dict[LogOffset, tuple[Ends, Counted]] = {}
        self._before: dict[LogOffset, tuple[Ends, Counted]] = {}

    def begin(self) -> None:
        """Begin a survey; lags that the last one did not use are dropped."""
        self._before, self._now = self._now, {}

    def find(
        self, topic: Topic, partition: int, offset: int, end: ListOffsetsReply
    ) -> Counted | None:
        """Return the records from the offset to the end, None if they were not counted."""
        place = (topic.id, partition, offset)
        found = self._now.get(place) or self._before.get(place)
        if found is None or found[0] != _ends(end):
            return None
        self._now[place] = found
        return found[1]

    def keep(
        self, topic: Topic, partition: int, offset: int, end: ListOffsetsReply, lag: Counted
    ) -> None:
        """Keep a lag that was counted while the log had these ends."""
        self._now[topic.id, partition, offset] = (_ends(end), lag)


def _ends(end: ListOffsetsReply) -> Ends:
    return end.first, end.next, end.records
