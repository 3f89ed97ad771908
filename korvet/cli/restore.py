"""`korvet restore`: rebuild an empty Redis from the snapshot and segments of a remote store.

`korvet serve --from`: a read-only broker over a remote store, with a private Redis.
"""

import asyncio
import tempfile
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from korvet.base import logfmt
from korvet.cli import options as o
from korvet.cli import redis_target, table_output
from korvet.cli.backup import store_url
from korvet.cli.broker_process import run_broker
from korvet.cli.start_lines import Announcement, announce_console
from korvet.cli.table_output import progress
from korvet.cli.target import load_config, make_files_private
from korvet.config.setting import StartError
from korvet.config.values import Settings
from korvet.embedded_redis.server import RedisServer
from korvet.remote_log.recovery.report import Report, RestoreRefused
from korvet.remote_log.recovery.restore import Restore, load_snapshot
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.scripts.keys import Keys
from korvet.store.async_store import AsyncStore

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="DIR|URL",
        help="The backup or remote store: a directory, or file:///DIR, s3://, gs://, az://.",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option("--cluster-id", metavar="ID", help="The cluster, if the store has several."),
]


def restore(
    target: o.Target,
    from_: From,
    cluster_id: ClusterId = None,
    offset_gap: Annotated[
        int | None,
        typer.Option(
            "--offset-gap",
            metavar="N",
            help="Offsets that dense logs skip. Default: 1,000 per ms since the snapshot.",
            min=0,
        ),
    ] = None,
    into_redis: Annotated[
        bool | None,
        typer.Option(
            "--into-redis/--in-segments",
            help="Write the records into Redis, or leave them in the segments, which brokers read "
            "with remote.storage.url. Default: into Redis from a backup, else in segments.",
            show_default=False,
        ),
    ] = None,
    json: o.Json = False,
) -> None:
    """Rebuild an empty Redis from a backup or a remote store.

    Prints what is lost. Exit code 2 if the namespace has any state.
    """
    with redis_target.url(target, create=True) as url:
        report = asyncio.run(
            run(
                url,
                target.namespace,
                store_url(from_),
                cluster_id,
                offset_gap,
                settings=target.settings,
                into_redis=into_redis,
            )
        )
    if json:
        table_output.document(report)
    else:
        _print(report)


async def run(
    url: str,
    namespace: str,
    source: str,
    cluster_id: str | None,
    gap: int | None,
    *,
    only_segments: bool = False,
    settings: Settings | None = None,
    into_redis: bool | None = False,
) -> Report:
    """Restore the namespace of the Redis at `url`. Raises StartError if it is refused.

    With `settings` the records of a backup, or of any store with `into_redis`, go into Redis.
    """
    try:
        segments = SegmentStore(source, create=False)
        snapshot = await load_snapshot(segments, cluster_id)
        loads = snapshot.is_backup if into_redis is None else into_redis
        async with await AsyncStore.connect(url, client_name="korvet-cli") as store:
            count = sum(len(state.partitions) for state in snapshot.topics.values())
            with progress("partitions restored", count, shown=True) as advance:
                restore = Restore(
                    store,
                    Keys(namespace),
                    segments,
                    snapshot,
                    gap,
                    only_segments=only_segments,
                    settings=settings if loads else None,
                    on_partition=lambda: advance(1),
                )
                return await restore.run()
    except (RestoreRefused, RemoteStorageError) as error:
        raise StartError(f"{str(error).rstrip('.')}.") from None


def _print(report: Report) -> None:
    moment = datetime.fromtimestamp(report.snapshot_ms / 1000, UTC).isoformat(timespec="seconds")
    what = "backup" if report.is_backup else "snapshot"
    table_output.line(
        f"restored cluster {report.cluster_id} from the {what} of {moment}: "
        f"{report.topics} topics, {report.partitions} partitions, {report.segments} segments, "
        f"{report.records} records, {report.groups} groups, {report.users} users, "
        f"{report.acls} ACL rules"
    )
    for topic_id in report.unknown_topics:
        table_output.line(f"not restored: topic id {topic_id} has objects, and no definition")
    if report.scheduled:
        table_output.line(f"{report.scheduled} scheduled records wait again, as in the {what}")
    for each in report.scheduled_lost:
        table_output.line(
            f"lost: {each.records} scheduled records of {each.topic}-{each.partition}, too many "
            "for a snapshot"
        )
    if not report.is_backup:
        table_output.line("records appended after the snapshot are lost unless they were copied")
    if not report.lost:
        table_output.line(f"lost of what the {what} has: nothing")
        return
    table_output.line(f"lost of what the {what} has:")
    columns = ("topic", "partition", "first", "last", "reason")
    rows = [(e.topic, e.partition, e.first, e.last, e.reason) for e in report.lost]
    table_output.table(columns, rows)


def serve_from(
    context: typer.Context,
    from_: From,
    cluster_id: ClusterId = None,
    listen: Annotated[list[str] | None, o.text("listen", "[PROTOCOL://]HOST:PORT")] = None,
    advertise: Annotated[list[str] | None, o.text("advertise", "[PROTOCOL://]HOST:PORT")] = None,
    ops: Annotated[str | None, o.text("ops", "HOST:PORT")] = None,
    redis_server: o.RedisServerPath = None,
    config: o.ConfigFile = None,
    set_: o.Sets = None,
    log_level: o.LogLevel = None,
    log_format: o.LogFormat = None,
) -> None:
    """Serve a backup or a remote store read-only; without --from, be a broker.

    The broker has the options of `korvet --help`. With --from the topics are those of the store at
    the start. Writes are refused with POLICY_VIOLATION. Consumer groups work, and are forgotten at
    the end.
    """
    make_files_private()
    from_ = store_url(from_)
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": from_,
        "auto.create.topics.enable": "false",
    }
    sets = [*(set_ or ()), *(f"{name}={value}" for name, value in settings.items())]
    # Not the environment's Redis: this command has its own.
    loaded = load_config({**context.params, "set_": sets}, {})
    logfmt.setup(loaded.log_level, loaded.log_format)
    with (
        tempfile.TemporaryDirectory(prefix="korvet-") as folder,
        RedisServer.launch(folder, binary=loaded.redis_server) as server,
    ):
        asyncio.run(run(server.url, loaded.namespace, from_, cluster_id, None, only_segments=True))
        private = msgspec.structs.replace(
            loaded, redis=server.url, data_dir=folder, workers=1, read_only=True
        )
        said = Announcement(private, data=f"{from_}, read-only; groups are forgotten at the end")
        run_broker(private, said.listening, server, announce_console=announce_console)
