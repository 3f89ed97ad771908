"""Check a broker whose Redis is down, stopped, full, read-only or without scripts.

Responses have errors, no acknowledged record is lost, and the broker recovers with Redis."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from korvet import apis
from korvet.base.errors import ErrorCode
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.schema import Message
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import ROWS, Peer, batch, request, to_fetch, to_produce, until
from tests.support.redis_servers import OwnRedis
from tests.support.shared_broker import started
from tests.wire.values import a_message

pytestmark = pytest.mark.processes

UNAVAILABLE = ErrorCode.KAFKA_STORAGE_ERROR
TIMEOUT_MS = "1000"


@contextmanager
def serving(folder: Path, url: str, redis_timeout_ms: str = TIMEOUT_MS) -> Iterator[Broker]:
    """Run a broker with a Redis timeout, 1 s by default; check that it logs no traceback."""
    mine = started(folder / "broker", url, redis_timeout_ms=redis_timeout_ms)
    try:
        yield mine
    finally:
        mine.close()
    assert "Traceback" not in mine.log


def produce(peer: Peer, topic: str, value: bytes = b"v") -> tuple[int, int]:
    """Append one record; return the error and the base offset."""
    found = peer.ask("Produce", 9, to_produce(topic, batch([value])))
    row = found.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def fetch_error(peer: Peer, topic: str, offset: int = 0) -> int:
    found = peer.ask("Fetch", 12, to_fetch(topic, offset))
    return found.error_code or int(found.responses[0].partitions[0].error_code)


def listed(topic: str) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])]
    )


def works_again(address: str, topic: str) -> bool:
    with Peer(address) as peer:
        return produce(peer, topic)[0] == 0 and fetch_error(peer, topic) == 0


def test_a_killed_redis_is_reported_and_is_reconnected_to(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url) as mine:
        topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
        with Peer(mine.address) as peer:
            acknowledged = [produce(peer, topic, b"%d" % number)[1] for number in range(20)]
            redis_on_disk.end()
            assert until(lambda: produce(peer, topic)[0] == UNAVAILABLE)
            assert ErrorCode(fetch_error(peer, topic)).retriable
            error = peer.ask("ListOffsets", 6, listed(topic)).topics[0].partitions[0].error_code
            assert ErrorCode(error).retriable
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            described = peer.ask("Metadata", 9, asked)
            # The cached topic. A topic without partitions does not exist, for clients.
            assert [(row.error_code, len(row.partitions)) for row in described.topics] == [(0, 1)]
            unknown = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
            reported = peer.ask("Metadata", 13, unknown)
            assert [row.error_code for row in reported.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
            assert reported.brokers and reported.controller_id >= 0 and not reported.error_code
            everything = peer.ask("Metadata", 9, MetadataRequest(topics=None))
            assert topic in [row.name for row in everything.topics] and everything.brokers
            assert peer.ask("ApiVersions", 0, ApiVersionsRequest()).error_code == 0
            redis_on_disk.start()
            assert until(lambda: works_again(mine.address, topic))

            def has_all() -> bool:
                # One Fetch may return a part: the broker estimates sizes anew after a restart.
                found = peer.ask("Fetch", 12, to_fetch(topic)).responses[0].partitions[0]
                data = bytes(found.records)
                return all(b"%d" % number in data for number in range(20))

            assert until(has_all)
            assert acknowledged == list(range(20))


ADMIN = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
offsets = ConsumerGroupTopicPartitions("g", [TopicPartition(sys.argv[2], 0)])

def ask():
    found = [
        admin.describe_consumer_groups(["g"])["g"],
        admin.list_consumer_group_offsets([offsets])["g"],
        admin.describe_topics(TopicCollection([sys.argv[2]]))[sys.argv[2]],
    ]
    print(*(bool(each.exception(30)) for each in found), flush=True)

for _ in sys.stdin:
    ask()
"""


def test_librdkafkas_admin_client_survives_a_restart_of_redis(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    """An unexpected response ends its process; after one without brokers it never reconnects."""
    with serving(tmp_path, redis_on_disk.url) as mine:
        topic = create_topic(mine.address)
        words = [sys.executable, "-c", ADMIN, mine.address, topic]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as client:
            assert client.stdin and client.stdout
            there, back = client.stdin, client.stdout

            def ask() -> list[str]:
                there.write("\n")
                return back.readline().split()

            assert ask() == ["False", "False", "False"]
            redis_on_disk.end()
            with Peer(mine.address) as peer:
                assert until(lambda: fetch_error(peer, topic))
            assert ask() == ["True", "True", "False"]  # topics are described from the cache
            redis_on_disk.start()
            assert until(lambda: ask() == ["False", "False", "False"])
            there.close()
            assert client.wait(30) == 0


def test_reads_of_a_stopped_redis_fail_in_time_and_an_append_once_it_cannot_run_any_more(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url) as mine:
        topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
        with Peer(mine.address) as peer, Peer(mine.address) as reader, Peer(mine.address) as other:
            assert produce(peer, topic)[0] == 0
            redis_on_disk.signal(signal.SIGSTOP)
            try:
                reader.send(request("Fetch", 12, to_fetch(topic)))
                other.send(request("Metadata", 9, MetadataRequest(topics=None)))
                peer.send(request("Produce", 9, to_produce(topic, batch([b"v"]))))
                found = reader.response(ROWS["Fetch"], 12)[1]
                assert ErrorCode(found.responses[0].partitions[0].error_code).retriable
                other.response(ROWS["Metadata"], 9)
            finally:
                redis_on_disk.signal(signal.SIGCONT)
            found = peer.response(ROWS["Produce"], 9)[1]
            # 0: Redis continued before the broker had given the connection up.
            assert found.responses[0].partition_responses[0].error_code in (0, UNAVAILABLE)
            assert until(lambda: works_again(mine.address, topic))


def test_a_full_redis_refuses_writes_and_still_reads(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url) as mine, redis_on_disk.client() as client:
        topic = create_topic(mine.address)
        with Peer(mine.address) as peer:
            assert produce(peer, topic)[0] == 0
            client.config_set("maxmemory", 1)
            assert produce(peer, topic)[0] == UNAVAILABLE
            assert fetch_error(peer, topic) == 0
            client.config_set("maxmemory", 0)
            assert produce(peer, topic)[0] == 0


def test_a_redis_that_became_a_replica_refuses_writes_until_it_is_master_again(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url) as mine, redis_on_disk.client() as client:
        topic = create_topic(mine.address)
        with Peer(mine.address) as peer:
            assert produce(peer, topic)[0] == 0
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            assert produce(peer, topic)[0] == UNAVAILABLE
            client.execute_command("REPLICAOF", "NO", "ONE")
            assert until(lambda: works_again(mine.address, topic))


def test_scripts_that_redis_has_lost_are_loaded_again_without_an_error(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url) as mine, redis_on_disk.client() as client:
        topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
        with Peer(mine.address) as peer:
            for number in range(6):
                peer.send(*[request("Produce", 9, to_produce(topic, batch([b"v"])))] * 10)
                if number % 2:
                    client.script_flush()
                for _ in range(10):
                    found = peer.response(ROWS["Produce"], 9)[1].responses[0]
                    assert found.partition_responses[0].error_code == 0
            assert produce(peer, topic) == (0, 60)


def test_a_stopped_redis_delays_only_the_requests_that_need_it(
    tmp_path: Path, redis_on_disk: OwnRedis
) -> None:
    with serving(tmp_path, redis_on_disk.url, redis_timeout_ms="60000") as mine:
        topic = create_topic(mine.address)
        with Peer(mine.address) as waiting, Peer(mine.address) as other:
            assert produce(waiting, topic)[0] == 0
            redis_on_disk.signal(signal.SIGSTOP)
            try:
                waiting.send(*[request("Produce", 9, to_produce(topic, batch([b"v"])))] * 50)
                for _ in range(20):
                    assert other.ask("ApiVersions", 0, ApiVersionsRequest()).error_code == 0
            finally:
                redis_on_disk.signal(signal.SIGCONT)
            for _ in range(50):
                found = waiting.response(ROWS["Produce"], 9)[1].responses[0]
                assert found.partition_responses[0].error_code == 0


def some_request(row: apis.Api, version: int, random: Random) -> Message:
    """Return a random request of that API and version which has a response."""
    made: Message = a_message(row.request, version, random, mild=True)
    return msgspec.structs.replace(made, acks=-1) if row.name == "Produce" else made


def test_every_api_answers_while_redis_is_away(tmp_path: Path, redis_on_disk: OwnRedis) -> None:
    random = Random(56)
    silent = []
    with serving(tmp_path, redis_on_disk.url) as mine:
        redis_on_disk.end()
        for row in apis.TABLE:
            for version in range(row.versions[0], row.versions[1] + 1):
                with Peer(mine.address) as peer:
                    peer.send(request(row.name, version, some_request(row, version, random)))
                    try:
                        assert peer.response(row, version)[0] == 1
                    except EOFError:
                        silent.append((row.name, version))
        assert silent == [], mine.log[-6000:]
