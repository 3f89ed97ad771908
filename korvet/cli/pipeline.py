"""`korvet pipeline`: the jobs between the log and a lake. They run on Spark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from korvet.cli import options as o
from korvet.cli import table_output

if TYPE_CHECKING:
    from korvet.pipeline.verify import Compared, Verdict

app = typer.Typer(help="Archive to a lake, replay, verify, statistics: jobs on Spark.")

_Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")]
_Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="parquet, delta or iceberg.")
]
_Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's master. Default local[*].")
]
_Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; repeatable."),
]


@app.command("archive")
def archive(
    topics: _Topics,
    to: Annotated[str, typer.Option("--to", metavar="PATH|TABLE", help="The table.")],
    format: _Format = "parquet",
    once: Annotated[bool, typer.Option("--once", help="Stop when the table has all.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Again and again: 30s, 1m, 1h.")
    ] = None,
    value: Annotated[
        str, typer.Option("--value", help="Typed columns: bytes (none), string, json or avro.")
    ] = "bytes",
    avro_schema: Annotated[
        str | None, typer.Option("--avro-schema", metavar="FILE", help="For --value avro.")
    ] = None,
    delete_archived_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Remove from the log what the table has and is so old: 2h, 7d."
        ),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Join small files of the table at the end.")
    ] = False,
    target_file_size: Annotated[str, typer.Option(metavar="SIZE")] = "128m",
    batch_records: Annotated[
        int, typer.Option(min=1, help="About so many records a commit.")
    ] = 4_000_000,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on behind offsets that are gone for good.")
    ] = False,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
    master: _Master = None,
    conf: _Conf = None,
) -> None:
    """Copy topics into a table, each record exactly once; go on where the table ends."""
    _need_spark()
    from korvet.pipeline import amounts
    from korvet.pipeline.archive import Archiver, Job, run
    from korvet.pipeline.opening import open_table
    from korvet.pipeline.table import Making
    from korvet.pipeline.told import telling
    from korvet.pipeline.values import check_mode

    every_s = None if every is None else amounts.milliseconds("--every", every) / 1000
    if once and every is not None:
        raise typer.BadParameter("--once and --every exclude each other")
    older_ms = None
    if delete_archived_before is not None:
        older_ms = amounts.milliseconds("--delete-archived-before", delete_archived_before)
    target_bytes = amounts.size("--target-file-size", target_file_size)
    schema = None if avro_schema is None else _text_of(avro_schema)
    check_mode(value, schema)
    where = redis, data_dir, namespace
    with _spark(
        "archive", to, format, where, master, conf, topics=topics, avro=value == "avro"
    ) as (
        spark,
        place,
        connection,
    ):
        job = Job(
            connection=connection,
            topics=tuple(topics),
            values=value,
            avro_schema=schema,
            most=batch_records,
            target_bytes=target_bytes,
            trim_older_ms=older_ms,
            skip_lost=skip_lost,
        )
        table = open_table(spark, place, Making(values=value))
        archiver = Archiver(spark, table, job)
        with telling(f"archive to {place}", archiver.waiting) as watch:
            run(archiver, watch, every_s=every_s, stop=_stopper())
        if compact:
            gone = table.compact(job.target_bytes)
            table_output.line(f"compacted: {gone} files fewer")


@app.command("replay")
def replay(
    table: Annotated[str, typer.Argument(metavar="PATH|TABLE", help="The table.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="An existing topic.")],
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Rows as late as this (UTC), or later."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Rows before this (UTC).")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Rows for which this is true.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", min=1, metavar="N", help="At most N records a second.")
    ] = None,
    keep_timestamps: Annotated[
        bool, typer.Option("--keep-timestamps", help="Records keep their time.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="Replays of another name happen again.")
    ] = None,
    format: _Format = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
    master: _Master = None,
    conf: _Conf = None,
) -> None:
    """Write a table's rows into a topic, each once; run again after a crash, it goes on."""
    _need_spark()
    from korvet.pipeline.opening import open_table
    from korvet.pipeline.replay import Wanted
    from korvet.pipeline.replay import replay as again
    from korvet.pipeline.told import line

    wanted = Wanted(since, until, where, rate, keep_timestamps, name)
    where_ = redis, data_dir, namespace
    with _spark("replay", table, format, where_, master, conf, topics=[to], there=True) as (
        spark,
        place,
        connection,
    ):
        line(again(spark, open_table(spark, place), place, connection, to, wanted))


@app.command("verify")
def verify(
    topics: _Topics,
    table: Annotated[str, typer.Argument(metavar="PATH|TABLE", help="The table.")],
    format: _Format = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
    master: _Master = None,
    conf: _Conf = None,
) -> None:
    """Compare log and table: counts, ranges, duplicates, checksums. Exit 1 on a difference."""
    _need_spark()
    from korvet.pipeline.opening import open_table
    from korvet.pipeline.verify import verify as verdict_of

    where = redis, data_dir, namespace
    with _spark("verify", table, format, where, master, conf, topics=topics, there=True) as (
        spark,
        place,
        connection,
    ):
        verdict = verdict_of(spark, open_table(spark, place), connection, topics)
    _print(verdict)
    if not verdict.equal:
        raise typer.Exit(1)


@app.command("stats")
def stats(
    topics: _Topics,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with plots, too.")
    ] = None,
    redis: o.Redis = None,
    data_dir: o.DataDir = None,
    namespace: o.Namespace = None,
    master: _Master = None,
    conf: _Conf = None,
) -> None:
    """Records, bytes, rates over time, keys, sizes and latency of topics."""
    _need_spark()
    from pathlib import Path

    from korvet.pipeline.page import page
    from korvet.pipeline.report import show as report
    from korvet.pipeline.stats import stats as numbers

    where = redis, data_dir, namespace
    with _spark("stats", None, None, where, master, conf, topics=topics) as (
        spark,
        _,
        connection,
    ):
        found = numbers(spark, connection, topics)
    report(found)
    if html is not None:
        Path(html).write_text(page(found))


def _print(verdict: "Verdict") -> None:
    table_output.table(
        ("topic", "partition", "log", "table", "compared", "checksum", "waiting", "verdict"),
        [_row(each) for each in verdict.partitions],
    )
    for problem in verdict.problems:
        table_output.line(f"table: {problem}")
    table_output.line(
        f"{'equal' if verdict.equal else 'DIFFERENT'}: {verdict.rows} rows in the table, "
        f"{sum(each.log.rows for each in verdict.partitions)} records compared with the log"
    )


def _row(each: "Compared") -> tuple[object, ...]:
    held = "-" if each.held is None else f"[{each.held.start}, {each.held.end})"
    return (
        each.topic,
        each.partition,
        f"[{each.log_first}, {each.log_next})",
        held,
        each.log.rows,
        f"{each.log.checksum:016x}",
        each.waiting,
        "; ".join(each.problems) or "equal",
    )


def _need_spark() -> None:
    """StartError where the wheel was installed without what the jobs run on."""
    from importlib.util import find_spec

    from korvet.config.broker_config import StartError

    if not all(map(find_spec, ("pyspark", "numpy", "pyarrow"))):
        raise StartError("This needs PySpark: pip install 'korvet[spark]'.")


@contextmanager
def _spark(
    app_name: str,
    table: str | None,
    format: str | None,
    where: tuple[str | None, str | None, str | None],
    master: str | None,
    conf: list[str] | None,
    *,
    topics: list[str],
    there: bool = False,
    avro: bool = False,
) -> Iterator[tuple[Any, Any, Any]]:
    """A session, the table's place and the connection; the session is stopped behind it. What is
    wrong with topics, or with a table that should be `there`, is told before Spark starts."""
    import sys

    from korvet.cli import redis_target
    from korvet.pipeline.places import parse
    from korvet.pipeline.session import open_session, plain, stop, submitted
    from korvet.spark.options import Connection

    redis, data_dir, namespace = where
    # An archive draws its own bar; what else takes long has Spark's.
    bars = sys.stderr.isatty() and app_name != "archive"
    given = {"spark.ui.showConsoleProgress": str(bars).lower(), **dict(_pairs(conf or []))}
    place = None if table is None else parse(table, format, {**submitted(), **given})
    with redis_target.url(redis, data_dir) as url:
        connection = Connection(url, namespace or "korvet")
        _look(connection, topics, place if there else None)
        spark = open_session(place, app=f"korvet {app_name}", master=master, conf=given, avro=avro)
        try:
            yield spark, place, connection
        except Exception as error:
            raise plain(error) from error
        finally:
            stop(spark)


def _look(connection: Any, topics: list[str], place: Any) -> None:
    """Nothing, or why there is nothing to do: Spark takes seconds to find out."""
    from pathlib import Path

    from korvet.config.broker_config import StartError
    from korvet.pipeline.table import missing
    from korvet.spark.catalog import Catalog
    from korvet.spark.errors import UnknownTopic

    try:
        with Catalog(connection) as catalog:
            for name in topics:
                catalog.topic(name)
    except UnknownTopic as error:
        raise StartError(str(error)) from None
    # Where Delta's paths are, Spark's settings say (fs.defaultFS); the others are of this machine.
    local = place is not None and place.is_path and place.format != "delta"
    if local and not Path(place.path).exists():
        raise missing(place)


def _pairs(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--conf needs NAME=VALUE, not {text!r}")
        yield name.strip(), value.strip()


def _stopper() -> Callable[[float], bool]:
    """Waits; true when SIGINT or SIGTERM came, after which the running round is finished."""
    import signal
    import threading

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    return stopping.wait


def _text_of(path: str) -> str:
    from pathlib import Path

    try:
        return Path(path).read_text()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
