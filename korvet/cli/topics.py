"""`korvet topics`: list, create, describe, change, trim, repair and delete."""

from asyncio import gather
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, NamedTuple
from uuid import uuid4

import typer

from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.broker.ops.finding import times_as_offsets
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.broker_log import SHAPE, BrokerLog, BrokerTopic, CreatedTopic, Log, on_any_log
from korvet.cli.config_changes import UNCHANGED, Deleted, Resource
from korvet.cli.kafka_requests import Requests, Via, on_log
from korvet.config.setting import Source, StartError
from korvet.groups.consumed import list_held
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.values import KorvetError, TopicInfo
from korvet.log.tables import sizes
from korvet.remote_log.manifest import count_remote_only, totals
from korvet.scripts.keys import Partition
from korvet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.structs import TopicPartitions

app = o.group()

_SUMMARY_COLUMNS = (
    "topic", "id", "partitions", "replicas", "format", "offsets", "records", "bytes", "configs",
)  # fmt: skip
_CONFIG_COLUMNS = ("topic", "config", "value", "source")
SPENT = "appends fail"
"""What `_repair` returns for a partition whose ids are exhausted."""


@o.command(app, "list")
def list_(via: Via, out: o.Output) -> None:
    """List topics with layout, records and bytes. Brokers return no number of records."""

    async def rows(log: AsyncKorvet) -> list[table_output.Row]:
        found: list[table_output.Row] = []
        for topic in await log.topics():
            parts = await log.offsets(topic.name)
            total = sum(part.records for part in parts), sum(part.bytes for part in parts)
            shape = topic.name, topic.partitions, topic.storage_format, topic.offset_mode
            found.append((*shape, *total))
        return found

    columns = ("topic", "partitions", "format", "offsets", "records", "bytes")
    found = via.run(_list) if via.has_brokers else on_log(rows, via.target)
    out.listing(columns, found)


@o.command(app, "create")
def create(
    names: o.TopicNames,
    via: Via,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", help="Number of partitions. Default: the setting num.partitions."
        ),
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="For brokers of Kafka: Redis has 1.")
    ] = -1,
    config: o.TopicConfigs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave topics that exist as they are.")
    ] = False,
) -> None:
    """Create topics.

    Configs that are not given follow the settings changed for all brokers, then --set, then the
    defaults.
    """
    configs = dict(o.assignments("--config", config))

    async def run(log: Log) -> None:
        create: Callable[..., Awaitable[TopicInfo | CreatedTopic]] = log.create_topic
        if isinstance(log, BrokerLog):
            create = partial(create, replication_factor=replication_factor)
        is_first = not await log.topics()
        for name in names:
            try:
                created = await create(name, partitions, configs)
            except KorvetError as error:
                if not (if_not_exists and error.error is ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                table_output.line(f"{name} exists")
                continue
            count = created.partitions
            table_output.line(f"created {name} with {count} partition{'s' * (count != 1)}")
            if is_first and created.offset_mode == "time" and "offset.mode" not in configs:
                table_output.note(times_as_offsets(name))
                is_first = False

    on_any_log(run, via)


@o.command(app, "describe")
def describe(
    names: o.TopicNames,
    via: Via,
    out: o.Output,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="Print each partition in place of a summary.")
    ] = False,
    configs: Annotated[
        bool, typer.Option("--configs", "-c", help="Print all configs, also those with defaults.")
    ] = False,
) -> None:
    """Print a summary of each topic: partitions, layout, records, bytes and changed configs.

    With --partitions, of topics with retention.consumed also the group that holds a partition's
    records, and how many. With table.enable, also the keys of its table, and the table's bytes of
    Redis's memory. With remote.storage.enable, or with segments, also the first offset in Redis,
    what segments hold, what they alone hold (remote_only), and the total. Other records and bytes
    are those in Redis. Brokers return offsets and bytes only: records are then the number of dense
    offsets.
    """
    if partitions and configs:
        raise typer.BadParameter("--partitions and --configs are two tables: give one of them")
    if partitions:
        rows = (
            via.run(lambda requests: _brokers_partitions(requests, names))
            if via.has_brokers
            else on_log(lambda log: _partitions(log, names), via.target)
        )
        wide: dict[str, None] = dict.fromkeys(key for row in rows for key in row)
        out.listing(tuple(wide), [tuple(map(row.get, wide)) for row in rows])
        return
    found = (
        via.run(lambda requests: _brokers_summaries(requests, names))
        if via.has_brokers
        else on_log(lambda log: _summaries(log, names), via.target)
    )
    if configs:
        out.listing(_CONFIG_COLUMNS, [row for each in found for row in each.all_configs])
    else:
        out.listing(_SUMMARY_COLUMNS, [each.row() for each in found])


class _Changed(dict[str, str | None]):
    """Configs that have no default value; in a table they are one text."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items()) or "-"


class _Summary(NamedTuple):
    """A topic's description; `configs` are rows of name, value and source."""

    shape: tuple[object, ...]
    """Name, id, partitions and replicas."""
    records: int | None
    bytes: int | None
    configs: Sequence[tuple[str, str | None, int]]

    @property
    def all_configs(self) -> list[table_output.Row]:
        """The rows of --configs."""
        known = {source.value: source.name.lower() for source in Source}
        return [
            (self.shape[0], name, value, known.get(source, ""))
            for name, value, source in self.configs
        ]

    def row(self) -> table_output.Row:
        """Return the row of the summary."""
        values = {name: value for name, value, _ in self.configs}
        changed = _Changed(
            {
                name: value
                for name, value, source in self.configs
                if source not in UNCHANGED and name not in SHAPE
            }
        )
        return (*self.shape, *map(values.get, SHAPE), self.records, self.bytes, changed)


async def _summaries(log: AsyncKorvet, names: Sequence[str]) -> list[_Summary]:
    """Return a summary of each topic."""
    found = []
    for topic in [await log.find_topic(name) for name in names]:
        configs = log.topic_configs.resolve(topic.name, topic.configs).values()
        parts = await log.offsets(topic.name)
        summary = _Summary(
            (topic.name, topic.id, topic.partitions, 1),
            sum(part.records for part in parts),
            sum(part.bytes for part in parts),
            [(each.name, each.value, each.source) for each in configs if each.setting.effect],
        )
        found.append(summary)
    return found


async def _partitions(log: AsyncKorvet, names: Sequence[str]) -> list[dict[str, object]]:
    """Return the columns of each partition of the topics."""
    rows: list[dict[str, object]] = []
    for topic in [await log.find_topic(name) for name in names]:
        offsets = await log.offsets(topic.name)
        handles = [topic.partition(part.partition) for part in offsets]
        of_topic: list[dict[str, object]] = [
            {
                "topic": topic.name,
                "partition": part.partition,
                "first": part.earliest,
                "next": part.latest,
                "records": part.records,
                "bytes": part.bytes,
                "newest": table_output.moment(part.newest_timestamp_ms),
                "stream": handle.stream,
            }
            for part, handle in zip(offsets, handles, strict=True)
        ]
        rows += of_topic
        if topic.policy.consumed_by:
            groups = {row[0]: row[1:] for row in await list_held(log.store, log.keys, topic)}
            for number, row in enumerate(of_topic):
                row["held_by"], row["held_records"] = groups.get(number, (None, 0))
        if topic.policy.table_enable:
            tables = await gather(*(sizes(log.store, handle) for handle in handles))
            for row, (keys, size) in zip(of_topic, tables, strict=True):
                row |= {"table_keys": keys, "table_bytes": size}
        segments = await gather(*(totals(log.store, handle) for handle in handles))
        if topic.policy.remote_storage or any(each.segments for each in segments):
            below = await gather(
                *(
                    count_remote_only(
                        log.store,
                        topic,
                        part.partition,
                        start=part.earliest,
                        local_start=each.local_start,
                        local_bytes=part.bytes,
                    )
                    for part, each in zip(offsets, segments, strict=True)
                )
            )
            for row, one, other in zip(of_topic, segments, below, strict=True):
                row |= one._asdict() | other._asdict()
    return rows


@o.command(app, "delete")
def delete(names: o.TopicNames, via: Via) -> None:
    """Delete topics.

    Their records, Redis groups and committed offsets are deleted too.
    """

    async def run(log: Log) -> None:
        for name in names:  # all are looked up first: a wrong name deletes nothing
            await log.topic(name)
        for name in names:
            await log.delete_topic(name)
            table_output.line(f"deleted {name}")

    on_any_log(run, via)


@o.command(app, "alter")
def alter(
    name: o.TopicName, via: Via, config: o.TopicConfigs = None, delete: Deleted = None
) -> None:
    """Change a topic's configs.

    All changes are applied, or none. Brokers use them at once.
    """
    Resource(ConfigResourceType.TOPIC, name).alter(via, config, delete)


@o.command(app, "add-partitions")
def add_partitions(
    name: o.TopicName,
    count: Annotated[
        int, typer.Argument(metavar="N", help="Number of partitions that the topic then has.")
    ],
    via: Via,
) -> None:
    """Raise a topic's number of partitions.

    Records stay where they are: a key may go to another partition from then on.
    """
    on_any_log(lambda log: log.add_partitions(name, count), via)
    table_output.line(f"{name} has {count} partitions")


@o.command(app, "trim")
def trim(
    name: o.TopicName,
    before: Annotated[str, typer.Option("--before", metavar="POSITION", help=o.POSITIONS)],
    via: Via,
    partition: o.Partitions = None,
    header: o.Header = True,
) -> None:
    """Delete a topic's records below a position.

    In topics of layout `batch` readers start at the position, and the batch that reaches past it
    stays in Redis.
    """
    wanted = o.position("--before", before)

    async def run(log: Log) -> list[table_output.Row]:
        count = (await log.topic(name)).partitions
        first = [part.earliest for part in await log.offsets(name)]
        rows: list[table_output.Row] = []
        for number in o.chosen_partitions(name, count, partition):
            offset = await log.find_offset(name, number, wanted)
            rows.append((number, first[number], await log.delete_records(name, number, offset)))
        return rows

    rows = on_any_log(run, via)
    table_output.table(("partition", "started_at", "starts_at"), rows, header=header)


@o.command(app, "repair")
def repair(
    name: o.TopicName,
    target: o.Target,
    out: o.Output,
    partition: o.Partitions = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete them. Without it they are only counted.")
    ] = False,
) -> None:
    """Delete the entries of other programs whose ids can have no offset.

    No client reads them, and they use memory until retention reaches them. Records are appended
    above them. Ids of other programs that are lower than the next record's stay refused by Redis:
    it moves no stream back.

    An entry at the greatest ids leaves none for appends. Then the partition's stream is replaced
    with a copy that ends at its last record. Redis needs memory for the copy until then.
    """

    async def run(log: AsyncKorvet) -> list[table_output.Row]:
        topic = await log.find_topic(name)
        rows: list[table_output.Row] = []
        for number in o.chosen_partitions(name, topic.partitions, partition):
            rows.append((number, *await _repair(log, topic.partition(number), yes=yes)))
        return rows

    rows = on_log(run, target)
    columns = ("partition", "without_offset", "bytes", "done")
    out.listing(columns, rows)
    if not yes and any(row[1] or row[3] != "-" for row in rows):
        table_output.note("nothing is deleted: give --yes to delete these entries")


async def repair_spent(log: AsyncKorvet) -> list[str]:
    """Repair each partition that refuses appends; return a sentence for each."""
    done = []
    for each in await log.topics():
        topic = await log.find_topic(each.name)
        for number in range(topic.partitions):
            part = topic.partition(number)
            if (await _repair(log, part, yes=False))[2] == SPENT:
                entries, _, _ = await _repair(log, part, yes=True)
                done.append(
                    f"{topic.name}-{number} accepts appends again: its stream was copied without "
                    f"{entries} entries that had no offset"
                )
    return done


async def _repair(log: AsyncKorvet, partition: Partition, *, yes: bool) -> tuple[int, int, str]:
    """Count the partition's entries without an offset, and their bytes; return what was done.

    With `yes` they are deleted.
    """
    entries, size, after, more, done = 0, 0, b"", 1, "-"
    while more:
        more = (await log.store.run(partition.number_entries())).more
    while True:
        reply = await log.store.run(partition.drop_unnumbered(after=after, delete=int(yes)))
        entries, size, after = entries + reply.entries, size + reply.size, reply.last
        if not after:
            break
    if yes and entries:
        done = "deleted"
    if reply.spent and yes:
        await _rebuild(log, partition)
        done = "copied"
    elif reply.spent:
        done = SPENT
    return entries, size, done


async def _rebuild(log: AsyncKorvet, partition: Partition) -> None:
    """Replace the partition's stream with a copy: its ids are exhausted."""
    token, length, more = uuid4().hex, 0, 1
    while more:
        reply = await log.store.run(partition.rebuild(token=token, length=length, at_most=500))
        if reply.error:
            raise StartError(f"{partition.stream} was changed meanwhile: repeat the command")
        length, more = reply.length, reply.more
        if reply.oversized_id:
            at, options = reply.oversized_id, ("NOMKSTREAM",) if length else ()
            for _, fields in await log.store.submit_command("XRANGE", partition.stream, at, at):
                await log.store.submit_command("XADD", partition.compacted, *options, at, *fields)
            length += 1


# At brokers.


async def _list(requests: Requests) -> list[table_output.Row]:
    """Return a row of each topic: its partitions, format, offset mode, records and bytes.

    Brokers return no number of records, and an Apache Kafka neither format nor offset mode.
    """
    answer = await requests.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    counts = {row.name: len(row.partitions) for row in answer.topics if not row.is_internal}
    sizes = await _bytes(requests, None)
    names = sorted(counts)
    shapes = await BrokerLog(requests).shapes(names)
    return [(name, counts[name], *shapes[name], None, sizes[name]) for name in names]


async def _brokers_summaries(requests: Requests, names: Sequence[str]) -> list[_Summary]:
    """Return a summary of each topic. Dense offsets have the number of records."""
    log, found = BrokerLog(requests), []
    topics = [await log.topic(name) for name in names]
    configs = await log.configs(names)
    sizes = await _bytes(requests, topics)
    for topic in topics:
        rows = configs[topic.name]
        modes = [value for name, value, _ in rows if name == "offset.mode"]
        records = None
        if modes in ([], ["dense"]):  # Apache Kafka has no modes
            records = sum(each.records for each in await log.offsets(topic.name))
        shape = (topic.name, topic.id.hex, topic.partitions, topic.replicas)
        found.append(_Summary(shape, records, sizes.get(topic.name), rows))
    return found


async def _brokers_partitions(requests: Requests, names: Sequence[str]) -> list[dict[str, object]]:
    """Return offsets, bytes and leader of each partition of the topics."""
    log = BrokerLog(requests)
    topics = [await log.topic(name) for name in names]
    sizes = await _sizes(requests, topics)
    return [
        {
            "topic": topic.name,
            "partition": ends.partition,
            "first": ends.earliest,
            "next": ends.latest,
            "bytes": sizes.get((topic.name, ends.partition)),
            "leader": topic.leaders[ends.partition],
        }
        for topic in topics
        for ends in await log.offsets(topic.name)
    ]


async def _bytes(requests: Requests, topics: Sequence[BrokerTopic] | None) -> Counter[str]:
    """Return the bytes of each topic, of all without."""
    found: Counter[str] = Counter()
    for (name, _), size in (await _sizes(requests, topics)).items():
        found[name] += size
    return found


async def _sizes(
    requests: Requests, topics: Sequence[BrokerTopic] | None
) -> dict[tuple[str, int], int]:
    """Return the bytes of each partition of the topics, of all without.

    The brokers of one Redis have the same bytes; those of Kafka have replicas.
    """
    sizes: dict[tuple[str, int], int] = {}
    asked = None
    if topics is not None:
        asked = [
            TopicPartitions(topic=each.name, partitions=sorted(each.leaders)) for each in topics
        ]
    for broker in requests.brokers:
        answer = await requests.call(DescribeLogDirsRequest(topics=asked), broker)
        for topic in (topic for row in answer.results for topic in row.topics):
            for part in topic.partitions:
                key = topic.name, part.partition_index
                sizes[key] = max(sizes.get(key, 0), part.partition_size)
    return sizes
