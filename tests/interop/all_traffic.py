"""A broker with every feature on, and clients that use them: transactions, queues, tiers, TLS."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.interop.brokers import PATIENCE, Broker
from tests.interop.conftest import create_topic
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.raw_client import Peer, to_fetch

TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": "20000",
    "local_retention_bytes": "1",
    "offset_mode": "dense",
}


class AllTraffic:
    """Clients of each kind; `round` runs each once."""

    def __init__(self, broker: Broker, secure: str, folder: Path, clients: ExitStack) -> None:
        self.broker = broker
        self._folder = folder
        at: Any = {"bootstrap.servers": broker.address, "log_level": 0}
        self.topic = create_topic(broker.address, 2)
        self.queue = create_topic(broker.address, 1, offset_mode="dense")
        self.cold = create_topic(broker.address, 1, **TIERED)
        self.later = create_topic(broker.address, 1, delivery_schedule_enable="true")
        self.held = create_topic(broker.address, 1, retention_consumed="slow-group")
        self._admin = AdminClient(at)
        tls = {"bootstrap.servers": secure, "security.protocol": "SASL_SSL", "log_level": 0}
        tls |= {"sasl.mechanism": "SCRAM-SHA-256", "ssl.ca.location": str(folder / "ca.pem")}
        self._tls: Any = {**tls, "sasl.username": "ann"}
        self._add_user()
        self._limit("limited", 20_000)
        self._plain = Producer({**at, "linger.ms": 0})
        self._limited = Producer({**at, "client.id": "limited"})
        self._secure = Producer({**self._tls, "sasl.password": "right"})
        self._transactional = Producer({**at, "transactional.id": "all-traffic"})
        self._transactional.init_transactions(PATIENCE)
        self._readers = []
        for protocol in ("classic", "consumer"):
            config = {"group.id": f"{protocol}-group", "auto.offset.reset": "earliest"}
            reader = Consumer({**at, **config, "group.protocol": protocol})
            clients.callback(reader.close)
            reader.subscribe([self.topic])
            self._readers.append(reader)
        config = {"group.id": "cold-group", "auto.offset.reset": "earliest"}
        self._cold_reader = Consumer({**at, **config})
        clients.callback(self._cold_reader.close)
        self._cold_reader.subscribe([self.cold])
        self._member = clients.enter_context(ShareConsumer({**at, "group.id": "share-group"}))
        self._member.subscribe([self.queue])

    def _add_user(self) -> None:
        made = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        row = UserScramCredentialUpsertion("ann", made, b"right")
        self._admin.alter_user_scram_credentials([row])["ann"].result(PATIENCE)

    def _limit(self, client: str, rate: float) -> None:
        with Peer(self.broker.address) as peer:
            entity = [EntityData(entity_type="client-id", entity_name=client)]
            ops = [OpData(key="producer_byte_rate", value=rate, remove=False)]
            entries = [EntryData(entity=entity, ops=ops)]
            peer.ask(
                "AlterClientQuotas",
                1,
                AlterClientQuotasRequest(entries=entries, validate_only=False),
            )

    def round(self) -> None:
        """Run each client once."""
        for at in range(20):
            self._plain.produce(self.topic, b"v%d" % at)
            self._plain.produce(self.queue, b"job")
            self._plain.produce(self.cold, b"c" * 5_000)
            self._plain.produce(self.held, b"held")
        self._plain.produce(self.later, b"soon", headers=[("korvet-delay-ms", b"100")])
        self._limited.produce(self.topic, b"x" * 10_000)
        self._secure.produce(self.topic, b"by tls")
        self._transactional.begin_transaction()
        self._transactional.produce(self.topic, b"in a transaction")
        for producer in (self._plain, self._limited, self._secure):
            producer.flush(PATIENCE)
        self._transactional.commit_transaction(PATIENCE)
        for reader in (*self._readers, self._cold_reader):
            reader.consume(500, 0.3)
        self._member.poll(0.3)
        with Peer(self.broker.address) as peer:
            peer.ask("Fetch", 12, to_fetch("no-such-topic"))

    def fail(self) -> None:
        """Make a login, appends and reads of segments fail, and repair the cause."""
        refused = AdminClient({**self._tls, "sasl.password": "wrong"})
        with suppress(KafkaException):
            refused.list_topics(timeout=2)
        segments = self._folder / "data" / "segments"
        away = segments.rename(segments.with_name("away"))
        hungry = Consumer(
            {
                "bootstrap.servers": self.broker.address,
                "group.id": "hungry",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        with redis.Redis(unix_socket_path=str(self._folder / "data" / "redis.sock")) as server:
            server.config_set("maxmemory", 1)
            self._plain.produce(self.topic, b"too much")
            self._plain.flush(1)
            server.config_set("maxmemory", 0)
        hungry.subscribe([self.cold])
        hungry.consume(1, 2)
        hungry.close()
        if not segments.exists():
            away.rename(segments)
        self._plain.flush(PATIENCE)


@contextmanager
def all_traffic(folder: Path) -> Iterator[tuple[AllTraffic, int]]:
    """Run a broker and its clients; yield them and the ops port."""
    authority = Authority.make()
    (folder / "ca.pem").write_text(authority.pem)
    store = authority.sign("broker").write(folder / "broker.pem")
    ops, secure = free_port(), f"127.0.0.1:{free_port()}"
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": str(store),
        "remote.log.manager.task.interval.ms": "50",
        "connection.failed.authentication.delay.ms": "0",
    }
    options = ("--listen", f"SASL_SSL://{secure}", "--ops", f"127.0.0.1:{ops}")
    with Broker(folder, settings, options) as broker, ExitStack() as clients:
        yield AllTraffic(broker, secure, folder, clients), ops
    assert "Traceback" not in broker.log
