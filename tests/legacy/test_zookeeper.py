"""Check the Kafka 0.7 registry in a real ZooKeeper, and the clients that find brokers there."""

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.interop.conftest import create_topic
from tests.interop.jvm import Jvm
from tests.interop.records import Record
from tests.legacy.clients import ZooKeeper, zookeeper
from tests.legacy.conftest import LegacyBroker
from tests.legacy.modern import send
from tests.legacy.wire import message, produce
from tests.support.ports import free_port
from tests.support.redis_servers import TestServer, server

PATIENCE = 40.0


@pytest.fixture(scope="module")
def shared_zookeeper(jafka: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with zookeeper(jafka, tmp_path_factory.mktemp("zk")) as running:
        yield running


@pytest.fixture
def zk(shared_zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Any]:
    """A client in a chroot for one test. The fixture does not create the chroot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the chroot does not exist yet
        client = KazooClient(f"{shared_zookeeper.address}/{tmp_path.name}")
        client.start()
    client.root = f"{shared_zookeeper.address}/{tmp_path.name}"
    yield client
    client.stop()
    client.close()


def until(there: Callable[[], Any]) -> Any:
    """Wait until the function finds a value, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := there()):
        assert time.monotonic() < end, f"nothing found within {PATIENCE} s"
        time.sleep(0.01)
    return found


def value(zk: Any, path: str) -> str | None:
    try:
        text: str = zk.get(path)[0].decode()
    except NoNodeError:
        return None
    return text


@pytest.fixture
def registered(own: LegacyBroker, zk: Any) -> LegacyBroker:
    """A broker that registers in ZooKeeper; not started yet."""
    own.options = ("--zookeeper", zk.root)
    own.settings["legacy.num.partitions"] = "4"
    return own


def place(broker: LegacyBroker, zk: Any, node: int = 0) -> str:
    """Wait until a broker is registered, and return the registered host and port."""
    text = until(lambda: value(zk, f"/brokers/ids/{node}"))
    creator, host, port = text.split(":")
    assert creator
    return f"{host}:{port}"


def test_a_broker_and_its_topics_are_registered_while_they_exist(
    registered: LegacyBroker, zk: Any, topic: str
) -> None:
    registered.start()
    assert place(registered, zk) == registered.legacy
    assert zk.exists("/brokers/ids/0").ephemeralOwner
    with registered.client() as client:
        client.send(produce(topic, message(b"to partition 0"), 0))
    assert until(lambda: value(zk, f"/brokers/topics/{topic}/0")) == "4"
    assert zk.exists(f"/brokers/topics/{topic}/0").ephemeralOwner
    admin = AdminClient({"bootstrap.servers": registered.address})
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: not zk.exists(f"/brokers/topics/{topic}/0"))
    assert registered.stop() == 0
    assert not zk.exists("/brokers/ids/0")


def test_only_topics_of_byte_positions_are_listed(
    registered: LegacyBroker, zk: Any, topic: str
) -> None:
    registered.start()
    other = create_topic(registered.address)
    listed = create_topic(registered.address, partitions=2, offset_mode="bytes")
    assert until(lambda: value(zk, f"/brokers/topics/{listed}/0")) == "2"
    assert not zk.exists(f"/brokers/topics/{other}")


def test_a_deleted_registration_is_written_again(registered: LegacyBroker, zk: Any) -> None:
    registered.start()
    place(registered, zk)
    zk.delete("/brokers/ids/0")
    assert place(registered, zk) == registered.legacy


def test_a_broker_registers_again_after_a_restart_or_data_loss(
    jafka: Jvm, own: LegacyBroker, tmp_path: Path, topic: str
) -> None:
    with zookeeper(jafka, tmp_path) as keeper:
        own.options = ("--zookeeper", keeper.address)
        own.start()
        with own.client() as client:
            client.send(produce(topic, message(b"x")))
        for forgets in (False, True):
            keeper.stop()
            if forgets:
                for path in sorted((tmp_path / "data").rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
            keeper.start()
            zk = KazooClient(keeper.address)
            zk.start()
            assert place(own, zk) == own.legacy
            assert until(lambda zk=zk: value(zk, f"/brokers/topics/{topic}/0")) == "1"
            zk.stop()
            zk.close()


def test_a_broker_registers_in_a_zookeeper_that_starts_later(
    jafka: Jvm, own: LegacyBroker, tmp_path: Path, topic: str
) -> None:
    keeper = ZooKeeper(jafka, tmp_path)
    own.options = ("--zookeeper", keeper.address)
    own.start()
    with own.client() as client:
        client.send(produce(topic, message(b"x")))
        assert client.fetch(topic, 0) == (0, message(b"x"))
    assert "ZooKeeper unreachable, retrying" in own.log
    keeper.start()
    zk = KazooClient(keeper.address)
    zk.start()
    assert place(own, zk) == own.legacy
    assert until(lambda: value(zk, f"/brokers/topics/{topic}/0")) == "1"
    zk.stop()
    zk.close()
    keeper.stop()


def test_a_restarted_broker_waits_for_its_earlier_session_to_expire(
    registered: LegacyBroker, zk: Any
) -> None:
    registered.start()
    place(registered, zk)
    first = zk.exists("/brokers/ids/0").ephemeralOwner
    registered.kill_everything()
    registered.start()
    assert "earlier session still registered" in registered.log
    until(lambda: (found := zk.exists("/brokers/ids/0")) and found.ephemeralOwner != first)
    assert place(registered, zk) == registered.legacy


def test_an_id_that_another_broker_has_is_refused(zk: Any, tmp_path: Path) -> None:
    zk.create("/brokers/ids/0", b"other-1:10.0.0.9:9092", ephemeral=True, makepath=True)
    words = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0"]
    words += ["--legacy-listen", "127.0.0.1:0", "--zookeeper", zk.root]
    words += ["--data-dir", str(tmp_path / "data")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "belongs to another broker, other-1:10.0.0.9:9092" in done.stderr
    assert "--node-id" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def common() -> Iterator[TestServer]:
    with server("valkey") as running:
        yield running


def test_brokers_on_one_redis_list_a_topic_once(
    zk: Any, common: TestServer, tmp_path: Path, topic: str
) -> None:
    brokers = [
        LegacyBroker(
            tmp_path / f"{node}",
            {},
            ("--redis", common.url, "--node-id", f"{node}", "--zookeeper", zk.root),
        )
        for node in (1, 2)
    ]
    try:
        for broker in brokers:
            broker.start()
        for node, broker in zip((1, 2), brokers, strict=True):
            assert place(broker, zk, node) == broker.legacy
        with brokers[1].client() as client:
            client.send(produce(topic, message(b"x")))
        assert until(lambda: value(zk, f"/brokers/topics/{topic}/1")) == "1"
        assert not zk.exists(f"/brokers/topics/{topic}/2")
        brokers[0].stop()
        assert until(lambda: value(zk, f"/brokers/topics/{topic}/2")) == "1"
        assert not zk.exists(f"/brokers/topics/{topic}/1")
    finally:
        for broker in brokers:
            broker.close()


def test_a_broker_that_cannot_reach_zookeeper_leaves_the_topics_to_others(
    zk: Any, common: TestServer, tmp_path: Path, topic: str
) -> None:
    namespace = ("--redis", common.url, "--namespace", topic)
    brokers = [
        LegacyBroker(
            tmp_path / f"{node}", {}, (*namespace, "--node-id", f"{node}", "--zookeeper", where)
        )
        for node, where in ((1, f"127.0.0.1:{free_port()}"), (2, zk.root))
    ]
    try:
        for broker in brokers:
            broker.start()
        assert "ZooKeeper unreachable, retrying" in brokers[0].log
        with brokers[1].client() as client:
            client.send(produce(topic, message(b"x")))
        assert until(lambda: value(zk, f"/brokers/topics/{topic}/2")) == "1"
    finally:
        for broker in brokers:
            broker.close()


def test_a_producer_finds_the_broker_and_a_group_reads_everything(
    jafka: Jvm, registered: LegacyBroker, zk: Any, topic: str
) -> None:
    registered.start()
    place(registered, zk)
    values = [f"value {n}" for n in range(12)]
    jafka.run("Old07", "send", "zk.connect", zk.root, topic, "0", *values)
    found = jafka.run("Old07", "group", zk.root, topic, "readers", "3000").splitlines()
    assert sorted(found) == sorted(values)
    # The read offsets are committed in ZooKeeper: the group resumes there.
    jafka.run("Old07", "send", "zk.connect", zk.root, topic, "1", "one more")
    again = jafka.run("Old07", "group", zk.root, topic, "readers", "3000").splitlines()
    assert again == ["one more"]


def test_two_consumers_of_a_group_split_the_partitions_in_chunks(
    jafka: Jvm, registered: LegacyBroker, zk: Any, topic: str
) -> None:
    registered.start()
    place(registered, zk)
    with registered.client() as client:
        client.send(b"".join(produce(topic, message(b"%d" % n), n) for n in range(4)))
    assert until(lambda: value(zk, f"/brokers/topics/{topic}/0")) == "4"
    owners = f"/consumers/pair/owners/{topic}"
    consumers = [jafka.start("Old07", "group", zk.root, topic, "pair", "30000") for _ in range(2)]
    try:

        def split() -> list[str]:
            names = sorted(zk.get_children(owners)) if zk.exists(owners) else []
            held = [(value(zk, f"{owners}/{name}") or "").rpartition("-")[0] for name in names]
            # A consumer removes the node before the next one claims it: it can have no owner.
            settled = names == ["0-0", "0-1", "0-2", "0-3"] and all(held)
            return held if settled and len(set(held)) == 2 else []

        first, second, third, fourth = until(split)
        assert first == second and third == fourth and first < third
    finally:
        for process in consumers:
            process.kill()
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


def test_the_high_level_consumer_of_0_8_finds_its_broker(
    kafka: Jvm, own: LegacyBroker, zk: Any
) -> None:
    own.settings |= {"zookeeper.connect": zk.root, "offset.mode": "dense", "num.partitions": "2"}
    own.start()
    found = json.loads(until(lambda: value(zk, "/brokers/ids/0")))
    assert f"{found['host']}:{found['port']}" == own.address
    topic = create_topic(own.address, partitions=2)
    send(own.address, topic, [Record(None, b"%d" % n) for n in range(5)])
    listed = json.loads(until(lambda: value(zk, f"/brokers/topics/{topic}")))
    assert listed["partitions"] == {"0": [0], "1": [0]}
    package = "kafka.tools" if "kafka-clients" in kafka.classpath else "kafka.consumer"
    words = (f"{package}.ConsoleConsumer", "--zookeeper", zk.root, "--topic", topic)
    out = kafka.run(*words, "--from-beginning", "--max-messages", "5").splitlines()
    assert [line for line in out if line in "01234"] == list("01234")
