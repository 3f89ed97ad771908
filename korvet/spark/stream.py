"""Stream reading: where a stream begins, how far the next batch goes, what its tasks read.

Rules
- An offset is plain JSON, {"orders": {"0": 17, "1": 23, "id": "..."}}: for each partition the
  offset that comes next, and the topic's id, by which a topic deleted and made again is noticed;
  under "/cut" how a batch which ends there is cut into tasks (`cutting`), and the marks of the
  last offsets before it, by which a log is noticed that lost them and gave them to others; and
  under "/from" where partitions begin that the batch before did not know: Spark does not keep
  where the first batch starts, nor does anybody else where a new partition did.
- Marks are compared, and taken, where a partition goes on, and where Spark tells an end that was
  planned by somebody else: a batch to be repeated, or the last one of before.
- A batch is its start and its end and nothing else: read again, it holds the same records, in the
  same tasks, whatever the options are by then.
- A partition that appears while the stream runs is read from its beginning.
- A batch that is put off until more has come ends where it starts: Spark sees nothing new.
- PySpark 4.2 and newer ask with the start and a limit. 4.1 asks for the end alone: there the start
  is the end of the last batch planned, which Spark tells a restarted stream, or the initial
  offset, which is then settled by whoever asks first. 4.1 does not say when a trigger wants all
  there is, so under a limit AvailableNow takes one batch a run there.
"""

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from korvet.spark.catalog import Catalog, Live, Log, Range, lost
from korvet.spark.cutting import begun, cut_as, cut_for, recorded
from korvet.spark.errors import DataLost, OtherTopic
from korvet.spark.limits import Patience, ahead, limited
from korvet.spark.marks import marks
from korvet.spark.options import CUT, FROM, MARKS, ReadOptions
from korvet.spark.places import resolve
from korvet.spark.plan import in_turn, pieces
from korvet.spark.reader import pieces_of, read_piece, task_of

try:
    _LIMITS: Any = import_module("pyspark.sql.streaming.datasource")
except ImportError:  # PySpark 4.1 has no limits for Python sources
    _LIMITS = None
_AvailableNow: Any = object if _LIMITS is None else _LIMITS.SupportsTriggerAvailableNow

logger = logging.getLogger("korvet.spark")

Offset = dict[str, dict[str, Any]]
ID = "id"
_ANEW = "Start with a new checkpoint, or set failOnDataLoss to false."


class StreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """The driver's side plans batches; `read` runs in tasks."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._known: Offset | None = None
        self._initial: Offset | None = None
        self._planned: Offset | None = None
        self._target: Offset | None = None
        self._patience = Patience(options.min_per_trigger, options.trigger_delay_ms)

    def initialOffset(self) -> Offset:
        if self._initial is None:
            if self._known is None:
                # Spark tells a stream first what its checkpoint has: this one has none.
                self._known = self._initial = begun(self._first())
            else:
                # Spark has told where the batch ends that it will do again: its first.
                self._initial = self._known[FROM] if FROM in self._known else self._first()
        return self._initial

    def _first(self) -> Offset:
        with self._catalog() as catalog:
            return catalog.settled(
                self._options.selection,
                lambda logs: _offset(
                    logs,
                    resolve(catalog, self._options.start, logs, self._options),
                    recorded(self._options),
                ),
            )

    def getDefaultReadLimit(self) -> Any:
        most, least = self._options.max_per_trigger, self._options.min_per_trigger
        if most is not None:
            return _LIMITS.ReadMaxRows(most)
        return _LIMITS.ReadAllAvailable() if least is None else _LIMITS.ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Offset:
        return self._ends()

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        known = start if start is not None else self._known
        if known is None:
            known = self.initialOffset()
        everything = limit is not None and isinstance(limit, _LIMITS.ReadAllAvailable)
        with self._catalog() as catalog:
            found = catalog.settled(
                self._options.selection,
                lambda logs: self._next(catalog, logs, known, everything=everything),
            )
        if _places(found) == _places(known):
            return known
        self._planned = found
        return found

    def _next(
        self, catalog: Catalog, logs: Sequence[Log], known: Offset, *, everything: bool
    ) -> Offset:
        """Where the batch behind `known` ends, which is `known` where it is put off."""
        self._refuse_vanished(known, logs)
        bounds = catalog.bounds(logs, committed=self._options.committed_only)
        ends = [bound.next for bound in bounds]
        starts = self._starts(known, logs, bounds)
        if self._target is not None:
            # A partition that came since is the next run's; what was lost since is nobody's.
            aims = [place(self._target, part) for part in logs]
            ends = [
                min(aim, end) if aim is not None and knows(self._target, part) else start
                for part, start, end, aim in zip(logs, starts, ends, aims, strict=True)
            ]
        ends = [max(start, end) for start, end in zip(starts, ends, strict=True)]
        may_wait = not everything and self._target is None
        if may_wait and self._patience.puts_off(catalog, ahead(logs, starts, ends)):
            return known
        most = self._options.max_per_trigger
        if most is not None and not everything:
            ends = limited(catalog, logs, starts, ends, most)
        marked = self._marked(catalog, known, logs, starts, ends)
        # Of the first batch the checkpoint has the end alone, and Spark asks anew where it starts;
        # nor does it know where partitions began that came since.
        first = known == self._initial
        fresh = [
            (part, at)
            for part, at in zip(logs, starts, strict=True)
            if first or not knows(known, part)
        ]
        cut = cut_for(known, catalog, self._options, ahead(logs, starts, ends))
        found = _offset(logs, ends, cut, marked)
        return found | {FROM: offset_of(*zip(*fresh, strict=True))} if fresh else found

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        begin = dict(start)
        for topic, places in end.get(FROM, {}).items() if start != end else ():
            begin[topic] = {**begin.get(topic, {}), **places}
        with self._catalog() as catalog:
            found = catalog.settled(
                self._options.selection, lambda logs: self._pieces(catalog, logs, begin, end)
            )
        self._known = end
        return found

    def _pieces(
        self, catalog: Catalog, selected: Sequence[Log], start: Offset, end: Offset
    ) -> list[InputPartition]:
        """What the tasks of a batch read."""
        self._refuse_vanished(end, selected)
        # In one order, whatever that of the topics in the options is: writers number the tasks.
        logs = sorted(
            part
            for part in selected
            if place(end, part) is not None and not self._is_other(end, part)
        )
        bounds = catalog.bounds(logs)
        if end != self._planned:
            self._refuse_replaced(catalog, _marks_of(end, logs))
        starts = self._starts(start, logs, bounds)
        ends = [place(end, part) for part in logs]
        wanted = [
            Range(part, low, high)
            for part, low, high in zip(logs, starts, ends, strict=True)
            if high is not None and low < high
        ]
        planned = cut_as(end, self._options)
        return [*map(task_of, in_turn(planned, pieces(catalog, planned, wanted)))]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for piece in pieces_of(partition):
            yield from read_piece(self._options, self._names, piece.wanted)

    def commit(self, end: Offset) -> None:
        """Spark's checkpoint has the batch; the log keeps no reader's position."""

    def stop(self) -> None:
        """Nothing is held between calls."""

    def _catalog(self) -> Catalog:
        catalog = Catalog(self._options.connection)
        return catalog if self._known is None else catalog.patient()

    def _ends(self) -> Offset:
        with self._catalog() as catalog:

            def ends(logs: Sequence[Log]) -> Offset:
                bounds = catalog.bounds(logs, committed=self._options.committed_only)
                return _offset(logs, [bound.next for bound in bounds], recorded(self._options))

            return catalog.settled(self._options.selection, ends)

    def _starts(self, known: Offset, logs: Sequence[Log], bounds: Sequence[Live]) -> list[int]:
        """Where to go on in each partition; DataLost where that is no longer possible. Before what
        is coming nothing is missed, though a failover has lost records that were read."""
        return [self._start(known, part, bound) for part, bound in zip(logs, bounds, strict=True)]

    def _start(self, known: Offset, part: Log, bound: Live) -> int:
        at = place(known, part)
        if at is None:
            return bound.start
        if self._is_other(known, part):
            return bound.first
        if at > bound.coming:
            self._complain(
                DataLost(
                    f"The checkpoint is at offset {at} of {part}, and the log ends at "
                    f"{bound.end}: this is another Redis, or it has lost data. Give the one it "
                    "was made with, or set failOnDataLoss to false to go on where the log ends."
                )
            )
            return bound.next
        if at < bound.start:
            self._complain(lost(part, at, bound.next, bound.start))
            return bound.start
        return at

    def _marked(
        self,
        catalog: Catalog,
        known: Offset,
        logs: Sequence[Log],
        starts: Sequence[int],
        ends: Sequence[int],
    ) -> dict[Log, str]:
        """The marks of the offset that a batch from `known` on ends at; DataLost where the log has
        other records in place of those that `known` is of."""
        going = ahead(logs, starts, ends)
        held = _marks_of(known, logs)
        left = [(each.log, each.start) for each in going]
        asked = {place: held[place] for place in left if place in held}
        found = self._refuse_replaced(catalog, asked, [(each.log, each.end) for each in going])
        stays = {part: held.get((part, end), "") for part, end in zip(logs, ends, strict=True)}
        return stays | found

    def _refuse_replaced(
        self,
        catalog: Catalog,
        held: dict[tuple[Log, int], str],
        fresh: Sequence[tuple[Log, int]] = (),
    ) -> dict[Log, str]:
        """The marks of fresh places; DataLost where those held are not the log's any more."""
        places = [*held, *fresh]
        found = marks(catalog, [(part, at - 1) for part, at in places])
        for (part, at), mark, now in zip(held, held.values(), found[: len(held)], strict=True):
            if now not in (mark, ""):
                self._complain(replaced(part, at))
        return {part: now for (part, _), now in zip(fresh, found[len(held) :], strict=True)}

    def _is_other(self, known: Offset, part: Log) -> bool:
        """Whether the offset speaks of another topic of that name; OtherTopic where none may."""
        if knows(known, part):
            return False
        told = known[part.topic][ID]
        self._complain(
            OtherTopic(
                f"The checkpoint speaks of another topic {part.topic!r} (id {told}): it was "
                f"deleted and created again (id {part.topic_id}), or this is another Redis. "
                + _ANEW
            )
        )
        return True

    def _refuse_vanished(self, known: Offset, logs: Sequence[Log]) -> None:
        there = {(part.topic, str(part.partition)) for part in logs}
        gone = [
            f"{topic}-{number}"
            for topic, places in _places(known).items()
            for number in places
            if number != ID and (topic, number) not in there
        ]
        if gone:
            self._complain(
                DataLost(
                    f"The checkpoint names {', '.join(gone)}, which is not there (any more) or "
                    f"not selected by {self._options.selection}. {_ANEW}"
                )
            )

    def _complain(self, error: Exception) -> None:
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s", error)


class RefusedReader(DataSourceStreamReader):
    """Tells what is wrong with a query as soon as Spark asks for anything: an error that is raised
    where a reader is made ends, in Spark's process, in another one that tells nothing."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> Offset:
        raise self._error

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        raise self._error

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        raise self._error


def offset_of(logs: Sequence[Log], places: Sequence[int]) -> Offset:
    """The offset that says to go on at these places."""
    found: Offset = {}
    for part, at in zip(logs, places, strict=True):
        found.setdefault(part.topic, {ID: part.topic_id})[str(part.partition)] = at
    return found


def _offset(
    logs: Sequence[Log],
    places: Sequence[int],
    cut: dict[str, Any],
    marked: dict[Log, str] | None = None,
) -> Offset:
    """The same, with how the batch is cut that ends there, and the marks."""
    cut = dict(cut)
    for part, mark in (marked or {}).items():
        if mark:
            cut.setdefault(MARKS, {}).setdefault(part.topic, {})[str(part.partition)] = mark
    return offset_of(logs, places) | ({CUT: cut} if cut else {})


def _places(offset: Offset) -> Offset:
    """An offset's topics alone."""
    return {name: places for name, places in offset.items() if name not in (CUT, FROM)}


def knows(offset: Offset, part: Log) -> bool:
    """Whether the offset speaks of this partition, and not of one of another topic of that name."""
    places = offset.get(part.topic, {})
    return str(part.partition) in places and places.get(ID, part.topic_id) == part.topic_id


def _marks_of(offset: Offset, logs: Sequence[Log]) -> dict[tuple[Log, int], str]:
    """The marks that the offset has, by partition and the place it names there."""
    marked = offset.get(CUT, {}).get(MARKS, {})
    return {
        (part, at): mark
        for part in logs
        if knows(offset, part)
        and (mark := marked.get(part.topic, {}).get(str(part.partition)))
        and (at := place(offset, part)) is not None
    }


def replaced(part: Log, at: int) -> DataLost:
    """What to raise where the log has another record before `at` than it had."""
    return DataLost(
        f"Topic {part.topic!r} partition {part.partition}: the checkpoint has offsets up to "
        f"{at - 1}, and some of these, {at - 1} among them, are other records now: Redis lost the "
        "end of the log, as in a failover, and what came then took its offsets. Set failOnDataLoss "
        f"to false to go on from {at}, or start with a new checkpoint to read all that there is."
    )


def place(offset: Offset, part: Log) -> int | None:
    """Where the offset stands in a partition, None where it does not name it."""
    at = offset.get(part.topic, {}).get(str(part.partition))
    return None if at is None else int(at)
