"""The pages of metrics: /metrics, and /metrics/kafka with the names of kafka_exporter.

Rows are written here, since prometheus_client takes 38 microseconds a row: 10,000 rows of group lag
would take the interpreter lock from the event loop for 0.4 s at each scrape.

Rules of /metrics/kafka
- Every broker serves the same rows: Prometheus scrapes one, or sums count each twice.
- Rows that boards take for counts of records are counts of records. In offset mode `dense` an
  offset is one. In the other modes an offset is replaced by the number of records appended before
  it, so that rates, lag and differences are in records.
- A page is read from Redis at most once per FRESH_S, and is the same for all scrapes until then.
  Reading takes only a part of Redis's time. If the next page takes more than WAIT_S, a scrape gets
  the last one. The lag is as old as the other rows: its survey is new, and serves /metrics too.
- The bounds are the settings `monitoring.max.partitions` and `monitoring.max.groups`; gauges say
  what is left out.
"""

import asyncio
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from time import monotonic

import msgspec

from korvet import __version__
from korvet.base.bounded import chunks
from korvet.base.metrics import Family, Labels, Sample
from korvet.cluster.registration import BrokerRegistration, leader_of
from korvet.groups.description import TopicPartition
from korvet.groups.lag_survey import (
    CALLS_PER_PIPELINE,
    Ends,
    LagRow,
    LagSurvey,
    Survey,
    await_throttled,
)
from korvet.groups.share_group import list_partitions
from korvet.store.errors import StoreError
from korvet.topics.table import Topic

FRESH_S = 10.0
"""Age until which a page is served again."""
WAIT_S = 4.0
"""Max seconds that a scrape waits for the next page."""
ROWS_PER_TURN = 500
"""Rows written before other tasks run."""


class NoPage(Exception):
    """Signal that there is no page: its text is the reason."""


class Span(msgspec.Struct, frozen=True):
    """The records of a partition: offsets in mode `dense`, else numbers of records."""

    oldest: int
    current: int
    is_offsets: bool


Row = tuple[str, float]
"""The labels of a row as text, and its value."""


@dataclass(eq=False, repr=False)
class KafkaPage:
    """The page, and the reading of the next one."""

    survey: LagSurvey
    registration: BrokerRegistration

    def __post_init__(self) -> None:
        self._text = b""
        self._read_at = -FRESH_S
        self._reading: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """Return the page. Raises NoPage."""
        if monotonic() - self._read_at >= FRESH_S:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            reading = self._reading
            await asyncio.wait([reading], timeout=WAIT_S)
            if reading.done():
                self._reading = None
                try:
                    await reading
                except StoreError as error:
                    raise NoPage(f"Redis cannot be read: {error}") from None
        if not self._text:
            raise NoPage(f"The first page takes more than {WAIT_S:g} s: scrape again.")
        return self._text

    async def _read(self) -> None:
        """Read the next page."""
        topics = await self.survey.node.topics.all()
        max_rows = self.survey.node.settings().integer("monitoring.max.partitions")
        shown = list(_first(topics, max_rows))
        found = await self.survey.newest(0) or Survey()
        spans = await self._spans(list_partitions(shown), found.ends)
        parts: list[str] = []
        hidden = len(topics) - len(shown)
        families = chain(
            self._brokers(),
            self._partitions(shown, spans),
            self._groups(found, spans, max_rows),
            [("korvet_kafka_topics_not_shown", "Topics left out of this page.", [("", hidden)])],
        )
        for name, sentence, rows in families:
            await _write(parts, name, sentence, rows)
        self._text = "".join(parts).encode("utf-8", "replace")
        self._read_at = monotonic()

    async def _spans(
        self, places: list[tuple[Topic, int]], ends: Ends
    ) -> dict[TopicPartition, Span]:
        """Return the records of each partition; `ends` has those of partitions with groups."""
        await self.survey.read_ends(ends, places)
        spans: dict[TopicPartition, Span] = {}
        numbered: list[tuple[Topic, int]] = []
        for topic, number in places:
            end = ends[topic.name, number]
            if end.error:
                continue
            if topic.policy.offset_mode == "dense":
                spans[topic.name, number] = Span(end.first, end.next, True)
            else:
                numbered.append((topic, number))
        submit = self.survey.node.store.submit_command
        for some in chunks(numbered, CALLS_PER_PIPELINE):
            logs = [topic.partition(number).log for topic, number in some]
            totals = await await_throttled(
                asyncio.gather(*(submit("HMGET", log, "records", "start_records") for log in logs))
            )
            for (topic, number), (appended, trimmed) in zip(some, totals, strict=True):
                records = ends[topic.name, number].records
                current = max(int(appended or 0), int(trimmed or 0) + records)
                spans[topic.name, number] = Span(current - records, current, False)
        return spans

    # Families: name, sentence, rows.

    def _brokers(self) -> Iterator[tuple[str, str, Iterable[Row]]]:
        brokers = self.registration.brokers
        yield "kafka_brokers", "Number of live brokers.", [("", len(brokers))]
        info = [
            (_labels(id=str(each.id), address=f"{each.endpoints[0].host}:{each.endpoints[0].port}"),
             1)
            for each in brokers if each.endpoints
        ]  # fmt: skip
        yield "kafka_broker_info", "Id and address of a live broker.", info

    def _partitions(
        self, topics: list[Topic], spans: dict[TopicPartition, Span]
    ) -> Iterator[tuple[str, str, Iterable[Row]]]:
        listed = [(_labels(topic=each.name), each.partitions) for each in topics]
        yield "kafka_topic_partitions", "Number of partitions of a topic.", listed
        labels = {
            partition: _labels(topic=partition[0], partition=str(partition[1]))
            for partition in spans
        }
        nodes = self.registration.nodes(self.registration.me.endpoints[0].listener)
        prefix = "kafka_topic_partition_"
        yield (
            prefix + "current_offset",
            "End of a partition: in offset mode dense its offset, else its records.",
            ((labels[partition], span.current) for partition, span in spans.items()),
        )
        yield (
            prefix + "oldest_offset",
            "Start of a partition, in the unit of its current offset.",
            ((labels[partition], span.oldest) for partition, span in spans.items()),
        )
        yield (
            prefix + "leader",
            "Id of the broker that Metadata names as leader.",
            ((labels[partition], leader_of(partition[1], nodes)) for partition in spans),
        )
        for name, value, sentence in (
            ("leader_is_preferred", 1, "1: any broker can lead a partition."),
            ("replicas", 1, "1: Redis replicates, not the brokers."),
            ("in_sync_replica", 1, "1: Redis replicates, not the brokers."),
            ("under_replicated_partition", 0, "0: Redis replicates, not the brokers."),
        ):
            yield prefix + name, sentence, [(text, value) for text in labels.values()]

    def _groups(
        self, survey: Survey, spans: dict[TopicPartition, Span], max_rows: int
    ) -> Iterator[tuple[str, str, Iterable[Row]]]:
        members = [(_labels(consumergroup=each.group), each.members) for each in survey.groups]
        yield "kafka_consumergroup_members", "Members of a group.", members
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for each in survey.groups:
            for row in each.rows:
                offset, lag = _in_unit(row, spans.get((row.topic, row.partition)))
                total = sums.get((each.group, row.topic), (0, 0))
                sums[each.group, row.topic] = total[0] + offset, total[1] + lag
        rows, hidden = survey.rows(max_rows)
        shown = [
            (_labels(consumergroup=group, topic=row.topic, partition=str(row.partition)),
             *_in_unit(row, spans.get((row.topic, row.partition))))
            for group, row in rows
        ]  # fmt: skip
        summed = [(_labels(consumergroup=g, topic=t), *total) for (g, t), total in sums.items()]
        position = "Committed offset, in the unit of the partition's current offset"
        for suffix, by_topic, found in (("", "", shown), ("_sum", ", by topic", summed)):
            prefix = "kafka_consumergroup_"
            offsets = ((labels, offset) for labels, offset, _ in found)
            yield f"{prefix}current_offset{suffix}", f"{position}{by_topic}.", offsets
            sentence = "Lag of a group in a topic." if suffix else "Lag of a group in a partition."
            yield f"{prefix}lag{suffix}", sentence, ((labels, lag) for labels, _, lag in found)
        left_out = (("groups", survey.hidden_groups), ("group_partitions", hidden))
        for what, number in left_out:
            yield f"korvet_kafka_{what}_not_shown", "Left out of this page.", [("", number)]


def _first(topics: Iterable[Topic], max_partitions: int) -> Iterator[Topic]:
    """Yield the first topics that have together at most so many partitions."""
    for topic in topics:
        max_partitions -= topic.partitions
        if max_partitions < 0:
            return
        yield topic


def _in_unit(row: LagRow, span: Span | None) -> tuple[int, int]:
    """Return the committed offset and the lag of a row, in the unit of the partition."""
    is_offset = span is None or span.is_offsets
    if is_offset and row.committed >= 0:
        return row.committed, max(0, row.end - row.committed)
    lag = max(0, row.lag)
    return (row.end if span is None else span.current) - lag, lag


def _labels(**values: str) -> str:
    """Return the labels of a row as Prometheus writes them."""
    return _braced([*_pairs(values.keys(), values.values())])


async def _write(parts: list[str], name: str, sentence: str, rows: Iterable[Row]) -> None:
    """Write the rows of a gauge, letting other tasks run between them."""
    parts.append(f"# HELP {name} {sentence}\n# TYPE {name} gauge\n")
    for count, (labels, value) in enumerate(rows, 1):
        parts.append(f"{name}{labels} {value}\n")
        if count % ROWS_PER_TURN == 0:
            await asyncio.sleep(0)


Snapshots = Sequence[tuple[str | None, list[Family]]]
"""Metrics of processes, by the worker's number; None without workers."""
_IN_LABEL = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_IN_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def metrics_text(snapshots: Snapshots) -> bytes:
    """Return /metrics in Prometheus's text format 0.0.4.

    Rows have the label `worker` if the process has a name.
    """
    build = Sample((__version__, platform.python_version()), 1)
    labels = ("version", "python")
    info = Family("korvet_build_info", "gauge", "The running versions.", labels, [build])
    merged: dict[str, list[tuple[str | None, Family]]] = {info.name: [(None, info)]}
    for worker, families in snapshots:
        for family in families:
            merged.setdefault(family.name, []).append((worker, family))
    lines = (line for found in merged.values() for line in _lines(found))
    return "".join(lines).encode("utf-8", "replace")


def _lines(families: Sequence[tuple[str | None, Family]]) -> Iterator[str]:
    """Yield the lines of a family, of all processes that have it."""
    _, first = families[0]
    name = f"{first.name}_total" if first.kind == "counter" else first.name
    yield f"# HELP {name} {first.sentence.translate(_IN_HELP)}\n# TYPE {name} {first.kind}\n"
    for worker, family in families:
        process = () if worker is None else (f'worker="{worker.translate(_IN_LABEL)}"',)
        for sample in family.samples:
            labels = (*process, *_pairs(family.labels, sample.labels))
            if family.kind == "histogram":
                yield from _histogram(name, labels, family, sample)
            else:
                yield f"{name}{_braced(labels)} {sample.value}\n"


def _histogram(name: str, labels: Labels, family: Family, sample: Sample) -> Iterator[str]:
    """Yield the buckets, each with the count up to its bound, the count and the sum."""
    bounds = (*map(str, family.bounds), "+Inf")
    total = 0
    for bound, total in zip(bounds, accumulate(sample.buckets), strict=True):
        bucket = (*labels, f'le="{bound}"')
        yield f"{name}_bucket{_braced(bucket)} {total}\n"
    braced = _braced(labels)
    yield f"{name}_count{braced} {total}\n{name}_sum{braced} {sample.value}\n"


def _pairs(names: Iterable[str], values: Iterable[str]) -> Iterator[str]:
    rows = zip(names, values, strict=True)
    return (f'{name}="{value.translate(_IN_LABEL)}"' for name, value in rows)


def _braced(labels: Sequence[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""
