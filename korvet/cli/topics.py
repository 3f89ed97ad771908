"""`korvet topics`: list, create, describe and delete, through the brokers' own scripts."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from korvet.cli import options as o
from korvet.cli import table_output

if TYPE_CHECKING:
    from korvet.cli.admin_client import Cluster
    from korvet.scripts.log import ListOffsetsReply
    from korvet.topics.table import Topic

app = typer.Typer(help="Topics: list, create, describe, delete.")

_Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command("list")
def list_(redis: o.Redis = None, data_dir: o.DataDir = None, namespace: o.Namespace = None) -> None:
    """Print every topic with its partitions, layout, records and bytes."""
    from korvet.cli.admin_client import on_cluster

    async def rows(cluster: "Cluster") -> list[tuple[object, ...]]:
        return [
            (
                topic.name,
                topic.partitions,
                topic.policy.storage_format,
                topic.policy.offset_mode,
                sum(part.records for part in parts),
                sum(part.bytes for part in parts),
            )
            for topic in await cluster.topics.all()
            for parts in [await _bounds(cluster, topic)]
        ]

    table_output.table(
        ("topic", "partitions", "format", "offsets", "records", "bytes"),
        on_cluster(rows, redis, data_dir, namespace),
    )


@app.command("create")
def create(
    name: _Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="How many; else num.partitions.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A topic config; repeatable."),
    ] = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Create a topic. What is left out is as it was changed for all brokers, else Korvet's default:
    what a broker was started with is its own affair."""
    from korvet.cli.admin_client import on_cluster
    from korvet.config.broker_config import StartError
    from korvet.errors import ErrorCode
    from korvet.topics.lifecycle import Refused, create_topic, plan_topic, refuse_beside

    configs = dict(_assignments(config or ()))

    async def run(cluster: "Cluster") -> tuple[ErrorCode, int]:
        count = cluster.settings.integer("num.partitions") if partitions is None else partitions
        definition = plan_topic(name, count, configs, cluster.defaults)
        if await cluster.topics.get(name) is None:
            refuse_beside(cluster.topics.alike(name), name)
        return await create_topic(cluster.store, cluster.keys, name, definition), count

    try:
        error, count = on_cluster(run, redis, data_dir, namespace)
    except Refused as refused:
        raise StartError(refused.reason) from None
    if error is ErrorCode.TOPIC_ALREADY_EXISTS:
        raise StartError(f"There is a topic {name!r} already.")
    table_output.line(f"created {name} with {count} partition{'s' * (count != 1)}")


@app.command("describe")
def describe(
    name: _Name,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Print a topic's configs and where each of its partitions begins and ends."""
    from korvet.cli.admin_client import on_cluster

    async def run(cluster: "Cluster") -> None:
        topic = await cluster.topic(name)
        configs = cluster.defaults.resolve(name, topic.configs).values()
        table_output.table(
            ("config", "value", "source"),
            [("id", topic.id, "")]
            + [(c.name, c.value, c.source.name.lower()) for c in configs if c.setting.effect],
        )
        table_output.line("")
        table_output.table(
            ("partition", "first", "next", "records", "bytes", "newest", "stream"),
            [
                (
                    number,
                    part.first,
                    part.next,
                    part.records,
                    part.bytes,
                    _moment(part.newest),
                    cluster.keys.partition(name, number).stream,
                )
                for number, part in enumerate(await _bounds(cluster, topic))
            ],
        )

    on_cluster(run, redis, data_dir, namespace)


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
) -> None:
    """Delete topics with their records, Redis groups and committed offsets."""
    from korvet.cli.admin_client import on_cluster
    from korvet.config.broker_config import StartError
    from korvet.topics.lifecycle import Refused, delete_topic

    async def run(cluster: "Cluster") -> None:
        # All are looked up first: a wrong name deletes nothing.
        for topic in [await cluster.topic(name) for name in names]:
            await delete_topic(cluster.store, cluster.keys, topic)
            table_output.line(f"deleted {topic.name}")

    try:
        on_cluster(run, redis, data_dir, namespace)
    except Refused as refused:
        raise StartError(refused.reason) from None


async def _bounds(cluster: "Cluster", topic: "Topic") -> "Sequence[ListOffsetsReply]":
    from korvet.scripts import log

    return await cluster.store.run_many(
        [
            log.list_offsets(cluster.keys, topic.name, number, topic_id=topic.id)
            for number in range(topic.partitions)
        ]
    )


def _assignments(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--config needs NAME=VALUE, not {text!r}")
        yield name.strip(), value.strip()


def _moment(ms: int) -> str:
    from datetime import UTC, datetime

    if ms < 0:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
