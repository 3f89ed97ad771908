"""Check that no record is lost if broker and Redis are killed while segments are written."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import librdkafka
from tests.interop.brokers import EXTERNAL, Broker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(EXTERNAL), reason="of Korvet's embedded server"),
]
FORMS = ("record", "batch")
KILLS = 6
CONFIGS = {
    "offset.mode": "dense",
    "segment.bytes": "300000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}


class Writer:
    """An idempotent producer to both topics, which records what is acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[str, dict[int, bytes]] = {form: {} for form in FORMS}
        self.errors: list[KafkaError] = []
        self._values = random.Random(29)
        self._producer: Producer = librdkafka.producer(
            address,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            batch_size=50_000,
            delivery_timeout_ms=120_000,
        )

    def write_until(self, ended: threading.Event) -> None:
        number = 0
        while not ended.is_set():
            for form in FORMS:
                value = b"%08d" % number + self._values.randbytes(700)
                self._producer.produce(form, value, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0)
            time.sleep(0.0005)
            while len(self._producer) > 20_000:
                self._producer.poll(0.05)
        assert self._producer.flush(120) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        topic, offset, value = message.topic(), message.offset(), message.value()
        assert topic is not None and offset is not None and value is not None
        self.acknowledged[topic][offset] = value


def read(address: str, topic: str, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of the records, and what follows within two seconds."""
    consumer = librdkafka.consumer(address, check_crcs=True)
    consumer.assign([TopicPartition(topic, 0, 0)])
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None and value is not None
            yield offset, value
            count -= 1
            if not count:
                end = min(end, time.monotonic() + 2)
    consumer.close()


def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    source, ended = random.Random(6), threading.Event()
    with Broker(tmp_path, {"remote.log.manager.task.interval.ms": "50"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        for form in FORMS:
            configs = {**CONFIGS, "storage.format": form}
            admin.create_topics([NewTopic(form, 1, 1, config=configs)])[form].result(30)

        def kill() -> None:
            try:
                for turn in range(KILLS):
                    time.sleep(source.uniform(0.5, 1.5))
                    (broker.kill_everything if turn % 2 else broker.kill)()
                    broker.start()
            finally:
                ended.set()

        killer = threading.Thread(target=kill)
        killer.start()
        writer = Writer(broker.address)
        writer.write_until(ended)
        killer.join()
        assert writer.errors == []
        for form in FORMS:
            wanted = writer.acknowledged[form]
            found = list(read(broker.address, form, len(wanted)))
            assert [offset for offset, _ in found] == list(range(len(wanted)))
            assert dict(found) == wanted
        segments = list((tmp_path / "data" / "segments").rglob("*.segment"))
        assert len(segments) > KILLS
    assert "Traceback" not in broker.log
