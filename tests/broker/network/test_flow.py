"""Check order, back-pressure and ends of connections: a flood delays only its own client."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import crc32c
import pytest
from anyio.lowlevel import checkpoint

from korvet.base.errors import ErrorCode
from korvet.broker import dispatch
from korvet.broker.connection import Connection
from korvet.broker.network.open_connections import OpenConnections
from korvet.broker.network.ordered_connection import AT_WORK
from korvet.broker.network.receive_buffer import ReceiveBuffer
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.security.session import Session
from korvet.wire import compression
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.records import Buffer
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic
from tests.support.raw_client import (
    API_VERSIONS,
    PATIENCE,
    ROWS,
    Peer,
    alive,
    batch,
    crowd,
    parsed,
    request,
    resident,
    to_fetch,
    to_produce,
    until,
)
from tests.support.redis_servers import TestServer
from tests.support.shared_broker import started

ALL_TOPICS = MetadataRequest(topics=None)
MB = 1 << 20


@pytest.fixture(scope="module")
def full_topic(broker: Broker) -> str:
    """A topic of 64 batches of nearly 1 MB each."""
    topic = create_topic(broker.address, storage_format="batch", offset_mode="dense")
    data = batch([b"x" * 1_040_000])
    with Peer(broker.address) as peer:
        for _ in range(64):
            found = peer.ask("Produce", 9, to_produce(topic, data))
            assert found.responses[0].partition_responses[0].error_code == 0
    return topic


def read_one(broker: Broker, topic: str) -> int:
    """Fetch with limits of 1 byte; return the bytes of records in the response."""
    with Peer(broker.address) as peer:
        found = peer.ask("Fetch", 12, to_fetch(topic, max_bytes=1, partition_max_bytes=1))
    return len(bytes(found.responses[0].partitions[0].records))


def test_five_hundred_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    topic = create_topic(broker.address, storage_format="batch", offset_mode="dense")
    wait = to_fetch(topic, 10_000, max_wait_ms=30)
    kinds = [
        ("ApiVersions", 0, API_VERSIONS),
        ("Produce", 9, request("Produce", 9, to_produce(topic, batch([b"v"])))),
        ("Fetch", 12, request("Fetch", 12, wait)),
        ("Metadata", 9, request("Metadata", 9, ALL_TOPICS)),
        ("Produce", 3, request("Produce", 3, to_produce(topic, batch([b"w"] * 3)))),
    ]
    sent = [kinds[number * 7 % 5] for number in range(500)]
    contents = [
        content[:4] + number.to_bytes(4, "big") + content[8:]
        for number, (_, _, content) in enumerate(sent)
    ]
    with Peer(broker.address) as peer:
        feeding = threading.Thread(target=peer.send, args=contents)
        feeding.start()
        offsets: list[int] = []
        for number, (name, version, _) in enumerate(sent):
            correlation_id, found = parsed(peer.answer(), ROWS[name], version)
            assert correlation_id == number
            if name == "Produce":
                offsets.append(found.responses[0].partition_responses[0].base_offset)
        feeding.join()
    assert offsets == sorted(offsets) and len(set(offsets)) == 200


class Patient(Connection):
    """A connection that counts the requests it began; their responses wait for `answer`."""

    def prepare(self) -> None:
        self.begun = 0
        self.answer = asyncio.Event()

    def _begin(self, frame: Buffer) -> Any:
        self.begun += 1
        self._release()
        return frame

    async def _finish(self, request: Any) -> list[Buffer] | None:
        await self.answer.wait()
        return [bytes(request)]

    def _may_be_large(self, frame: Buffer) -> bool:
        return False


async def test_others_are_served_before_all_that_one_client_sent_ahead(
    own_server: TestServer,
) -> None:
    config = load({"redis": own_server.url}, environ={})
    async with connected(config) as node:
        mine = Patient(node, OpenConnections(lambda: node.settings), MB)
        mine.prepare()
        transport = Mock(spec=asyncio.Transport)
        transport.is_closing.return_value = False
        transport.get_extra_info.return_value = ("127.0.0.1", 1)
        mine.connection_made(transport)
        for number in range(200):
            frame = b"\0\0\0\x08" + API_VERSIONS[:4] + number.to_bytes(4, "big")
            mine.get_buffer(0)[: len(frame)] = frame
            mine.buffer_updated(len(frame))
            await checkpoint()
        assert mine.begun == AT_WORK
        mine.answer.set()
        while not mine.idle:
            await checkpoint()
        assert mine.begun == 200
        sent = [part for call in transport.writelines.call_args_list for part in call.args[0]]
        assert [int.from_bytes(part[4:8], "big") for part in sent] == list(range(200))


def test_a_client_that_does_not_read_a_large_response_uses_little_memory(
    broker: Broker, full_topic: str
) -> None:
    wanted = request("Fetch", 12, to_fetch(full_topic))
    before = resident(broker.pid)
    with Peer(broker.address, receive=4096) as slow:
        slow.send(*[wanted] * 200)
        slow.socket.recv(4, socket.MSG_PEEK)  # the first response has begun
        for _ in range(30):
            assert read_one(broker, full_topic) > MB * 0.9
        assert resident(broker.pid) - before < 260 * MB
        (first,) = parsed(slow.answer(), ROWS["Fetch"], 12)[1].responses
        assert len(bytes(first.partitions[0].records)) > 45 * MB
    assert alive(broker.address)


def test_a_client_that_sends_and_never_reads_is_no_longer_read_from(broker: Broker) -> None:
    with Peer(broker.address, receive=4096) as flood:
        flood.socket.settimeout(1)
        content = request("Metadata", 9, ALL_TOPICS)
        framed = (len(content).to_bytes(4, "big") + content) * 2000
        flood.ask("Metadata", 9, ALL_TOPICS)
        before = resident(broker.pid)
        with pytest.raises(TimeoutError):
            for _ in range(2000):
                flood.socket.sendall(framed)
        assert resident(broker.pid) - before < 48 * MB
        assert alive(broker.address)


def test_large_requests_are_not_read_while_one_is_in_progress(broker: Broker) -> None:
    topic = create_topic(broker.address)
    slow = request("Fetch", 12, to_fetch(topic, max_wait_ms=1000))
    large = request("Produce", 9, to_produce("absent.topic!", batch([b"x" * 30_000_000])))
    before = resident(broker.pid)
    with Peer(broker.address) as peer:
        peer.send(slow, *[large] * 12)
        codes = []
        parsed(peer.answer(), ROWS["Fetch"], 12)
        for _ in range(12):
            found = parsed(peer.answer(), ROWS["Produce"], 9)[1]
            codes.append(found.responses[0].partition_responses[0].error_code)
        assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert resident(broker.pid) - before < 160 * MB


BOMBS = {
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """A batch for each codec that becomes 80 MB when decompressed."""
    return {name: batch([bytes(80 * MB)], codec) for name, codec in BOMBS.items()}


@pytest.mark.parametrize("codec", BOMBS)
@pytest.mark.parametrize(
    ("form", "validation"), [("record", "full"), ("batch", "full"), ("batch", "header")]
)
def test_a_compression_bomb_is_refused_within_its_bound(
    broker: Broker, bombs: dict[str, bytes], codec: str, form: str, validation: str
) -> None:
    topic = create_topic(
        broker.address,
        storage_format=form,
        compression_type="none",
        records_validation=validation,
    )
    before = resident(broker.pid)
    with Peer(broker.address) as peer:
        found = peer.ask("Produce", 9, to_produce(topic, bombs[codec]))
        code = found.responses[0].partition_responses[0].error_code
        small_enough = len(bombs[codec]) <= 1_048_588
        if validation == "full" or not small_enough:
            assert code == ErrorCode.MESSAGE_TOO_LARGE
        else:
            # It is stored as it is; the broker decompresses it for a client of old message sets.
            assert code == ErrorCode.NONE
            old = peer.ask("Fetch", 2, to_fetch(topic)).responses[0].partitions[0]
            assert old.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert resident(broker.pid) - before < 3 * 64 * MB
    assert alive(broker.address)


def test_a_batch_of_very_many_tiny_records_is_refused(broker: Broker) -> None:
    topic = create_topic(broker.address, storage_format="record")
    many = batch([b""] * 150_000, compression.ZSTD)
    before = resident(broker.pid)
    with Peer(broker.address) as peer:
        found = peer.ask("Produce", 9, to_produce(topic, many))
    assert found.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert resident(broker.pid) - before < 16 * MB


def test_a_batch_with_a_wrong_count_is_refused(broker: Broker) -> None:
    topic = create_topic(broker.address, storage_format="batch")
    wrong = ((20, ErrorCode.INVALID_RECORD), (2**31 - 1, ErrorCode.MESSAGE_TOO_LARGE))
    for count, error in wrong:
        lying = bytearray(batch([b"v"]))
        lying[23:27] = (count - 1).to_bytes(4, "big")
        lying[57:61] = count.to_bytes(4, "big")
        lying[17:21] = crc32c.crc32c(bytes(lying[21:])).to_bytes(4, "big")
        with Peer(broker.address) as peer:
            found = peer.ask("Produce", 9, to_produce(topic, bytes(lying)))
        assert found.responses[0].partition_responses[0].error_code == error


@pytest.fixture
def limited(tmp_path: Path, own_server: TestServer) -> Iterator[Broker]:
    """A broker with at most three connections and short timeouts."""
    mine = started(tmp_path, own_server.url, max_connections="3", connections_max_idle_ms="1500")
    yield mine
    mine.close()


def test_one_connection_too_many_is_refused_and_the_others_stay(
    tmp_path: Path, own_server: TestServer
) -> None:
    three = closing(started(tmp_path, own_server.url, max_connections="3"))
    with three as mine, crowd(mine.address, 3) as peers:
        for peer in peers:
            peer.ask("Metadata", 9, ALL_TOPICS)
        with Peer(mine.address) as late:
            assert late.ended()
            lines = [line for line in mine.log.splitlines() if late.name in line]
        assert len(lines) == 1 and 'reason="too many connections"' in lines[0]
        for peer in peers:
            peer.ask("Metadata", 9, ALL_TOPICS)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(limited: Broker) -> None:
    # On a busy machine the busy connection may be idle for too long too: then the try is repeated.
    assert until(lambda: closes_an_idle_connection(limited.address))


def closes_an_idle_connection(address: str) -> bool:
    """Return False if this client sent no request for more than one second."""
    with Peer(address) as idle, Peer(address) as busy:
        idle.ask("Metadata", 9, ALL_TOPICS)
        began = asked = time.monotonic()
        longest = 0.0
        closed: list[bool] = []
        watching = threading.Thread(target=lambda: closed.append(idle.ended()))
        watching.start()
        try:
            while watching.is_alive():
                busy.ask("Metadata", 9, ALL_TOPICS)
                longest, asked = max(longest, time.monotonic() - asked), time.monotonic()
                watching.join(0.2)
            assert closed == [True]
            assert time.monotonic() - began > 1.4
            busy.ask("Metadata", 9, ALL_TOPICS)
        except (EOFError, ConnectionError):
            watching.join()
            if max(longest, time.monotonic() - asked) > 1:
                return False
            raise
        return True


def test_a_client_that_never_reads_its_response_is_disconnected(limited: Broker) -> None:
    topic = create_topic(limited.address, storage_format="batch")
    data = batch([b"x" * 1_000_000])
    with Peer(limited.address) as peer:
        for _ in range(16):
            peer.ask("Produce", 9, to_produce(topic, data))
    with Peer(limited.address, receive=4096) as stuck:
        stuck.send(*[request("Fetch", 12, to_fetch(topic))] * 5)
        assert until(lambda: "the client does not read its responses" in limited.log)
    # Another connection is accepted in its place.
    assert until(lambda: serves_three(limited.address))


def serves_three(address: str) -> bool:
    """Return False if the broker closed one of three as idle, or as above the limit."""
    with crowd(address, 3) as peers, suppress(EOFError, ConnectionError):
        for peer in peers:
            peer.ask("Metadata", 9, ALL_TOPICS)
        return True
    return False


def test_sigterm_answers_what_is_in_flight_and_then_ends(
    tmp_path: Path, own_server: TestServer
) -> None:
    mine = started(tmp_path, own_server.url)
    topic = create_topic(mine.address, storage_format="batch", offset_mode="dense")
    with Peer(mine.address) as waiting, Peer(mine.address) as idle:
        idle.ask("Metadata", 9, ALL_TOPICS)
        waiting.send(request("Fetch", 12, to_fetch(topic, max_wait_ms=1200)))
        idle.ask("Metadata", 9, ALL_TOPICS)
        os.kill(mine.pid, signal.SIGTERM)
        correlation_id, found = waiting.response(ROWS["Fetch"], 12)
        assert (correlation_id, found.error_code) == (1, 0)
        assert waiting.ended() and idle.ended()
    assert mine.ended() == 0
    assert "Traceback" not in mine.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_broker_that_stops_is_listed_no_more_while_it_still_answers(
    tmp_path: Path, own_server: TestServer, workers: str
) -> None:
    mine = Broker(tmp_path, {}, ("--redis", own_server.url, "--workers", workers))
    with mine, own_server.client() as redis:

        def listed() -> set[bytes]:
            return set(redis.hkeys("korvet:brokers")) - {b":controller"}

        topic = create_topic(mine.address)
        with Peer(mine.address) as waiting:
            waiting.send(request("Fetch", 12, to_fetch(topic, max_wait_ms=20_000)))
            assert listed() == {b"0"}
            os.kill(mine.pid, signal.SIGTERM)
            assert until(lambda: not listed())
            waiting.socket.settimeout(0)
            with pytest.raises(BlockingIOError):
                waiting.socket.recv(1)
            waiting.socket.settimeout(PATIENCE)
            redis.xadd(f"korvet:{topic}:0", {"value": "v"})
            redis.publish(f"korvet:{topic}:0", "")
            assert waiting.response(ROWS["Fetch"], 12)[1].responses[0].partitions[0].records
        assert mine.ended() == 0
        assert listed() == set()


@pytest.mark.parametrize(
    ("max_bytes", "partitions", "promised"),
    [
        (50 * MB, [MB], 1 << 20),
        (50 * MB, [10, 3 << 20], 4 << 20),
        (2 * MB, [MB, MB, MB], 2 * MB),
        (2**31 - 1, [2**31 - 1], 57671680),
        (0, [MB], 0),
        (-1, [-1], 0),
        (MB, [], 0),
    ],
)
async def test_a_fetch_promises_no_more_than_its_partitions_can_give(
    max_bytes: int, partitions: list[int], promised: int
) -> None:
    """Further fetches of the connection wait while 16 MiB are promised."""
    rows = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=size)
        for number, size in enumerate(partitions)
    ]
    topics = [FetchTopic(topic="t", partitions=rows)]
    asked = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=topics)
    no_session = SimpleNamespace(find=lambda *_: None)
    services: Any = SimpleNamespace(
        settings=load({}, environ={}).settings, fetch_sessions=no_session
    )
    assert dispatch._promise(asked, services, Session("h")) == promised


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    memory = buffer.buffer()
    memory[: len(data)] = data


def test_event_loops_of_one_process_do_not_share_the_scratch_buffer() -> None:
    here = ReceiveBuffer(1000, 1000, 0)
    first, second = b"\0\0\0\4\0\x12aa", b"\0\0\0\4\0\x12bb"
    receive(here, first)
    with ThreadPoolExecutor(1) as other_thread:
        other = other_thread.submit(ReceiveBuffer, 1000, 1000, 0).result()
        receive(other, second)
    here.took(len(first))
    other.took(len(second))
    assert (bytes(here.next()), bytes(other.next())) == (first[4:], second[4:])
