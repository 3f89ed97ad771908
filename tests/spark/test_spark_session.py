"""Check format `korvet` in a real Spark session: found, read, filtered, written, streamed."""

import json
import time
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import redis

from korvet.cli import run as korvet
from korvet.testing import Broker
from tests.spark.data_source_driver import read
from tests.spark.topic_log import Log, plain
from tests.support.redis_servers import TestServer

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
# The in-process tests cover every layout; a real session is too slow for that.
layouts = pytest.mark.parametrize(("form", "mode"), [("record", "time"), ("batch", "dense")])
LAYOUT = ("record", "time")
PASSWORD = "opensesame"


def frame(spark: Any, log: Log, **options: object) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("korvet").option("redis", log.url).options(**given).load()


def stream(spark: Any, log: Log, **options: object) -> Any:
    given = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("korvet").option("redis", log.url).options(**given).load()


def fill(log: Log, name: str, form: str, mode: str, count: int = 300) -> list[int]:
    """Append records to two partitions and return their offsets."""
    topic = log.create(name, 2, form, mode)
    for partition in (0, 1):
        for n in range(3):
            log.append(topic, partition, plain(count // 6, since=1000 * n))
    return [r[0] for _, records in sorted(log.written.items()) for r in records]


def test_the_schema_is_that_of_sparks_kafka_source(spark: Any, log: Log) -> None:
    log.create("s", 1)
    schema = frame(spark, log, subscribe="s", includeHeaders="true").schema
    assert schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_the_schema_is_the_same_where_timestamps_have_no_time_zone(spark: Any, log: Log) -> None:
    fill(log, "s", *LAYOUT)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        df = frame(spark, log, subscribe="s")
        assert dict(df.dtypes)["timestamp"] == "timestamp" and df.count() == 300
        made = spark.read.format("korvet").option("redis", log.url).option("subscribe", "s")
        with pytest.raises(Exception, match="timestamp_ltz in DDL and SQL"):
            made.schema("offset bigint, timestamp timestamp").load().count()
        assert made.schema("offset bigint, timestamp timestamp_ltz").load().count() == 300
    finally:
        spark.conf.unset("spark.sql.timestampType")


@layouts
def test_a_batch_holds_what_the_log_holds(spark: Any, log: Log, form: str, mode: str) -> None:
    fill(log, "s", form, mode)
    rows = frame(spark, log, subscribe="s", includeHeaders="true").collect()
    found = [row.asDict(recursive=True) for row in rows]
    wanted = read(log.url, subscribe="s", includeHeaders="true")
    strip = [{k: v for k, v in row.items() if k != "timestamp"} for row in wanted]
    assert [{k: v for k, v in row.items() if k != "timestamp"} for row in found] == strip
    moments = [row["timestamp"].timestamp() for row in wanted]
    stamps = frame(spark, log, subscribe="s").selectExpr("double(timestamp) t").collect()
    assert [row.t for row in stamps] == moments


def test_entries_that_borrow_offsets_are_read_once_each(spark: Any, log: Log) -> None:
    """In mode `time` a millisecond has 1,024 offsets."""
    topic = log.create("s", 1, "record", "time")
    burst = "for n = 0, 2999 do redis.call('XADD', KEYS[1], '*', 'value', n) end"
    wanted: list[tuple[int, bytes]] = []
    for _ in range(2):
        log.store.command("EVAL", burst, 1, log.keys.partition("s", 0).stream)
        entry, _ = log.store.command("XRANGE", "korvet:s:0", "-", "+")[len(wanted)]
        first = max(int(entry.partition(b"-")[0]) << 10, wanted[-1][0] + 1 if wanted else 0)
        wanted += [(first + n, b"%d" % n) for n in range(3000)]
        wanted += [(record[0], record[3] or b"") for record in log.append(topic, 0, plain(2))]
    found = frame(spark, log, subscribe="s").orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in found] == wanted
    for low, high in ((0, 1500), (1500, 3500), (3001, 6004)):
        df = frame(
            spark,
            log,
            subscribe="s",
            startingOffsets=json.dumps({"s": {"0": wanted[low][0]}}),
            endingOffsets=json.dumps({"s": {"0": wanted[high - 1][0] + 1}}),
        )
        offsets = [row.offset for row in df.orderBy("offset").collect()]
        assert offsets == [offset for offset, _ in wanted[low:high]]


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    """Spark's filter pushdown, which is off by default."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("pushed", ["true", "false"])
@pytest.mark.usefixtures("pushdown")
def test_filters_find_the_same_pushed_or_not(spark: Any, log: Log, pushed: str) -> None:
    offsets = fill(log, "s", *LAYOUT)
    middle = sorted(offsets)[150]
    cases = {
        f"offset >= {middle} and offset < {middle + 20}": [
            o for o in offsets if middle <= o < middle + 20
        ],
        f"offset = {offsets[7]} and partition = 0": [offsets[7]],
        "partition in (1) and topic = 's'": offsets[150:],
        "topic = 'other'": [],
        "timestamp >= '1970-01-01 00:00:02.010'": [*offsets[110:150], *offsets[260:300]],
        f"offset in ({offsets[1]}, {offsets[3]}) and partition = 0": [offsets[1], offsets[3]],
        "value like '%000003%' and partition = 0": [offsets[3], offsets[53], offsets[103]],
    }
    for condition, wanted in cases.items():
        df = frame(spark, log, subscribe="s", pushFilters=pushed)
        found = df.where(condition).orderBy("partition", "offset").collect()
        assert [row.offset for row in found] == wanted, condition


@pytest.mark.usefixtures("pushdown")
def test_a_view_that_a_query_reads_twice_has_no_filters_of_another_use(
    spark: Any, log: Log
) -> None:
    fill(log, "s", "record", "dense")
    frame(spark, log, subscribe="s").createOrReplaceTempView("twice")
    low, high = (f"SELECT * FROM twice WHERE offset {side} 100" for side in ("<", ">="))
    counted = [
        spark.sql(f"SELECT count(*) FROM ({query})").first()[0]
        for query in (f"{low} UNION ALL {high}", low, high, "SELECT * FROM twice")
    ]
    assert counted == [300, 200, 100, 300]
    assert spark.sql(f"SELECT * FROM twice EXCEPT ({low})").count() == 100


@pytest.mark.usefixtures("pushdown")
def test_a_pushed_range_is_all_that_is_read(spark: Any, log: Log) -> None:
    fill(log, "s", "record", "dense")
    df = frame(spark, log, subscribe="s", pushFilters="true")
    df = df.where("partition = 1 and offset between 3 and 9")
    assert df.rdd.getNumPartitions() == 1 and df.count() == 7
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, "nothing is left for Spark to do"


def test_pushing_filters_without_sparks_setting_is_an_error(spark: Any, log: Log) -> None:
    log.create("s", 1)
    with pytest.raises(Exception, match="filterPushdown"):
        frame(spark, log, subscribe="s", pushFilters="true").count()


def test_a_password_is_in_no_plan_and_no_error(spark: Any, log: Log) -> None:
    url = "redis://bob:hunter2@127.0.0.1:1"
    made = spark.read.format("korvet").option("subscribe", "s")
    hidden = made.option("redisUrl", url).load()
    texts = [hidden._jdf.queryExecution().toString()]
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW hidden USING korvet "
              f"OPTIONS (subscribe 's', redisUrl '{url}')")  # fmt: skip
    texts.append(spark.sql("EXPLAIN EXTENDED SELECT * FROM hidden").first()[0])
    for action in (hidden.count, made.option("redis", url).load):
        with pytest.raises(Exception, match=r"127\.0\.0\.1:1|redisUrl") as caught:
            action()
        texts.append(str(caught.value))
    assert not [text for text in texts if "hunter2" in text]


def test_a_schema_with_fewer_columns_reads_only_those(spark: Any, log: Log) -> None:
    offsets = fill(log, "s", *LAYOUT)
    made = spark.read.format("korvet").schema("offset bigint, key binary")
    rows = made.option("redis", log.url).option("subscribe", "s").load().collect()
    assert sorted(row.offset for row in rows) == sorted(offsets)
    assert rows[0].asDict().keys() == {"offset", "key"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "nowhere"}, "There is no topic 'nowhere'"),
        ({"subscribe": "s", "startingOffsets": "{"}, "expects JSON"),
        ({"subscribe": "s", "kafka.bootstrap.servers": "x:1"}, "set 'redis' to the Redis URL"),
        ({"subscribe": "s", "startingOffsets": '{"s":{"0":7,"1":0}}'}, "after the log end offset"),
        ({"subscribe": "s", "redis": "redis://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_errors_of_options_are_reported_before_any_task(
    spark: Any, log: Log, options: dict[str, str], words: str
) -> None:
    log.create("s", 2)
    with pytest.raises(Exception, match=words):
        frame(spark, log, **options).count()


def test_the_error_of_a_rejected_stream_is_the_last_that_spark_reports(
    spark: Any, log: Log
) -> None:
    log.create("s", 1)
    made = spark.readStream.format("korvet").option("redis", log.url).option("subscribe", "s")
    running = made.option("endingOffsets", "latest").load().writeStream.format("noop")
    with pytest.raises(Exception, match="'endingOffsets': a stream has no end") as caught:
        running.trigger(availableNow=True).start().awaitTermination(60)
    assert "UnboundLocalError" not in str(caught.value)


def test_a_catalog_table_without_columns_is_rejected_with_a_remedy(spark: Any, log: Log) -> None:
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE t USING korvet OPTIONS (redis '{log.url}', subscribe 's')")


def test_a_table_of_a_catalog_is_read_and_written_with_the_options_of_each_query(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    fill(log, "s", "record", "dense")
    log.create("out", 1)
    options = f"redis = '{log.url}'"
    spark.sql(
        "CREATE TABLE kept (key binary, value binary) USING korvet "
        f"LOCATION 'file:{tmp_path / 'nothing'}'"
    )
    try:
        spark.sql(
            f"INSERT INTO kept WITH ({options}, topic = 'out') "
            f"SELECT * FROM kept WITH ({options}, subscribe = 's')"
        )
        made = spark.read.option("redis", log.url).option("subscribe", "out")
        assert made.table("kept").count() == 300
        with pytest.raises(Exception, match=r"SELECT . FROM t WITH"):
            spark.table("kept").count()
        with pytest.raises(Exception, match="INSERT INTO t WITH"):
            spark.sql(f"INSERT INTO kept WITH ({options}) VALUES (null, cast('a' AS binary))")
    finally:
        spark.sql("DROP TABLE kept")


def test_tasks_get_the_settings_of_catalogs(spark: Any, log: Log, tmp_path: Path) -> None:
    fill(log, "s", "record", "dense")
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}
    settings[".warehouse"] = str(tmp_path)
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.lake{name}", value)
    archived = frame(spark, log, subscribe="s", archive="lake.db.orders")
    with pytest.raises(Exception, match=f"no Iceberg table .*{tmp_path}/db/orders"):
        archived.collect()
    with pytest.raises(Exception, match="RDD"):
        archived.rdd.collect()


@layouts
def test_rows_are_written_once_although_tasks_fail_after_writing(
    spark: Any, log: Log, form: str, mode: str
) -> None:
    log.create("out", 3, form, mode)

    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 2:
            raise RuntimeError("this attempt dies when everything is appended")

    rows = spark.range(5000).selectExpr("cast(id % 97 as string) key", "cast(id as string) value")
    rows = rows.mapInArrow(failing, rows.schema)
    write = rows.write.format("korvet").mode("append").option("redis", log.url)
    write.option("topic", "out").save()
    found = [int(row["value"]) for row in read(log.url, subscribe="out", columns="value")]
    assert sorted(found) == list(range(5000))


def test_a_dataframe_that_was_read_can_be_written(spark: Any, log: Log) -> None:
    fill(log, "s", "batch", "time")
    log.create("copy", 2, "record", "dense")
    df = frame(spark, log, subscribe="s", includeHeaders="true").drop("topic")
    write = df.write.format("korvet").mode("append").option("redis", log.url)
    write.option("topic", "copy").option("includeTimestamp", "true").save()
    columns = "key,value,partition,timestamp"
    first, second = (read(log.url, subscribe=name, columns=columns) for name in ("s", "copy"))
    assert first == second


def test_available_now_reads_what_there_is_and_continues_from_there(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    fill(log, "s", "batch", "time")
    topic = log.create("t", 1, *LAYOUT, records=10)

    def run() -> list[int]:
        df = stream(spark, log, subscribePattern="s|t", startingOffsets="earliest")
        query = (
            df.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "check"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [int(progress.numInputRows) for progress in query.recentProgress]

    assert sum(run()) == 310
    log.append(topic, 0, plain(5))
    assert sum(run()) == 5
    assert sum(run()) == 0
    rows = spark.read.parquet(str(tmp_path / "out")).select("topic", "partition", "offset")
    found = sorted((row.topic, row.partition, row.offset) for row in rows.collect())
    assert found == sorted((t, p, r[0]) for (t, p), records in log.written.items() for r in records)
    offsets = (tmp_path / "check" / "offsets" / "0").read_text().splitlines()[-1]
    assert set(json.loads(offsets)) == {"s", "t", "/start"}


def test_a_running_stream_keeps_its_limit_and_reads_new_partitions(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.create("s", 1, "record", "time", records=95)
    query = (
        stream(spark, log, subscribe="s", startingOffsets="earliest", maxOffsetsPerTrigger=30)
        .writeStream.format("memory")
        .queryName("limited")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        seen(spark, query, 95)
        topic = log.grow(topic, 2)
        log.append(topic, 1, plain(3))
        seen(spark, query, 98)
        sizes = [int(p.numInputRows) for p in query.recentProgress if p.numInputRows]
        assert sizes == [30, 30, 30, 5, 3]
    finally:
        query.stop()


def seen(spark: Any, query: Any, count: int) -> None:
    """Wait up to a minute until the query's table has this many rows."""
    end = time.monotonic() + 60
    while (found := spark.table(query.name).count()) < count:
        assert query.isActive, query.exception()
        assert time.monotonic() < end, f"{found} of {count} rows"
    assert spark.table(query.name).count() == count


@layouts
def test_a_stream_from_topic_to_topic_is_exact_over_restarts(
    spark: Any, log: Log, form: str, mode: str, tmp_path: Path
) -> None:
    fill(log, "s", form, mode)
    log.create("copy", 2, form, mode)

    def run() -> None:
        query = (
            stream(spark, log, subscribe="s", startingOffsets="earliest")
            .select("key", "value")
            .writeStream.format("korvet")
            .option("redis", log.url)
            .option("topic", "copy")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_the_last_commit() -> None:
        """Delete the last commit, as if the driver had died before Spark wrote it."""
        newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (newest, newest.with_name(f".{newest.name}.crc")):
            path.unlink(missing_ok=True)

    run()
    forget_the_last_commit()
    log.append(log.topics["s"], 0, plain(7))
    run()  # the uncommitted batch runs again, alone
    run()
    forget_the_last_commit()
    run()
    first, second = (
        sorted(row["value"] for row in read(log.url, subscribe=name, columns="value"))
        for name in ("s", "copy")
    )
    assert len(first) == 307 and first == second


def test_a_table_joins_a_topic(spark: Any, log: Log) -> None:
    stock = log.create("stock", 2, table_enable="true")
    for number in range(2):
        for value in (b"old", b"new"):
            log.append(stock, number, [(0, 1000, b"k%d" % number, value, [])])
    fill(log, "s", "record", "dense")
    table = frame(spark, log, subscribe="stock", table="true")
    assert [tuple(row) for row in table.orderBy("key").collect()] == [
        (b"k0", b"new", "stock", 0),
        (b"k1", b"new", "stock", 1),
    ]
    rows = frame(spark, log, subscribe="s").join(table, "partition")
    assert rows.count() == 300


@pytest.fixture
def restricted(valkey_server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the user that the command has created on an empty Redis."""
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(PASSWORD.encode())))
    with valkey_server.client() as client:
        client.flushall()
        at = ("--redis", valkey_server.url)
        assert korvet(["redis-acl", "--apply", "--password-stdin", *at]) == 0
        yield valkey_server.url.replace("://", f"://korvet:{PASSWORD}@", 1)
        client.execute_command("ACL", "DELUSER", "korvet")


def test_spark_commands_and_a_broker_share_a_topic_under_the_user(
    spark: Any, restricted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url = restricted
    at = ("--redis", url)
    assert korvet(["topics", "create", "orders", "--partitions", "1", *at]) == 0
    rows = spark.createDataFrame([(b"k", b"of Spark")], "key binary, value binary")
    options = {"redisUrl": url, "topic": "orders"}
    rows.write.format("korvet").mode("append").options(**options).save()
    with Broker(redis=url) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = confluent_kafka.Producer(servers)
        producer.produce("orders", b"of Kafka")
        assert producer.flush(10) == 0
        del producer
    found = spark.read.format("korvet").option("redisUrl", url).option("subscribe", "orders").load()
    assert [bytes(row.value) for row in found.collect()] == [b"of Spark", b"of Kafka"]
    for command in (["topics", "describe", "orders"], ["groups", "list"], ["users", "list"]):
        assert korvet([*command, *at]) == 0, capfd.readouterr()
    assert korvet(["topics", "delete", "orders", *at]) == 0
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()
