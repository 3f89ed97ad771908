"""Check the clients and tools of Kafka 0.8, and its first protocol versions byte for byte."""

import random
import struct
from collections.abc import Iterator

import pytest

from korvet.base.errors import ErrorCode
from korvet.wire import compression, message_sets
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from korvet.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from korvet.wire.schema import Message, decode, encode
from tests.interop.conftest import create_topic
from tests.interop.jvm import Jvm
from tests.interop.records import Record
from tests.legacy.clients import old08
from tests.legacy.conftest import LegacyBroker
from tests.legacy.modern import consumed, send
from tests.legacy.wire import Client, gzipped, message, produce
from tests.support.programs import Build
from tests.support.raw_client import batch

LAYOUTS = [("record", "dense"), ("batch", "time"), ("record", "time"), ("batch", "dense")]


def ask(client: Client, key: int, version: int, request: Message, answer: type[Message]) -> Message:
    """Send one request as an old client and return the response."""
    body = struct.pack(">hhih", key, version, 7, -1) + encode(request, version)
    client.send(struct.pack(">i", len(body)) + body)
    return decode(answer, client.receive(), version, 4)


def produced(client: Client, topic: str, data: bytes, version: int = 0) -> tuple[int, int]:
    """Produce a message set, or from version 3 a record batch. Returns error and offset."""
    request = ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=data)]
            )
        ],
    )
    answer = ask(client, 0, version, request, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    (row,) = answer.responses[0].partition_responses
    return row.error_code, row.base_offset


def fetched(
    client: Client,
    topic: str,
    offset: int,
    most: int,
    *,
    version: int = 0,
    replica_id: int = -1,
    wait_ms: int = 0,
) -> bytes:
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=most)
                ],
            )
        ],
    )
    answer = ask(client, 1, version, request, FetchResponse)
    assert isinstance(answer, FetchResponse)
    (row,) = answer.responses[0].partitions
    assert row.error_code == 0
    assert row.records is not None
    return bytes(row.records)  # type: ignore[arg-type]


def values(data: bytes) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of each whole message of an uncompressed message set."""
    found, at = [], 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        if at + 12 + size > len(data):
            break
        ((_, _, _, value, _),) = message_sets.parse(data[at : at + 12 + size], limit=1 << 20)
        found.append((offset, value))
        at += 12 + size
    return found


def old_set(count: int, codec: int = 0, magic: int = 0) -> bytes:
    rows = [(n, 5, None, b"value %d" % n, []) for n in range(count)]
    return bytes(message_sets.build(rows, magic=magic, codec=codec))


@pytest.fixture
def old(broker: LegacyBroker) -> Iterator[Client]:
    """A connection of a Kafka 0.8 client to the main port."""
    with Client(broker.address) as connected:
        yield connected


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_inner_messages_are_counted_and_get_offsets_in_a_row(
    broker: LegacyBroker, old: Client, form: str, mode: str, codec: int
) -> None:
    topic = create_topic(broker.address, storage_format=form, offset_mode=mode)
    error, base = produced(old, topic, old_set(5, codec))
    assert error == 0
    assert produced(old, topic, old_set(2)) == (0, base + 5) or mode == "time"
    rows = values(fetched(old, topic, base, 1 << 20))
    assert [value for _, value in rows[:5]] == [b"value %d" % n for n in range(5)]
    assert [offset for offset, _ in rows[:5]] == list(range(base, base + 5))
    assert len(rows) == 7


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("form", "mode"), LAYOUTS[:2])
@pytest.mark.parametrize("most", [0, 1, 11, 12, 50, 333, 1000, 4000])
def test_a_fetch_never_returns_more_than_the_maximal_bytes(
    broker: LegacyBroker, old: Client, form: str, mode: str, version: int, most: int
) -> None:
    topic = create_topic(broker.address, storage_format=form, offset_mode=mode)
    sent = [b"%03d" % n * 20 for n in range(40)]
    # Exactly one batch, not split by a producer: of several, a fetch returns those that fit.
    error, base = produced(old, topic, batch(sent, compression.LZ4), version=3)
    assert error == 0
    whole = fetched(old, topic, base, 1 << 20, version=version)
    assert [value for _, value in values(whole)] == sent
    found = fetched(old, topic, base, most, version=version)
    assert len(found) <= most and whole.startswith(found)
    one = len(whole) // len(sent)
    assert len(values(found)) >= min(1, most // one)
    if form == "batch" or most < one:
        assert found == whole[:most]  # in record format it may be less, never more


def test_records_before_the_offset_are_not_sent(broker: LegacyBroker, old: Client) -> None:
    topic = create_topic(broker.address, storage_format="batch", offset_mode="dense")
    send(broker.address, topic, [Record(None, b"%d" % n) for n in range(10)])
    assert values(fetched(old, topic, 7, 1 << 20)) == [(7, b"7"), (8, b"8"), (9, b"9")]


def test_one_compressed_message_fits_the_maximal_bytes(broker: LegacyBroker, old: Client) -> None:
    topic = create_topic(broker.address, offset_mode="dense", compression_type="gzip")
    dice = random.Random(1)
    sent = [Record(None, dice.randbytes(200)) for _ in range(100)]
    send(broker.address, topic, sent)
    offset, found = 0, []
    while offset < 100:
        data = fetched(old, topic, offset, 3000)
        assert len(data) <= 3000
        rows = message_sets.parse(data, limit=1 << 20)
        found += [row[3] for row in rows]
        offset = struct.unpack_from(">q", data)[0] + 1
    assert found == [record.value for record in sent]


def test_a_long_poll_ends_with_the_message_it_waits_for(broker: LegacyBroker, old: Client) -> None:
    topic = create_topic(broker.address, offset_mode="dense")
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=20_000,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=999)],
            )
        ],
    )
    body = struct.pack(">hhih", 1, 0, 7, -1) + encode(request, 0)
    old.send(struct.pack(">i", len(body)) + body)
    with Client(broker.address) as other:
        assert produced(other, topic, old_set(1)) == (0, 0)
    answer = decode(FetchResponse, old.receive(), 0, 4)
    (row,) = answer.responses[0].partitions
    assert values(bytes(row.records or b"")) == [(0, b"value 0")]  # type: ignore[arg-type]


def test_a_replica_is_answered_as_a_consumer_and_named_in_the_log(
    broker: LegacyBroker, old: Client
) -> None:
    topic = create_topic(broker.address, offset_mode="dense")
    produced(old, topic, old_set(1))
    before = broker.log.count("replica_id=4711")
    for _ in range(2):
        assert values(fetched(old, topic, 0, 999, replica_id=4711)) == [(0, b"value 0")]
    assert broker.log.count("replica_id=4711") == max(before, 1)


def test_metadata_creates_a_topic_and_has_no_leader_yet(
    broker: LegacyBroker, old: Client, topic: str
) -> None:
    def asked() -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"{topic}-auto")])
        answer = ask(old, 3, 0, request, MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        return answer.topics[0].error_code

    assert [asked(), asked()] == [ErrorCode.LEADER_NOT_AVAILABLE, 0]


def test_a_topic_of_byte_positions_is_read_by_all_three_generations(
    broker: LegacyBroker, client: Client, old: Client, topic: str
) -> None:
    client.send(produce(topic, message(b"0.7") + gzipped(b"a", b"b")))
    assert client.fetch(topic, 0)[0] == 0
    assert produced(old, topic, old_set(2))[0] == 0
    send(broker.address, topic, [Record(b"k", b"today")])
    expected = [b"0.7", b"a", b"b", b"value 0", b"value 1", b"today"]
    rows = values(fetched(old, topic, 0, 1 << 20))
    assert [value for _, value in rows] == expected
    now = consumed(broker.address, topic, 6)
    assert [(row.offset(), row.value()) for row in now] == rows


@pytest.fixture(scope="session")
def newer(build: Build) -> Jvm:
    """Kafka 0.8.2: 0.8.0 does not have the new producer."""
    return old08(build, "0.8.2.2")


def tool(kafka: Jvm, name: str) -> str:
    """Return the class of a console tool. Kafka 0.8.2 moved them."""
    moved = "kafka-clients" in kafka.classpath
    return f"kafka.tools.{name}" if moved or "Producer" not in name else f"kafka.producer.{name}"


def shell(kafka: Jvm, broker: LegacyBroker, topic: str) -> list[str]:
    """Read the partition from the beginning with the SimpleConsumer of Kafka 0.8."""
    out = kafka.run(
        "kafka.tools.SimpleConsumerShell",
        "--broker-list",
        broker.address,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "-2",
        "--no-wait-at-logend",
    )
    return [line for line in out.splitlines() if line and not line.startswith(("Termin", "log4j"))]


def test_the_console_producer_and_the_simple_consumer_of_0_8(
    kafka: Jvm, broker: LegacyBroker
) -> None:
    topic = create_topic(broker.address, storage_format="batch", offset_mode="dense")
    words = (tool(kafka, "ConsoleProducer"), "--broker-list", broker.address, "--topic", topic)
    kafka.run(*words, "--sync", "--request-required-acks", "1", stdin="one\ntwo\n")
    codec = (
        ["--compression-codec", "gzip"] if "kafka-clients" in kafka.classpath else ["--compress"]
    )
    kafka.run(*words, *codec, stdin="three\nfour\nfive\n")
    expected = ["one", "two", "three", "four", "five"]
    assert [row.value().decode() for row in consumed(broker.address, topic, 5)] == expected
    send(broker.address, topic, [Record(b"key", b"six", (("h", b"1"),))])
    assert shell(kafka, broker, topic) == [*expected, "six"]


def test_the_offset_tool_of_0_8(kafka: Jvm, broker: LegacyBroker) -> None:
    topic = create_topic(broker.address, offset_mode="dense")
    send(broker.address, topic, [Record(None, b"x")] * 3)
    words = ("kafka.tools.GetOffsetShell", "--broker-list", broker.address, "--topic", topic)
    assert f"{topic}:0:3" in kafka.run(*words, "--time", "-1")
    assert f"{topic}:0:0" in kafka.run(*words, "--time", "-2")


def test_the_first_new_producer(newer: Jvm, broker: LegacyBroker) -> None:
    topic = create_topic(broker.address, offset_mode="dense")
    words = ("kafka.tools.ConsoleProducer", "--new-producer", "--broker-list", broker.address)
    newer.run(*words, "--topic", topic, "--compression-codec", "snappy", stdin="a\nb\n")
    assert [row.value() for row in consumed(broker.address, topic, 2)] == [b"a", b"b"]
