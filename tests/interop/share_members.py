"""Members of a share group, each polling in its own thread, and the records they accepted."""

import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.librdkafka import PATIENCE


def configure_group(bootstrap: str, group: str, **configs: str) -> None:
    """Set configs of a group, which starts at the beginning; underscores for dots."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = {"share.auto.offset.reset": "earliest", **named}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE)


def share_consumer(bootstrap: str, group: str, *topics: str, **settings: str) -> ShareConsumer:
    """Return a subscribed share consumer; settings with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    words = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": "0", **named}
    consumer = ShareConsumer(words)
    consumer.subscribe(list(topics))
    return consumer


def accept_all(message: Message) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


class Tally:
    """The records delivered to the members of a group, and those certainly accepted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.delivered: Counter[bytes] = Counter()
        self.at: dict[bytes, float] = {}
        """The time of each record's last delivery, by the monotonic clock."""
        self.counts: dict[bytes, int] = {}
        """The delivery count of each record at its last delivery."""
        self.accepted: set[bytes] = set()
        self.unsure: set[bytes] = set()
        """Records whose acknowledgement got no response, or an error."""
        self.again: list[bytes] = []
        """Records delivered after they were accepted."""

    def give(self, message: Message) -> None:
        value = message.value()
        assert value is not None
        with self.lock:
            self.delivered[value] += 1
            self.at[value] = monotonic()
            self.counts[value] = message.delivery_count() or 0
            if value in self.accepted:
                self.again.append(value)


class ShareMember:
    """A share consumer in a thread that acknowledges every record explicitly, until stopped."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        tally: Tally,
        choose: Callable[[Message], AcknowledgeType] = accept_all,
        **settings: str,
    ) -> None:
        self._place = (bootstrap, group, topic)
        self._settings = {"share_acknowledgement_mode": "explicit", **settings}
        self._tally = tally
        self._choose = choose
        self._stop = threading.Event()
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        bootstrap, group, topic = self._place
        try:
            with share_consumer(bootstrap, group, topic, **self._settings) as consumer:
                while not self._stop.is_set():
                    self._poll(consumer)
        except BaseException as error:
            self.failed = error

    def _poll(self, consumer: ShareConsumer) -> None:
        try:
            messages = [one for one in consumer.poll(0.2) if one.error() is None]
        except KafkaException:
            return  # the broker is down
        accepted: dict[tuple[str | None, int | None], list[bytes]] = {}
        for message in messages:
            self._tally.give(message)
            choice = self._choose(message)
            consumer.acknowledge(message, choice)
            if choice == AcknowledgeType.ACCEPT:
                place = (message.topic(), message.partition())
                accepted.setdefault(place, []).append(message.value() or b"")
        with self._tally.lock:
            self._tally.unsure.update(*accepted.values())
        if not messages:
            return
        try:
            results: dict[Any, Any] = consumer.commit_sync(10.0)
        except KafkaException:
            return
        with self._tally.lock:
            for partition, error in results.items():
                if error is None:
                    values = accepted.get((partition.topic, partition.partition), ())
                    self._tally.accepted.update(values)
