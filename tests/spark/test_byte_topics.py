"""Check topics with offset.mode=bytes, read and written by Spark."""

from korvet.log.layouts import bytes as bytes_layout
from korvet.topics.table import Topic
from tests.legacy.wire import gzipped, message
from tests.spark.data_source_driver import read
from tests.spark.topic_log import Log
from tests.spark.write.test_writers import options, write


def old(log: Log, topic: Topic, data: bytes) -> None:
    """Append the message set of a Kafka 0.7 client."""
    limit = topic.policy.max_opened_bytes
    call = bytes_layout.append_set(topic, 0, data, limit)
    assert log.store.run(call).error == 0


def test_batches_and_message_sets_are_read_at_their_offsets(log: Log) -> None:
    topic = log.create("out", 1, mode="bytes")
    old(log, topic, message(b"one") + gzipped(b"two", b"three"))
    write(options(log), {"key": [b"k"], "value": [b"from Spark"]})
    old(log, topic, message(b"last"))
    rows = read(log.url, subscribe="out")
    packed, after = len(message(b"one")), len(message(b"one") + gzipped(b"two", b"three"))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, None, b"one"),
        (packed, None, b"two"),
        (packed + 1, None, b"three"),
        (after, b"k", b"from Spark"),
        (after + len(message(b"from Spark")), None, b"last"),
    ]
    assert [row["timestampType"] for row in rows] == [1, 1, 1, 0, 1]


def test_a_task_that_is_repeated_writes_nothing_twice(log: Log) -> None:
    topic = log.create("out", 1, mode="bytes")
    old(log, topic, message(b"one"))
    columns = {"value": [b"%d" % n for n in range(300)]}
    for _ in range(2):
        write(options(log), columns)
    values = [row["value"] for row in read(log.url, subscribe="out", columns="value")]
    assert values == [b"one", *columns["value"]]
