"""`korvet backup`: write a Redis's topics, records, groups and users to a directory or a bucket."""

from pathlib import Path
from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_requests import on_log
from korvet.cli.table_output import progress
from korvet.cli.target import make_files_private
from korvet.config.setting import StartError
from korvet.config.topic_policy import TopicConfigs
from korvet.library.async_korvet import AsyncKorvet
from korvet.remote_log.manifest import CLUSTER_ID
from korvet.remote_log.recovery.backup import Backup, BackupRefused
from korvet.remote_log.recovery.report import BackupReport
from korvet.remote_log.store import RemoteStorageError, SegmentStore


def backup(
    to: Annotated[
        str,
        typer.Argument(metavar="DIR|URL", help="A directory, or file:///DIR, s3://, gs://, az://."),
    ],
    target: o.Target,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="Wait so long for a moment without an open transaction, in each partition.",
            min=0,
        ),
    ] = 10.0,
    json: o.Json = False,
) -> None:
    """Write topics, records, groups and users to a directory or a bucket.

    Brokers may run meanwhile. `korvet restore --from` reads a backup. A backup that was interrupted
    continues if the command is repeated.
    """
    make_files_private()
    report = on_log(lambda log: _run(log, to, target, wait), target)
    if json:
        table_output.document(report)
    else:
        _print(report)


def store_url(text: str) -> str:
    """Return the URL of a store that is named by a URL or a directory."""
    return text if "://" in text else Path(text).absolute().as_uri()


async def _run(log: AsyncKorvet, to: str, target: o.Target, wait_s: float) -> BackupReport:
    await log.refresh()
    found = await log.store.command("HGET", log.keys.cluster(), CLUSTER_ID)
    cluster_id = found.decode() if found else target.settings.text("cluster.id")
    count = 0
    for topic in await log.topics():
        count += sum(each.records for each in await log.offsets(topic.name))
    store = _open(store_url(to))
    with progress("records backed up", count, shown=True) as advance:
        backup = Backup(
            log.store,
            log.keys,
            TopicConfigs(log.settings),
            cluster_id,
            store,
            _remote(log),
            wait_s=wait_s,
            on_records=advance,
        )
        try:
            return await backup.run()
        except BackupRefused as error:
            raise StartError(str(error)) from None


def _open(url: str) -> SegmentStore:
    try:
        return SegmentStore(url)
    except RemoteStorageError as error:
        raise StartError(f"{error}.") from None


def _remote(log: AsyncKorvet) -> SegmentStore | None:
    """Return the brokers' remote store, None without one."""
    url = log.settings.text_of("remote.storage.url")
    if not url or not log.settings.flag("remote.log.storage.system.enable"):
        return None
    try:
        return SegmentStore(url, create=False)
    except RemoteStorageError:
        return None  # without segments it is not needed; with some the backup says what to set


def _print(report: BackupReport) -> None:
    table_output.line(
        f"backed up cluster {report.cluster_id} to {report.url}: {report.topics} topics, "
        f"{report.partitions} partitions, {report.records} records in {report.segments} segments, "
        f"{report.groups} groups, {report.users} users, {report.acls} ACL rules, "
        f"{report.scheduled} scheduled records"
    )
    for name in report.left_out:
        table_output.line(f"not in the backup: topic {name}, because of offset.mode=bytes")
    if report.open:
        table_output.line("not in the backup, above the first record of an open transaction:")
        columns = ("topic", "partition", "first", "last")
        table_output.table(columns, [(e.topic, e.partition, e.first, e.last) for e in report.open])
