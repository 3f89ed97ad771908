"""Check kafka-python as a client of each older Kafka version; Kafka 4 refuses most of them."""

import pytest

from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.interop.kafka_python import CARRIED, named, read, send
from tests.interop.records import Record

pytestmark = pytest.mark.korvet_only

VERSIONS = [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 2), (0, 11), (1, 1), (2, 1), (2, 8), (3, 9)]


def dotted(version: tuple[int, ...]) -> str:
    """Return the version as in a test's name."""
    return ".".join(map(str, version))


# Before 0.10 lz4 had another frame format, which this client no longer writes.
CODECS = [
    pytest.param(version, codec, id=f"{dotted(version)}-{codec}")
    for version in VERSIONS
    for codec in ("none", "gzip", "snappy", "lz4")
    if codec != "lz4" or version >= (0, 10)
]


@pytest.mark.parametrize(("version", "codec"), CODECS)
def test_an_older_client_reads_what_it_wrote(
    broker: Broker, version: tuple[int, ...], codec: str
) -> None:
    topic = create_topic(broker.address)
    sent = as_of(version)
    offsets = send(broker.address, topic, sent, api_version=version, compression_type=named(codec))
    found = read(broker.address, topic, len(sent), api_version=version)
    assert found == list(zip(offsets, sent, strict=True))


@pytest.mark.parametrize("version", VERSIONS, ids=dotted)
def test_an_older_client_and_todays_read_each_other(
    broker: Broker, version: tuple[int, ...]
) -> None:
    topic = create_topic(broker.address)
    first = send(broker.address, topic, CARRIED, compression_type="gzip")
    second = send(broker.address, topic, as_of(version), api_version=version)
    offsets = first + second
    old = read(broker.address, topic, len(offsets), api_version=version)
    assert old == list(zip(offsets, as_of(version) * 2, strict=True))
    new = read(broker.address, topic, len(offsets))
    assert [record for _, record in new[: len(first)]] == list(CARRIED)
    assert [_said(record) for _, record in new[len(first) :]] == [_said(r) for r in as_of(version)]


def as_of(version: tuple[int, ...]) -> tuple[Record, ...]:
    """Return the records that such a client can send: headers since 0.11, timestamps since 0.10."""
    if version >= (0, 11):
        return CARRIED
    stamped = version >= (0, 10)
    return tuple(
        Record(record.key, record.value, (), record.timestamp if stamped else -1)
        for record in CARRIED
    )


def _said(record: Record) -> tuple[object, ...]:
    return (record.key, record.value, record.headers)
