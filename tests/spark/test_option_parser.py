"""Check that options are honoured or rejected by name, never ignored."""

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import _parse_datatype_json_string

from korvet.spark.columns import spark_json
from korvet.spark.data_source import KorvetDataSource
from korvet.spark.errors import InvalidOption
from korvet.spark.option_parser import parse_read, parse_write
from korvet.spark.options import EARLIEST, LATEST
from tests.spark.data_source_driver import schema_of, source

HERE = {"redis": "redis://localhost:6379"}
READ = {**HERE, "subscribe": "orders"}
WRITE = {**HERE, "topic": "orders"}

REFUSED = [
    ("kafka.bootstrap.servers", "localhost:9092", "set 'redis' to the Redis URL"),
    ("kafka.security.protocol", "SASL_SSL", "configures a Kafka client"),
    ("groupIdPrefix", "mine", "no consumer group"),
    ("kafka.group.id", "mine", "no consumer group"),
    ("minOffsetsPerTrigger", "10", "no trigger"),
    ("maxTriggerDelay", "10m", "no trigger"),
    ("kafkaConsumer.pollTimeoutMs", "10", "no Kafka consumer"),
    ("fetchOffset.numRetries", "3", "Remove it"),
    ("fetchOffset.retryIntervalMs", "3", "Remove it"),
    ("path", "orders", "subscribe"),
    ("startingOfsets", "earliest", "unknown"),
    ("topic", "orders", "is for a write; this is a read"),
    ("subscribe", ",", "names no topic"),
    ("subscribePattern", "o.*", "subscribe and subscribePattern"),
    ("startingOffsets", "latest", "cannot start at 'latest'"),
    ("endingOffsets", "earliest", "cannot end at 'earliest'"),
    ("startingOffsets", '{"orders": {"0": -1}}', "orders-0 cannot start at -1"),
    ("startingOffsets", '{"orders": {"0": 7, "1": -3}}', "-3 of orders-1 is not a valid offset"),
    ("endingOffsets", '{"orders": {"0": 9, "1": -2}}', "orders-1 cannot end at -2"),
    ("archiveFormat", "delta", "which is not set"),
    ("startingOffsets", "{", "expects JSON"),
    ("startingOffsets", '{"orders": {"zero": 1}}', "expects JSON"),
    ("startingOffsets", '{"orders": [1]}', "expects JSON"),
    ("startingOffsets", '{"orders": {"1_0": 1}}', "'1_0' is not a whole number"),
    ("startingOffsets", '{"orders": {"0": "1_0"}}', "'1_0' is not a whole number"),
    ("columns", "key,timestamptyp", "timestamp, timestampType"),
    ("namespace", "", "is set but empty"),
    ("archive", " ", "is set but empty"),
    ("startingTimestamp", "yesterday", "milliseconds"),
    ("startingOffsetsByTimestamp", "7", "expects JSON"),
    ("startingOffsetsByTimestampStrategy", "nearest", "must be one of error, latest"),
    ("minPartitions", "0", "above 0"),
    ("minPartitions", "many", "above 0"),
    ("maxRecordsPerPartition", "-1", "above 0"),
    ("maxBytesPerPartition", "big", "a size"),
    ("maxOffsetsPerTrigger", "10", "no trigger"),
    ("failOnDataLoss", "perhaps", "true, false"),
    ("includeHeaders", "yes", "true, false"),
    ("columns", "key,valu", "valu"),
    ("columns", " ", "columns are"),
    ("isolation", "serializable", "read_committed"),
    ("kafka.isolation.level", "serializable", "read_committed"),
    ("redis", "localhost:6379", "redis://HOST:PORT"),
    ("redis", "redis+sentinel://localhost:6379", "master's name"),
    ("pushFilters", "yes", "true, false"),
    ("table", "yes", "true, false"),
]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_a_read_option_that_cannot_be_honoured_is_rejected_by_name(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_read({**READ, name: value}, streaming=False)
    assert words in str(caught.value)
    assert name in str(caught.value) or name == "subscribePattern"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kafka.acks", "0", "exactly once"),
        ("kafka.enable.idempotence", "false", "always"),
        ("compression", "brotli", "must be one of"),
        ("kafka.linger.ms", "5", "configures a Kafka client"),
        ("kafka.compression.type", "brotli", "must be one of"),
        ("subscribe", "orders", "is for a read; this is a write"),
        ("writeId", "", "is set but empty"),
        ("namespace", " ", "is set but empty"),
    ],
)
def test_a_write_option_that_cannot_be_honoured_is_rejected_by_name(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_write({**WRITE, name: value}, streaming=False)
    assert name in str(caught.value) and words in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name}.*no end"):
        parse_read({**READ, name: "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay.*minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay.*15m"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5 is more than .* 4"),
    ],
)
def test_contradictory_trigger_limits_are_rejected(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        parse_read({**READ, **given}, streaming=True)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("7", 7),
        ("250ms", 250),
        ("10s", 10_000),
        ("15 m", 900_000),
        ("2min", 120_000),
        ("1H", 3_600_000),
    ],
)
def test_a_duration_has_sparks_units(text: str, milliseconds: int) -> None:
    given = {**READ, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert parse_read(given, streaming=True).trigger_delay_ms == milliseconds


def test_a_batch_starts_at_earliest_and_a_stream_at_latest() -> None:
    batch, stream = (parse_read(READ, streaming=streaming) for streaming in (False, True))
    assert (batch.start.every_partition, batch.end.every_partition) == (EARLIEST, LATEST)
    assert stream.start.every_partition == LATEST
    assert batch.fail_on_data_loss and batch.committed_only


def test_a_column_named_twice_is_read_once() -> None:
    assert parse_read({**READ, "columns": "Offset,key,offset"}, streaming=False).names == (
        "offset",
        "key",
    )
    schema = _parse_datatype_json_string(spark_json(("offset", "key", "offset")))
    made = KorvetDataSource(READ)
    for make in (made.reader, lambda schema: made.streamReader(schema).initialOffset()):
        with pytest.raises(InvalidOption, match="a column is named twice"):
            make(schema)


def test_letter_case_does_not_count() -> None:
    options = parse_read(
        {
            "REDIS": HERE["redis"],
            "Subscribe": "b,a,b",
            "MinPartitions": "3",
            "FAILONDATALOSS": " False ",
        },
        streaming=False,
    )
    assert options.selection.topics == ("b", "a") and options.min_partitions == 3
    assert not options.fail_on_data_loss


def test_redis_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)
    with pytest.raises(InvalidOption, match="KORVET_REDIS_URL"):
        parse_read({"subscribe": "orders"}, streaming=False)
    monkeypatch.setenv("KORVET_REDIS_URL", "redis://elsewhere:1")
    options = parse_read({"subscribe": "orders", "namespace": "mine"}, streaming=False)
    connection = options.connection
    assert (connection.redis, connection.namespace) == ("redis://elsewhere:1", "mine")


@pytest.mark.parametrize("option", ["redisUrl", "redisurl", "REDISURL"])
def test_a_url_with_credentials_is_taken_only_where_spark_hides_it(option: str) -> None:
    url = "redis://bob:hunter2@localhost:6379"
    options = parse_read({"subscribe": "orders", option: url}, streaming=False)
    assert options.connection.redis == url
    written = parse_write({"topic": "orders", option: url}, streaming=True)
    assert written.connection.redis == url
    for shown in (url, "redis://:hunter2@h", "redis+sentinel://h/m?sentinel_password=hunter2"):
        with pytest.raises(InvalidOption, match="'redisUrl', which Spark hides") as caught:
            parse_read({"subscribe": "orders", "redis": shown}, streaming=False)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidOption, match="Set one of them"):
        parse_read({**READ, option: url}, streaming=False)


@pytest.mark.parametrize("option", ["archive", "namespace", "subscribe", "kafka.broker", "other"])
def test_no_option_that_spark_shows_may_have_a_password(option: str) -> None:
    with pytest.raises(InvalidOption, match="which Spark would show in plans") as caught:
        parse_read({**READ, option: "s3://key:hunter2@bucket/table"}, streaming=False)
    assert "hunter2" not in str(caught.value)


def test_an_address_with_a_container_has_no_password() -> None:
    place = "abfss://container@account.dfs.core.windows.net/checkpoint"
    assert parse_write(
        {"topic": "t", "redis": "redis://h", "checkpointLocation": place}, streaming=True
    )


def test_a_selection_of_topics_is_required() -> None:
    with pytest.raises(InvalidOption, match=r"which topics\?$"):
        parse_read(HERE, streaming=False)


def test_missing_options_are_explained_for_catalog_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)
    with pytest.raises(InvalidOption, match=r"'redis'.*SELECT . FROM t WITH"):
        parse_read({}, streaming=False)
    monkeypatch.setenv("KORVET_REDIS_URL", HERE["redis"])
    with pytest.raises(InvalidOption, match=r"'subscribe'.*SELECT . FROM t WITH"):
        parse_read({}, streaming=False)


def test_a_table_without_columns_is_rejected_whichever_property_comes_first() -> None:
    with pytest.raises(InvalidOption, match="name the table's columns") as caught:
        parse_read({"owner": "somebody", **READ, "provider": "korvet"}, streaming=False)
    assert "CREATE TEMPORARY VIEW" in str(caught.value)


def test_overwrite_modes_are_rejected() -> None:
    made = source(HERE["redis"], topic="orders")
    with pytest.raises(InvalidOption, match="append"):
        made.writer(None, overwrite=True)
    with pytest.raises(InvalidOption, match="append"):
        made.streamWriter(None, overwrite=True)


def test_a_query_for_either_kind_of_read_has_a_schema() -> None:
    made = source(HERE["redis"], subscribe="orders", minOffsetsPerTrigger=5, maxTriggerDelay="1s")
    assert made.schema().startswith("key binary, value binary, topic string")
    latest = source(HERE["redis"], subscribe="orders", startingOffsets="latest", columns="value")
    assert latest.schema() == "value binary"


def test_a_schema_with_not_null_columns_is_rejected() -> None:
    made = source(HERE["redis"], subscribe="orders")
    schema = schema_of(made)
    schema["offset"].nullable = False
    with pytest.raises(InvalidOption, match="column offset is nullable: remove NOT NULL"):
        made.reader(schema)


def test_a_rejected_stream_raises_its_error_on_every_call() -> None:
    made = source(HERE["redis"], subscribe="orders", endingOffsets="latest")
    reader = made.streamReader(schema_of(made))
    for ask in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: list(reader.read(InputPartition(0))),
    ):
        with pytest.raises(InvalidOption, match="a stream has no end"):
            ask()


EACH = '{"orders": {"0": 5}}'
KAFKA_SOURCE = {
    "assign": '{"orders": [0]}',
    "subscribe": "others",
    "subscribePattern": "o.*",
    "startingOffsets": EACH,
    "startingOffsetsByTimestamp": EACH,
    "startingOffsetsByTimestampStrategy": "latest",
    "startingTimestamp": "5",
    "endingOffsets": EACH,
    "endingOffsetsByTimestamp": EACH,
    "endingTimestamp": "5",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "maxOffsetsPerTrigger": "5",
    "maxRecordsPerPartition": "5",
    "maxTriggerDelay": "5m",
    "minOffsetsPerTrigger": "5",
    "minPartitions": "5",
    "fetchOffset.numRetries": "5",
    "fetchOffset.retryIntervalMs": "5",
    "groupIdPrefix": "mine",
    "kafkaConsumer.pollTimeoutMs": "5",
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "mine",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.max.poll.records": "5",
}


@pytest.mark.parametrize("name", KAFKA_SOURCE)
def test_every_option_of_sparks_kafka_source_is_honoured_or_rejected_by_name(name: str) -> None:
    streaming = not name.startswith("ending")
    plain = dict(READ)
    if name.endswith("Strategy"):
        plain["startingTimestamp"] = "5"
    if name == "maxTriggerDelay":
        plain["minOffsetsPerTrigger"] = "5"
    given = HERE if name in ("assign", "subscribe", "subscribePattern") else plain
    try:
        found = parse_read({**given, name: KAFKA_SOURCE[name]}, streaming=streaming)
    except InvalidOption as refused:
        assert name in str(refused) and "unknown" not in str(refused)
    else:
        assert found != parse_read(plain, streaming=streaming)


def test_reads_are_committed_unless_an_isolation_option_is_set() -> None:
    def committed(**options: str) -> bool:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return parse_read({**READ, **named}, streaming=False).committed_only

    assert committed() and committed(isolation="read_committed")
    assert committed(isolation="READ_COMMITTED", kafka__isolation__level="read_committed")
    assert not committed(isolation="read_uncommitted")
    assert not committed(kafka__isolation__level="read_uncommitted")
    with pytest.raises(InvalidOption, match="has another level"):
        committed(isolation="read_committed", kafka__isolation__level="read_uncommitted")


@pytest.mark.parametrize(
    ("name", "value"),
    [("startingOffsets", "earliest"), ("columns", "key,offset"), ("archive", "/a")],
)
def test_a_read_of_a_table_takes_no_offsets(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        parse_read({**READ, "table": "true", name: value}, streaming=False)


def test_a_stream_of_a_table_is_rejected() -> None:
    with pytest.raises(InvalidOption, match="table"):
        parse_read({**READ, "table": "true"}, streaming=True)
