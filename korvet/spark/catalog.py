"""What the driver asks Redis: which topics there are, where they begin and end, what lies between.

Rules
- Every question for all partitions is one round trip.
- Offsets are resolved once, on the driver; tasks get plain numbers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

import msgspec

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.errors import ErrorCode
from korvet.keys import Keys
from korvet.scripts import log
from korvet.spark.errors import DataLost, UnknownTopic, Vanished
from korvet.spark.options import Connection, Selection
from korvet.store.sync_store import SyncStore
from korvet.topics.table import VERSION_FIELD, Topic, read_topic

FIRST_PATIENCE_S = 3.0
"""Who begins a query is told soon that there is no Redis; a connection that broke is none."""
PATIENCE_S = 60.0
"""So long may Redis be away before a task or a running stream fails, as with Kafka's clients."""
ATTEMPTS = 10
"""So many lists of topics may be out of date by the next question."""

T = TypeVar("T")


class Log(msgspec.Struct, frozen=True, order=True):
    """One partition, with what a task has to know to read it."""

    topic: str
    partition: int
    topic_id: str
    is_batch: bool
    mode: str
    bits: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Live(msgspec.Struct, frozen=True):
    """What there is to read of a partition: from `first` on, before `next`; `start` is the log
    start offset, `end` lies behind all records, also undecided ones; `newest` is a time in ms.
    What is appended from now on has offset `coming` or a later one: in time mode the clock's."""

    start: int
    first: int
    next: int
    end: int
    newest: int
    coming: int


class Range(msgspec.Struct, frozen=True):
    """Offsets of one partition: from `start` on, before `end`."""

    log: Log
    start: int
    end: int


class Catalog:
    """Redis as the driver sees it. Close it, or use it in a `with`."""

    def __init__(self, connection: Connection, store: SyncStore | None = None) -> None:
        self.store = store or SyncStore.connect(connection.redis)
        self.store.patience_s = FIRST_PATIENCE_S
        self.keys = Keys(connection.namespace)
        self._configs = TopicConfigs(Settings())

    def patient(self) -> Self:
        """From now on Redis may be away for PATIENCE_S: it has been there, or tasks wait for it."""
        self.store.patience_s = PATIENCE_S
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def topics(self) -> dict[str, Topic]:
        """Every topic by name."""
        flat = self.store.command("HGETALL", self.keys.topics())
        found: dict[str, Topic] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            name = field.decode()
            topic = None if name == VERSION_FIELD else read_topic(name, raw, self._configs)
            if topic is not None:
                found[name] = topic
        return dict(sorted(found.items()))

    def topic(self, name: str) -> Topic:
        """The topic of that name, or UnknownTopic."""
        raw = self.store.command("HGET", self.keys.topics(), name)
        topic = None if raw is None else read_topic(name, raw, self._configs)
        if topic is None:
            raise UnknownTopic(f"There is no topic {name!r}{self._among()}")
        return topic

    def logs(self, selection: Selection) -> list[Log]:
        """The partitions selected; UnknownTopic for one that is named and does not exist."""
        known = self.topics()
        if selection.pattern is not None:
            matches = re.compile(selection.pattern).search  # as Kafka's: anywhere in the name
            return [part for name in known if matches(name) for part in partitions(known[name])]
        found: list[Log] = []
        assigned = selection.assigned
        for name in assigned if assigned is not None else selection.topics:
            if name not in known:
                raise UnknownTopic(f"There is no topic {name!r}{self._among()}")
            parts = partitions(known[name])
            if assigned is None:
                found += parts
                continue
            for number in assigned[name]:
                if not 0 <= number < len(parts):
                    raise UnknownTopic(
                        f"Topic {name!r} has {len(parts)} partitions, and no partition {number}."
                    )
                found.append(parts[number])
        return found

    def settled(self, selection: Selection, ask: Callable[[list[Log]], T]) -> T:
        """What `ask` finds out of the partitions selected, asked anew where a topic went, or was
        made anew, meanwhile: the next list of topics knows."""
        for _ in range(ATTEMPTS - 1):
            logs = self.logs(selection)
            try:
                return ask(logs)
            except Vanished:
                continue
        return ask(self.logs(selection))

    def bounds(self, logs: Sequence[Log], *, committed: bool = False) -> list[Live]:
        """Where each partition begins and ends to read; `committed`: before what is undecided."""
        replies = self.store.run_many(
            log.list_offsets(self.keys, part.topic, part.partition, topic_id=part.topic_id)
            for part in logs
        )
        for part, reply in zip(logs, replies, strict=True):
            refuse(part, reply.error)
        # In time mode a transaction begins before its first record: where the log ended until then.
        nexts = [reply.stable if committed else reply.next for reply in replies]
        return [
            Live(
                reply.start,
                min(reply.first, end),
                end,
                max(reply.next, end),
                reply.newest,
                max(reply.coming, end),
            )
            for reply, end in zip(replies, nexts, strict=True)
        ]

    def advance(self, ranges: Sequence[Range], records: Sequence[int]) -> list[tuple[int, int]]:
        """For each range the offset behind so many records of it, and how many those are."""
        found, left = [(each.start, 0) for each in ranges], list(range(len(ranges)))
        while left:
            replies = self.store.run_many(
                log.skip_records(
                    self.keys,
                    ranges[n].log.topic,
                    ranges[n].log.partition,
                    topic_id=ranges[n].log.topic_id,
                    offset=found[n][0],
                    records=records[n] - found[n][1],
                    end=ranges[n].end,
                )
                for n in left
            )
            going = []
            for n, reply in zip(left, replies, strict=True):
                refuse(ranges[n].log, reply.error)
                before, counted = found[n][0], found[n][1] + reply.records
                found[n] = reply.offset, counted
                # Of many entries between two steps of the index one call counts a part.
                if before < reply.offset < ranges[n].end and counted < records[n]:
                    going.append(n)
            left = going
        return found

    def count(self, ranges: Sequence[Range]) -> list[int]:
        """How many records lie in each range."""
        return [records for _, records in self.advance(ranges, [2**52] * len(ranges))]

    def _among(self) -> str:
        names = list(self.topics())
        if not names:
            return ": this Redis holds none in this namespace."
        return f"; there are {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}."


def partitions(topic: Topic) -> list[Log]:
    """The partitions of a topic."""
    policy = topic.policy
    return [
        Log(topic.name, number, topic.id, topic.is_batch, policy.offset_mode, policy.offset_bits)
        for number in range(topic.partitions)
    ]


def refuse(part: Log, error: int) -> None:
    """Nothing for error 0, else Vanished, which says what happened to the partition."""
    if error == ErrorCode.NONE:
        return
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        raise Vanished(f"Topic {part.topic!r} was deleted and created again meanwhile.")
    raise Vanished(f"{part} does not exist (any more): {ErrorCode(error).name}.")


def lost(part: Log, start: int, end: int, first: int) -> DataLost:
    """What to raise when [start, end) was asked for and the log begins at `first`."""
    return DataLost(
        f"Topic {part.topic!r} partition {part.partition}: offsets {start} to {end - 1} were asked "
        f"for, but the log begins at {first}: retention or a trim removed what lies before. "
        "Set failOnDataLoss to false to go on from there."
    )


def union(first: Iterable[Log], second: Iterable[Log]) -> list[Log]:
    """All partitions of both, each once, in order."""
    return sorted({*first, *second})
