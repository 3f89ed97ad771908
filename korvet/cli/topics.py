"""`korvet topics`: list, create, describe and delete; topic_changes has the others."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Protocol

import typer

from korvet.base.errors import ErrorCode
from korvet.broker.ops.finding import times_as_offsets
from korvet.cli import options as o
from korvet.cli import over_brokers, table_output, topic_changes
from korvet.cli.admin_client import CommandLog, on_log
from korvet.cli.broker_log import BrokerLog, Log, on_any_log
from korvet.cli.config_changes import add_topic_commands
from korvet.cli.kafka_requests import Via
from korvet.groups.consumed import list_held
from korvet.library.values import KorvetError
from korvet.log.tables import sizes
from korvet.remote_log.manifest import ManifestTotals, RemoteOnly, count_remote_only, totals

app = o.group()

_PARTITION_COLUMNS: tuple[str, ...] = (
    "partition", "first", "next", "records", "bytes", "newest", "stream",
)  # fmt: skip


class _Created(Protocol):
    """A topic that was created."""

    @property
    def partitions(self) -> int: ...
    @property
    def offset_mode(self) -> str: ...


@o.command(app, "list")
def list_(via: Via, json: o.Json = False, header: o.Header = True) -> None:
    """List topics with layout, records and bytes. Brokers return no number of records."""

    async def rows(log: CommandLog) -> list[table_output.Row]:
        found: list[table_output.Row] = []
        for topic in await log.topics():
            parts = await log.offsets(topic.name)
            total = sum(part.records for part in parts), sum(part.bytes for part in parts)
            shape = topic.name, topic.partitions, topic.storage_format, topic.offset_mode
            found.append((*shape, *total))
        return found

    columns = ("topic", "partitions", "format", "offsets", "records", "bytes")
    found = via.run(over_brokers.list_topics) if via.has_brokers else on_log(rows, via.target)
    table_output.listing(columns, found, as_json=json, header=header)


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
        create: Callable[..., Awaitable[_Created]] = log.create_topic
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
def describe(name: o.TopicName, via: Via, json: o.Json = False, header: o.Header = True) -> None:
    """Print a topic's configs and partitions.

    With retention.consumed, also the group that holds a partition's records, and how many. With
    table.enable, also the keys of its table, and the table's bytes of Redis's memory. With
    remote.storage.enable, or with segments, also the first offset in Redis, what segments hold,
    what they alone hold (remote_only), and the total. Other records and bytes are those in Redis.
    Brokers return offsets and bytes only.
    """

    async def run(log: CommandLog) -> over_brokers.Description:
        topic = await log.find_topic(name)
        configs = log.topic_configs.resolve(name, topic.configs).values()
        offsets = await log.offsets(name)
        parts: list[table_output.Row] = [
            (
                part.partition,
                part.earliest,
                part.latest,
                part.records,
                part.bytes,
                table_output.moment(part.newest_timestamp_ms),
                topic.partition(part.partition).stream,
            )
            for part in offsets
        ]
        shown = [(c.name, c.value, c.source.name.lower()) for c in configs if c.setting.effect]
        kept_for = {row[0]: row[1:] for row in await list_held(log.store, log.keys, topic)}
        columns = _PARTITION_COLUMNS
        if topic.policy.consumed_by:
            columns = (*columns, "held_by", "held_records")
            parts = [(*row, *kept_for.get(number, (None, 0))) for number, row in enumerate(parts)]
        if topic.policy.table_enable:
            columns = (*columns, "table_keys", "table_bytes")
            tables = [await sizes(log.store, topic.partition(n)) for n in range(topic.partitions)]
            parts = [(*row, *each) for row, each in zip(parts, tables, strict=True)]
        segments = [await totals(log.store, topic.partition(n)) for n in range(topic.partitions)]
        if topic.policy.remote_storage or any(each.segments for each in segments):
            columns = (*columns, *ManifestTotals._fields, *RemoteOnly._fields)
            below = [
                await count_remote_only(
                    log.store,
                    topic,
                    part.partition,
                    start=part.earliest,
                    local_start=each.local_start,
                    local_bytes=part.bytes,
                )
                for part, each in zip(offsets, segments, strict=True)
            ]
            parts = [(*row, *a, *b) for row, a, b in zip(parts, segments, below, strict=True)]
        return [("id", topic.id, ""), *shown], columns, list(parts)

    configs, of_part, parts = (
        via.run(lambda requests: over_brokers.describe_topic(requests, name))
        if via.has_brokers
        else on_log(run, via.target)
    )
    of_config = ("config", "value", "source")
    if json:
        table_output.document(
            {
                "topic": name,
                "configs": table_output.objects(of_config, configs),
                "partitions": table_output.objects(of_part, parts),
            }
        )
        return
    table_output.table(of_config, configs, header=header)
    table_output.line("")
    table_output.table(of_part, parts, header=header)


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


add_topic_commands(app)
o.command(app, "add-partitions")(topic_changes.add_partitions)
o.command(app, "trim")(topic_changes.trim)
o.command(app, "repair")(topic_changes.repair)
