"""`korvet pipeline`: Spark jobs between the log and a data lake."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from korvet.cli import options as o
from korvet.cli import redis_target, table_output
from korvet.cli.avro_records import RegistryUrl
from korvet.cli.table_output import progress
from korvet.config.setting import StartError
from korvet.spark.option_text import parse_duration, parse_size

if TYPE_CHECKING:
    from korvet.spark.pipeline.archive import ArchivedCommit
    from korvet.spark.pipeline.avro_columns import AvroById
    from korvet.spark.pipeline.replay import ReplayResult
    from korvet.spark.pipeline.verify import PartitionComparison, Verdict

app = o.group()

_Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="parquet, delta or iceberg.")
]


@dataclass(frozen=True)
class _Spark(o.Options):
    """The options of the Spark session."""

    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark's master. Default local[*]."),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable."),
    ] = None


@o.command(app, "archive")
def archive(
    topics: o.TopicNames,
    target: o.Target,
    session: _Spark,
    to: Annotated[str, typer.Option("--to", metavar="PATH|TABLE", help="The table.")],
    format: _Format = "parquet",
    once: Annotated[bool, typer.Option("--once", help="Stop at the end of the log.")] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Repeat at this interval: 30s, 1m, 1h."),
    ] = None,
    value: Annotated[
        str, typer.Option("--value", help="Typed columns: bytes (none), string, json, avro.")
    ] = "bytes",
    avro_schema: Annotated[
        list[str] | None,
        typer.Option(
            "--avro-schema",
            metavar="FILE|ID=FILE",
            help="Schema of bare Avro, or of the values with this schema id; then repeatable.",
        ),
    ] = None,
    registry: RegistryUrl = None,
    delete_archived_before: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Delete archived records of this age from the log: 2h, 7d."
        ),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Merge small files of the table at the end.")
    ] = False,
    target_file_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Of merged files.")
    ] = "128m",
    batch_records: Annotated[
        int, typer.Option(min=1, help="Records per commit, about.")
    ] = 4_000_000,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue after offsets that were deleted.")
    ] = False,
) -> None:
    """Copy topics into a table.

    Each record exactly once; a later run continues where the table ends.
    """
    need_spark()
    from korvet.spark.pipeline.archive import ArchiveJob, Archiver, open_table, run_archiver
    from korvet.spark.pipeline.typed_columns import check_mode

    every_s = None if every is None else milliseconds("--every", every) / 1000
    if once and every is not None:
        raise typer.BadParameter("--once and --every exclude each other")
    older_ms = None
    if delete_archived_before is not None:
        older_ms = milliseconds("--delete-archived-before", delete_archived_before)
    target_bytes = size("--target-file-size", target_file_size)
    schema = _avro_schemas(avro_schema or [], target, registry, is_used=value == "avro")
    check_mode(value, schema)
    with spark_session(
        "archive", to, format, target, session, topics=topics, avro=value == "avro"
    ) as (spark, location, connection):
        job = ArchiveJob(
            connection=connection,
            topics=tuple(topics),
            values=value,
            avro_schema=schema,
            max_records=batch_records,
            target_bytes=target_bytes,
            trim_older_ms=older_ms,
            skip_lost=skip_lost,
        )
        table = open_table(spark, location, value)
        archiver = Archiver(spark, table, job)
        has_bar = sys.stderr.isatty()
        total = archiver.waiting() if has_bar else None
        with progress(f"archive to {location}", total, shown=has_bar) as advance:

            def watch(done: "ArchivedCommit") -> None:
                if has_bar:
                    advance(done.records)
                else:
                    _print_line(done)

            run_archiver(archiver, watch, every_s=every_s, stop=_stopper())
        if compact:
            gone = table.compact(job.target_bytes)
            table_output.line(f"compacted: {gone} files fewer")


@o.command(app, "replay")
def replay(
    target: o.Target,
    session: _Spark,
    table: Annotated[str, typer.Argument(metavar="PATH|TABLE", help="The table.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="An existing topic.")],
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Rows from this time on (UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Rows before this (UTC).")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Rows for which this is true.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, metavar="N", help="Records per second at most.")
    ] = None,
    keep_timestamps: Annotated[
        bool, typer.Option("--keep-timestamps", help="Keep the records' timestamps.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="Repeat an earlier replay under a new name.")
    ] = None,
    format: _Format = None,
) -> None:
    """Write a table's rows into a topic.

    Each row once; run it again after a crash to continue.
    """
    need_spark()
    from korvet.spark.pipeline.archive import open_table
    from korvet.spark.pipeline.replay import ReplayOptions
    from korvet.spark.pipeline.replay import replay as again

    wanted = ReplayOptions(since, until, where, rate, keep_timestamps, name)
    with spark_session("replay", table, format, target, session, topics=[to], there=True) as (
        spark,
        location,
        connection,
    ):
        _print_line(again(spark, open_table(spark, location), location, connection, to, wanted))


@o.command(app, "verify")
def verify(
    topics: o.TopicNames,
    table: Annotated[str, typer.Argument(metavar="PATH|TABLE", help="The table.")],
    target: o.Target,
    session: _Spark,
    out: o.Output,
    format: _Format = None,
) -> None:
    """Compare a table with the log.

    Counts, ranges, duplicates and checksums. Exit code 1 on a difference.
    """
    need_spark()
    from korvet.spark.pipeline.archive import open_table
    from korvet.spark.pipeline.verify import verify_archive as verdict_of

    with spark_session("verify", table, format, target, session, topics=topics, there=True) as (
        spark,
        location,
        connection,
    ):
        verdict = verdict_of(spark, open_table(spark, location), connection, topics)
    _print(verdict, out)
    if not verdict.equal:
        raise typer.Exit(1)


@o.command(app, "stats")
def stats(
    topics: o.TopicNames,
    target: o.Target,
    session: _Spark,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write a page with plots.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Count topics' records, bytes and keys.

    Also rates over time, sizes and latency.
    """
    need_spark()
    from korvet.spark.pipeline.report import print_report as report
    from korvet.spark.pipeline.report import render_html
    from korvet.spark.pipeline.stats import stats as numbers

    with spark_session("stats", None, None, target, session, topics=topics) as (
        spark,
        _,
        connection,
    ):
        found = numbers(spark, connection, topics)
    if json:
        table_output.document(found)
    else:
        report(found)
    if html is not None:
        Path(html).write_text(render_html(found))


def _print(verdict: "Verdict", out: o.Output) -> None:
    columns = ("topic", "partition", "log", "table", "compared", "checksum", "waiting", "verdict")
    rows = [_row(each) for each in verdict.partitions]
    if out.json:
        table_output.document(
            {
                "equal": verdict.equal,
                "rows": verdict.rows,
                "problems": list(verdict.problems),
                "partitions": table_output.objects(columns, rows),
            }
        )
        return
    table_output.table(columns, rows, header=out.header)
    for problem in verdict.problems:
        table_output.line(f"table: {problem}")
    table_output.line(
        f"{'equal' if verdict.equal else 'DIFFERENT'}: {verdict.rows} rows in the table, "
        f"{sum(each.log.rows for each in verdict.partitions)} records compared with the log"
    )


def _row(comparison: "PartitionComparison") -> tuple[object, ...]:
    span = None if comparison.span is None else f"[{comparison.span.start}, {comparison.span.end})"
    return (
        comparison.topic,
        comparison.partition,
        f"[{comparison.log_first}, {comparison.log_next})",
        span,
        comparison.log.rows,
        f"{comparison.log.checksum:016x}",
        comparison.waiting,
        "; ".join(comparison.problems) or "equal",
    )


def _print_line(done: "ArchivedCommit | ReplayResult") -> None:
    """Print the result as one line of JSON."""
    table_output.line(msgspec.json.encode(done).decode())
    sys.stdout.flush()


def _stopper() -> Callable[[float], bool]:
    """Return a wait that ends with True on SIGINT or SIGTERM; the running commit is finished."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return stopping.wait


def _avro_schemas(
    given: list[str], target: o.Target, url: str | None, *, is_used: bool
) -> "str | AvroById | None":
    """Return the schema of bare Avro, or those by id; None without any."""
    from korvet.avro.decoder import registry_of
    from korvet.avro.schema import require_fastavro
    from korvet.spark.pipeline.avro_columns import AvroById

    by_id = [each.partition("=") for each in given if each.partition("=")[0].isdecimal()]
    registry = registry_of(target.settings, url) if url or (is_used and not given) else None
    if registry is not None:
        require_fastavro()
    if registry is not None or by_id:
        if len(by_id) < len(given):
            raise typer.BadParameter("name the schema's id as well: --avro-schema ID=FILE")
        return AvroById({int(number): _text_of(path) for number, _, path in by_id}, registry)
    if len(given) > 1:
        raise typer.BadParameter("bare Avro has one schema: give one --avro-schema FILE")
    return _text_of(given[0]) if given else None


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None


def need_spark() -> None:
    """Raise StartError if PySpark, NumPy or PyArrow is not installed."""
    from importlib.util import find_spec

    if not all(map(find_spec, ("pyspark", "numpy", "pyarrow"))):
        raise StartError("This needs PySpark: install korvet[spark].")


@contextmanager
def spark_session(
    app_name: str,
    table: str | None,
    format: str | None,
    target: o.Target,
    session: _Spark,
    *,
    topics: list[str],
    there: bool = False,
    avro: bool = False,
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a session, the table's location and the connection, and stop the session afterwards.

    Unknown topics, and a table that should be `there` and is not, are reported before Spark starts.
    """
    from korvet.spark.options import Connection
    from korvet.spark.pipeline.spark_session import (
        open_session,
        plain_error,
        stop_session,
        submitted_settings,
    )
    from korvet.spark.pipeline.table_location import parse_location

    # An archive draws its own progress bar; other jobs have Spark's.
    bars = sys.stderr.isatty() and app_name != "archive"
    given = {"spark.ui.showConsoleProgress": str(bars).lower()}
    given |= o.assignments("--conf", session.conf)
    location = (
        None if table is None else parse_location(table, format, {**submitted_settings(), **given})
    )
    with redis_target.url(target) as url:
        connection = Connection(url, target.namespace)
        _check_exist(connection, topics, location if there else None)
        spark = open_session(
            location, app=f"korvet {app_name}", master=session.master, conf=given, avro=avro
        )
        try:
            yield spark, location, connection
        except Exception as error:
            raise plain_error(error) from error
        finally:
            stop_session(spark)


def _check_exist(connection: Any, topics: list[str], location: Any) -> None:
    """Raise StartError if a topic or the table does not exist: Spark needs seconds to find out."""
    from korvet.spark.errors import UnknownTopic
    from korvet.spark.metadata import MetadataClient
    from korvet.spark.pipeline.table import no_archive_error

    try:
        with MetadataClient(connection) as metadata:
            for name in topics:
                metadata.topic(name)
    except UnknownTopic as error:
        raise StartError(str(error)) from None
    # Delta's paths depend on Spark's settings (fs.defaultFS); other paths are on this machine.
    local = location is not None and location.is_path and location.format != "delta"
    if local and not Path(location.path).exists():
        raise no_archive_error(location)


def milliseconds(option: str, text: str) -> int:
    """Return a duration in ms; a number without a unit is refused."""
    found = None if text.strip().isdigit() else parse_duration(text)
    if found is None:
        raise StartError(f"{option} must be a time such as 30s, 5m, 2h or 7d, not {text!r}.")
    return found


def size(option: str, text: str) -> int:
    """Return a size in bytes."""
    found = parse_size(text)
    if not found:
        raise StartError(f"{option} must be a size such as 128m, not {text!r}.")
    return found
