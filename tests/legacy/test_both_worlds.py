"""Check a topic with offset.mode=bytes that Kafka 0.7 and current clients write and read."""

import random

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.interop.records import Record
from tests.legacy import wire
from tests.legacy.conftest import LegacyBroker
from tests.legacy.modern import QUICK, consumed, send
from tests.legacy.wire import LATEST, Client, gzipped, message, produce


def old_payloads(client: Client, topic: str) -> list[bytes]:
    """Fetch all records as a client of Kafka 0.7, decompressed."""
    import gzip

    (end,) = client.offsets(topic, LATEST, 1)
    found: list[bytes] = []
    offset = 0
    while offset < end:
        error, data = client.fetch(topic, offset, 700)
        whole = wire.messages(data)
        if not whole:
            error, data = client.fetch(topic, offset, 1 << 20)
            whole = wire.messages(data)[:1]
        assert error == 0 and whole
        for codec, body in whole:
            found += [body] if codec == 0 else wire.payloads(gzip.decompress(body))
        offset += wire.size_of(data, len(whole))
    assert offset == end
    return found


def test_a_modern_consumer_gets_every_record_inside_its_message(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    first, packed, last = message(b"first"), gzipped(b"a", b"b", b"c"), message(b"last")
    client.send(produce(topic, first + packed) + produce(topic, last))
    client.fetch(topic, 0)
    found = consumed(broker.address, topic, 5)
    at = len(first)
    assert [(row.offset(), row.value()) for row in found] == [
        (0, b"first"),
        (at, b"a"),
        (at + 1, b"b"),
        (at + 2, b"c"),
        (at + len(packed), b"last"),
    ]
    assert all(row.key() is None and row.headers() is None for row in found)


@pytest.mark.parametrize("offset", range(0, 60))
def test_a_fetch_from_any_offset_returns_the_next_record(
    broker: LegacyBroker, client: Client, offset: int, topic: str
) -> None:
    log = message(b"0") + gzipped(b"1", b"2") + message(b"3") + message(b"4")
    client.send(produce(topic, log))
    client.fetch(topic, 0)
    all_of_them = [(row.offset(), row.value()) for row in consumed(broker.address, topic, 5)]
    rest = [row for row in all_of_them if row[0] >= offset]
    found = consumed(broker.address, topic, len(rest), offset)
    assert [(row.offset(), row.value()) for row in found] == rest


def test_what_a_modern_producer_writes_is_uncompressed_messages(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    client.send(produce(topic, message(b"old")))
    client.fetch(topic, 0)
    sent = [
        Record(b"key", b"with a key", (("h", b"1"), ("n", None))),
        Record(b"tombstone", None),
        Record(None, b""),
        Record(None, b"long" * 1000),
    ]
    offsets = send(broker.address, topic, sent, **{"compression.type": "zstd"})
    assert offsets[0] == len(message(b"old"))
    error, data = client.fetch(topic, offsets[0])
    assert (error, data) == (0, b"".join(message(row.value or b"") for row in sent))
    found = consumed(broker.address, topic, 5)[1:]
    assert [(row.key(), row.value(), row.headers()) for row in found] == [
        (row.key, row.value, list(row.headers) or None) for row in sent
    ]
    assert [row.offset() for row in found] == [
        offsets[0] + sum(len(message(row.value or b"")) for row in sent[:n]) for n in range(4)
    ]


def test_a_producer_that_repeats_itself_is_stored_once(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    client.send(produce(topic, message(b"old")))
    client.fetch(topic, 0)
    values = [b"%05d" % n for n in range(3000)]
    options = {"enable.idempotence": True, "batch.num.messages": 100}
    send(broker.address, topic, [Record(None, value) for value in values], **options)
    assert old_payloads(client, topic) == [b"old", *values]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_old_and_new_producers_alternate_and_all_consumers_agree(
    broker: LegacyBroker, client: Client, topic: str, codec: str
) -> None:
    dice = random.Random(codec)
    expected: list[bytes] = []
    for turn in range(12):
        values = [dice.randbytes(dice.randrange(200)) for _ in range(dice.randrange(1, 20))]
        expected += values
        if turn % 3 == 0:
            client.send(produce(topic, b"".join(map(message, values))))
            client.fetch(topic, 0, 0)
        elif turn % 3 == 1:
            client.send(produce(topic, gzipped(*values)))
            client.fetch(topic, 0, 0)
        else:
            records = [Record(b"k", value) for value in values]
            send(broker.address, topic, records, **{"compression.type": codec})
    assert old_payloads(client, topic) == expected
    assert [row.value() for row in consumed(broker.address, topic, len(expected))] == expected


def test_a_consumer_resumes_at_its_committed_offset(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    client.send(produce(topic, message(b"one") + gzipped(b"two", b"three")))
    client.fetch(topic, 0)
    seen = []
    for _ in range(3):
        source = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": f"group-{topic}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **QUICK,
            }
        )
        source.subscribe([topic])
        row = source.poll(15)
        assert row is not None and row.error() is None
        seen.append(row.value())
        source.commit(row, asynchronous=False)
        source.close()
    assert seen == [b"one", b"two", b"three"]


def test_offsets_begin_and_end_alike_for_both(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    client.send(produce(topic, message(b"one") + message(b"two")))
    end = client.offsets(topic, LATEST, 1)[0]
    admin = AdminClient({"bootstrap.servers": broker.address})
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), end)):
        place = TopicPartition(topic, 0)
        assert admin.list_offsets({place: spec})[place].result(60).offset == offset


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_topic_of_other_offsets_is_a_wrong_partition(
    broker: LegacyBroker, client: Client, topic: str, mode: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = NewTopic(topic, 1, 1, config={"offset.mode": mode})
    admin.create_topics([new])[topic].result(60)
    assert client.fetch(topic, 0) == (3, b"")
    client.send(produce(topic, message(b"lost")))
    assert client.ask(wire.offsets(topic, LATEST)) == (3, bytes(4))
    assert f"has offset.mode={mode}: Kafka 0.7 clients need offset.mode=bytes" in broker.log


def test_a_topic_of_bytes_can_be_created_by_a_current_client(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = NewTopic(topic, 3, 1, config={"offset.mode": "bytes"})
    admin.create_topics([new])[topic].result(60)
    client.send(produce(topic, message(b"two"), 2))
    assert client.fetch(topic, 0, partition=2) == (0, message(b"two"))
    assert client.fetch(topic, 0, partition=1) == (0, b"")
    assert client.fetch(topic, 0, partition=3) == (3, b"")


def test_a_deleted_topic_begins_anew(broker: LegacyBroker, client: Client, topic: str) -> None:
    client.send(produce(topic, message(b"before")))
    assert client.fetch(topic, 0) == (0, message(b"before"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic])[topic].result(60)
    client.send(produce(topic, message(b"after")))
    assert client.fetch(topic, 0) == (0, message(b"after"))


def test_records_before_a_deletion_are_out_of_range(
    broker: LegacyBroker, client: Client, topic: str
) -> None:
    sets = [message(b"%d" % n * 100) for n in range(5)]
    for one in sets:
        client.send(produce(topic, one))
    client.fetch(topic, 0)
    admin = AdminClient({"bootstrap.servers": broker.address})
    keep = 2 * len(sets[0])
    admin.delete_records([TopicPartition(topic, 0, keep)])[TopicPartition(topic, 0, keep)].result(
        10
    )
    assert client.fetch(topic, 0) == (1, b"")
    assert client.fetch(topic, keep) == (0, b"".join(sets[2:]))
    assert client.offsets(topic, -2) == [keep]
