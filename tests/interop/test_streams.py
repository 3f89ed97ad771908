"""Check Kafka Streams while Korvet is killed, and the topics that Streams and Connect create.

KORVET_SEEDS is the number of orders of kills, the application's among them, with either guarantee.
Without it there is one order, in which only the broker is killed.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.interop import librdkafka
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Jvm
from tests.interop.librdkafka import eventually
from tests.interop.test_exactly_once import HURRIED, SEEDS, VICTIMS, Application, die
from tests.interop.test_transactions import COMMITTED, write

pytestmark = [pytest.mark.korvet_only, pytest.mark.slow]

GUARANTEES = ["exactly_once_v2"] if HURRIED else ["exactly_once_v2", "at_least_once"]
DEATHS = ["broker"] if HURRIED else VICTIMS
PROTOCOLS = ["classic", "streams"]
"""With `streams` the broker assigns the tasks and creates the internal topics (KIP-1071)."""
LINES = 200
PATIENCE_S = 150.0
MEMORY = (
    "dsl.store.suppliers.class="
    "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
)
"""The RocksDB store needs a native library of 70 MB; its changelog is the same."""


class Counts:
    """The output counts by word, and how often a count did not grow."""

    def __init__(self, address: str, topic: str) -> None:
        self.by_word: dict[str, int] = {}
        self.steps_back = 0
        self._source: Consumer = librdkafka.consumer(
            address, isolation_level=COMMITTED, reconnect_backoff_max_ms=100
        )
        librdkafka.assign(
            self._source, [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(2)]
        )

    def read(self) -> "Counts":
        """Read the counts that arrived since the last call."""
        for message in self._source.consume(500, timeout=0.2):
            if not message.error():
                word, count = message.key().decode(), int(message.value())
                self.steps_back += count <= self.by_word.get(word, 0)
                self.by_word[word] = count
        return self

    def close(self) -> None:
        """Close the consumer."""
        self._source.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_streams_counts_words_despite_kills(
    tmp_path: Path, java_tools: Jvm, guarantee: str, protocol: str, seed: int
) -> None:
    random = Random(seed)
    layout = {"storage.format": random.choice(["record", "batch"])}
    mode = {"offset.mode": random.choice(["time", "dense"])}
    broker = Broker(tmp_path, layout | mode)
    broker.start()
    address = broker.address
    origin, result = create_topic(address, partitions=2), create_topic(address, partitions=2)
    words = [address, topic_name("words"), origin, result, str(tmp_path / "state")]
    settings = ["auto.offset.reset=earliest", f"processing.guarantee={guarantee}", MEMORY]
    settings.append(f"group.protocol={protocol}")
    application = Application(
        java_tools.words("WordCount", *words, *settings), tmp_path / "application.log"
    )
    counts, writer = Counts(address, result), librdkafka.producer(address)
    model: Counter[str] = Counter()

    def has_counted(total: int) -> bool:
        application.keep_alive()
        return sum(counts.read().by_word.values()) >= total

    try:
        for life in range(len(DEATHS) + 1):
            lines = [" ".join(random.choices("abcdefghijklmnop", k=5)) for _ in range(LINES)]
            before = sum(model.values())
            for line in lines:
                model.update(line.split())
            write(writer, origin, lines, 2)
            if life < len(DEATHS):
                eventually(lambda before=before: has_counted(before + 1), PATIENCE_S)  # type: ignore[misc]
                die(random.choice(DEATHS), application, broker)
        eventually(lambda: has_counted(sum(model.values())), PATIENCE_S)
        if guarantee == "exactly_once_v2":
            assert counts.by_word == model
            assert counts.steps_back == 0
        else:
            assert all(counts.by_word[word] >= count for word, count in model.items())
    finally:
        application.kill()
        counts.close()
        broker.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_second_instance_of_streams_gets_its_share_at_once(
    tmp_path: Path, default_broker: Broker, java_tools: Jvm, protocol: str
) -> None:
    address = default_broker.address
    origin, result = create_topic(address, partitions=2), create_topic(address, partitions=2)
    settings = ["auto.offset.reset=earliest", "commit.interval.ms=100", MEMORY]
    settings.append(f"group.protocol={protocol}")
    words = [address, topic_name("words"), origin, result]
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    instances = [
        Application(java_tools.words("WordCount", *words, str(log.with_suffix("")), *settings), log)
        for log in logs
    ]
    counts, writer = Counts(address, result), librdkafka.producer(address)
    try:
        instances[0].keep_alive()
        write(writer, origin, ["a b c d e f g h"] * 50, 2)
        eventually(lambda: sum(counts.read().by_word.values()) == 400, PATIENCE_S)
        instances[1].keep_alive()
        # Streams would make it wait for the next probing rebalance, after ten minutes.
        eventually(lambda: all("counting 1\n" in log.read_text() for log in logs), PATIENCE_S)
    finally:
        for instance in instances:
            instance.kill()
        counts.close()


DAY_MS = "86400000"
CLIENT_TOPICS = {
    "connect-configs": (1, 3, {"cleanup.policy": "compact"}),
    "connect-offsets": (25, 3, {"cleanup.policy": "compact"}),
    "connect-status": (5, -1, {"cleanup.policy": "compact"}),
    "repartition": (
        4,
        -1,
        {
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            "retention.ms": "-1",
            "segment.bytes": "52428800",
        },
    ),
    "changelog": (4, -1, {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}),
    "windowed-changelog": (
        4,
        -1,
        {
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "CreateTime",
            "retention.ms": DAY_MS,
        },
    ),
    "versioned-changelog": (
        4,
        -1,
        {
            "cleanup.policy": "compact",
            "message.timestamp.type": "CreateTime",
            "min.compaction.lag.ms": DAY_MS,
        },
    ),
}
"""Partitions, replicas and configs that Connect and Streams request."""


@pytest.mark.parametrize("kind", CLIENT_TOPICS)
def test_topics_of_connect_and_streams_are_made_as_asked(default_broker: Broker, kind: str) -> None:
    partitions, replicas, configs = CLIENT_TOPICS[kind]
    admin = AdminClient({"bootstrap.servers": default_broker.address})
    name = topic_name(kind)
    made = admin.create_topics([NewTopic(name, partitions, replicas, config=configs)])
    made[name].result(60)
    assert len(admin.list_topics(name, 15).topics[name].partitions) == partitions
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    described = admin.describe_configs([resource])[resource].result(60)
    assert {key: described[key].value for key in configs} == configs
    writer = librdkafka.producer(default_broker.address)
    writer.produce(name, b"value", key=b"key", partition=partitions - 1)
    assert writer.flush(60) == 0
    (message,) = librdkafka.read(default_broker.address, name, 1, partition=partitions - 1)
    assert (message.key(), message.value()) == (b"key", b"value")
