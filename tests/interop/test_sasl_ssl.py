"""Check that kafkajs, kafka-python and Kafka's tools authenticate with SCRAM over TLS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet.testing import Broker
from tests.interop.jvm import Tools
from tests.interop.kafka_python import KafkaProducer
from tests.support.certificates import Authority
from tests.support.programs import NPM_INSTALL, Build, check

pytestmark = pytest.mark.interop
NODE = Path(__file__).parent / "node"
PASSWORD = "s3cret, with = and ü"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sasl")
    authority = Authority.make()
    authority.sign("broker").write(folder / "broker.pem")
    (folder / "ca.pem").write_text(authority.pem)
    return folder


@pytest.fixture(scope="module")
def broker(files: Path) -> Iterator[Broker]:
    settings = {"ssl.keystore.location": str(files / "broker.pem")}
    users = {"alice": PASSWORD}
    with Broker(
        topics={"node": 1}, settings=settings, users=users, listeners=["SASL_SSL"]
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def npm(build: Build) -> Path:
    """A folder with kafkajs."""
    return build(NODE, NPM_INSTALL)


def run_kafkajs(
    broker: Broker, files: Path, npm: Path, mechanism: str, value: str, password: str = PASSWORD
) -> str:
    ca = str(files / "ca.pem")
    words = [broker.bootstrap_servers, ca, mechanism, "alice", password, "node", value]
    return check(["node", "sasl.js", *words], npm, 60).strip()


def test_kafkajs_produces_and_reads(broker: Broker, files: Path, npm: Path) -> None:
    assert run_kafkajs(broker, files, npm, "scram-sha-256", "first") == "first"
    assert run_kafkajs(broker, files, npm, "scram-sha-512", "second") == "second"


def test_kafkajs_says_why_it_may_not(broker: Broker, files: Path, npm: Path) -> None:
    with pytest.raises(AssertionError, match="KafkaJSSASLAuthenticationError"):
        run_kafkajs(broker, files, npm, "scram-sha-256", "never", "wrong")


def test_kafka_python_produces(broker: Broker, files: Path) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=str(files / "ca.pem"),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("python", b"hello").get(30).topic == "python"
    producer.close()


def test_kafkas_tools_create_a_topic(broker: Broker, files: Path, java_tools: Tools) -> None:
    (files / "client.properties").write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files / 'ca.pem'}\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{PASSWORD.replace("ü", chr(92) + "u00fc")}";\n'
    )
    at = ["--bootstrap-server", broker.bootstrap_servers]
    config = ["--command-config", str(files / "client.properties")]
    command = "org.apache.kafka.tools.TopicCommand"
    java_tools.tool(command, *at, *config, "--create", "--topic", "java", "--partitions", "3")
    assert broker.log.topic("java").partitions == 3
