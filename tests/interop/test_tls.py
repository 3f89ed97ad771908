"""Clients over TLS, with a certificate for both sides."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet.testing import Broker
from tests.interop.jvm import Tools
from tests.interop.kafka_python import KafkaProducer
from tests.support.certificates import Authority

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.make()
    authority.sign("broker").write(folder / "broker.pem")
    authority.sign("client").write(folder / "client.pem")
    (folder / "ca.pem").write_text(authority.pem)
    return folder


@pytest.fixture(scope="module")
def broker(files: Path) -> Iterator[Broker]:
    settings = {
        "ssl.keystore.location": str(files / "broker.pem"),
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with Broker(settings=settings, listeners=["SSL"]) as broker:
        yield broker


def stored(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.log.records(topic, 0)]


def test_kafka_python_produces(broker: Broker, files: Path) -> None:
    client = str(files / "client.pem")
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SSL",
        ssl_cafile=str(files / "ca.pem"),
        ssl_certfile=client,
        ssl_keyfile=client,
    )
    assert producer.send("python", b"hello").get(30).topic == "python"
    producer.close()
    assert stored(broker, "python") == [b"hello"]


def test_kcat_produces(broker: Broker, files: Path) -> None:
    program = shutil.which("kcat")
    assert program is not None
    options = {
        "security.protocol": "ssl",
        "ssl.ca.location": files / "ca.pem",
        "ssl.certificate.location": files / "client.pem",
        "ssl.key.location": files / "client.pem",
    }
    settings = [f"-X{name}={value}" for name, value in options.items()]
    command = [program, "-b", broker.bootstrap_servers, *settings, "-P", "-t", "kcat"]
    subprocess.run(command, input=b"hello\n", check=True, timeout=60)
    assert stored(broker, "kcat") == [b"hello"]


def test_kafkas_tools_create_a_topic(broker: Broker, files: Path, java_tools: Tools) -> None:
    (files / "client.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files / 'ca.pem'}\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={files / 'client.pem'}\n"
    )
    at = ["--bootstrap-server", broker.bootstrap_servers]
    config = ["--command-config", str(files / "client.properties")]
    command = "org.apache.kafka.tools.TopicCommand"
    java_tools.tool(command, *at, *config, "--create", "--topic", "java", "--partitions", "3")
    assert broker.log.topic("java").partitions == 3
