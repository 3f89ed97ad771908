"""Check kcat, a common command line client."""

import json

import pytest

from korvet.cli import run
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.programs import check

pytestmark = pytest.mark.interop

FORMAT = '{"key":"%k","value":"%s","headers":"%h","offset":%o,"partition":%p}\\n'


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_written_are_lines_read(broker: Broker, codec: str) -> None:
    topic = create_topic(broker.address)
    lines = "".join(f"k{n}:v{n}\n" for n in range(100))
    kcat(broker, "-P", "-t", topic, "-K", ":", "-p", "0", "-z", codec, "-H", "a=1", stdin=lines)
    found = consume(broker, topic, "-o", "beginning", "-c", "100")
    assert [(row["key"], row["value"]) for row in found] == [(f"k{n}", f"v{n}") for n in range(100)]
    assert {row["headers"] for row in found} == {"a=1"}


def test_reading_stops_at_the_end_and_starts_near_it(broker: Broker) -> None:
    topic = create_topic(broker.address)
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(20)))
    assert [row["value"] for row in consume(broker, topic, "-o", "beginning", "-e")] == [
        str(n) for n in range(20)
    ]
    offset = consume(broker, topic, "-o", "beginning", "-e")[15]["offset"]
    assert [row["value"] for row in consume(broker, topic, "-o", str(offset), "-e")] == [
        "15",
        "16",
        "17",
        "18",
        "19",
    ]


def test_metadata_lists_brokers_topics_and_partitions(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address, partitions=3)
    reported = json.loads(kcat(default_broker, "-L", "-J", "-t", topic))
    (found,) = reported["topics"]
    assert found["topic"] == topic
    assert [row["partition"] for row in found["partitions"]] == [0, 1, 2]
    assert default_broker.address in {row["name"] for row in reported["brokers"]}


def test_a_timestamp_is_looked_up(default_broker: Broker) -> None:
    topic = create_topic(default_broker.address)
    kcat(default_broker, "-P", "-t", topic, "-p", "0", stdin="one\n")
    assert f"{topic} [0] offset " in kcat(default_broker, "-Q", "-t", f"{topic}:0:1")


@pytest.mark.korvet_only
@pytest.mark.parametrize(
    "text", [r"%t|%p|%o|%k|%K|%s|%S|%T|%h\n", r"%k\x41\t%%\n"], ids=["codes", "escapes"]
)
def test_formats_of_korvet_consume_are_those_of_kcat(
    default_broker: Broker, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = create_topic(default_broker.address)
    at = ("-P", "-t", topic, "-p", "0")
    lines = "k1:hello\n:empty key\nnokey\n"
    kcat(default_broker, *at, "-K", ":", "-H", "a=1", "-H", "b=2", stdin=lines)
    kcat(default_broker, *at, "-Z", "-k", "z", stdin=" ")
    theirs = kcat(default_broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", text)
    data = str(default_broker.folder / "data")
    assert run(["consume", topic, "-f", text, "--data-dir", data]) == 0
    assert capfd.readouterr().out == theirs
    assert theirs.count("\n") == 4


def consume(broker: Broker, topic: str, *words: str) -> list[dict[str, object]]:
    """Run kcat as a consumer and return its output, one row per record."""
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-q", "-f", FORMAT, *words)
    return [json.loads(line) for line in out.splitlines()]


def kcat(broker: Broker, *words: str, stdin: str = "") -> str:
    """Run kcat and return its standard output."""
    return check(["kcat", "-b", broker.address, *words], seconds=30, stdin=stdin)
