"""Check fetches from segments over sockets: repeated ones are answered without decoding."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep, time
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.broker import fetch_fast_path, repeated_request
from korvet.broker.fetch_fast_path import FetchTemplate
from korvet.log import recent_states
from korvet.testing import Broker
from korvet.wire import batch_builder
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.records import Record
from tests.support.certificates import Authority
from tests.support.raw_client import ROWS, Peer, parsed, request, to_produce, until

AUTHORITY = Authority.make()
LISTENERS = ("PLAINTEXT", "SSL")
PARTITIONS, BATCHES = 5, 30
ABORTED = PARTITIONS
"""The partition with transactions."""
MAX_BYTES = 300_000
TOPIC = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.ms": "1",
    "segment.bytes": "1000000",
    "segment.ms": "1000",
    "storage.format": "batch",
}
MODES = {"time": "t", "dense": "d"}


def made(number: int) -> bytes:
    """Return a batch of 40 KB; a copy waits for segment.ms after its timestamp."""
    now_ms = int(time() * 1000)
    rows: list[Record] = [(at, now_ms, None, b"%04d" % number * 500, []) for at in range(20)]
    return bytes(batch_builder.build(rows))


class TlsPeer(Peer):
    """A connection with TLS."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)


class Place(NamedTuple):
    """The partition and offset of a fetch."""

    topic: str = "t"
    partition: int = 0
    offset: int = 0
    committed: bool = False
    max_bytes: int = MAX_BYTES
    epoch: int = -1


class Tiers:
    """Two brokers on one Redis and one remote store, with all records in segments."""

    def __init__(self, folder: Path) -> None:
        AUTHORITY.sign("broker").write(folder / "broker.pem")
        self.folder = folder / "segments"
        self.settings = {
            "remote.log.storage.system.enable": "true",
            "remote.log.manager.task.interval.ms": "100",
            "remote.storage.url": f"file://{self.folder}",
            "ssl.keystore.location": str(folder / "broker.pem"),
        }
        self.one = Broker(settings=self.settings, listeners=LISTENERS)
        self.two: Broker | None = None
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        """Start and end of each partition."""
        self.ids: dict[str, UUID] = {}

    def fill(self) -> None:
        """Write batches of 40 KB, and transactions; wait until they have left Redis."""
        self.one.start()
        for mode, name in MODES.items():
            configs = {**TOPIC, "offset.mode": mode}
            made_topic = self.one.log.create_topic(name, PARTITIONS + 1, configs)
            self.ids[name] = UUID(hex=made_topic.id)
            with Peer(self.one.bootstrap_servers) as peer:
                for number in range(BATCHES):
                    data = made(number)
                    for partition in range(PARTITIONS):
                        sent = to_produce(name, data, partition=partition)
                        answer = peer.ask("Produce", 12, sent).responses[0]
                        assert answer.partition_responses[0].error_code == 0
        self._write_transactions()
        assert until(self._are_in_segments), "records did not leave Redis"
        self.two = Broker(
            settings=self.settings, redis=self.one.redis_url, node_id=1, listeners=LISTENERS
        )
        self.two.start()

    def _write_transactions(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.one.bootstrap_servers, "transactional.id": "a"}
        )
        producer.init_transactions(30)
        for number in range(8):
            producer.begin_transaction()
            for _ in range(4):
                producer.produce("t", b"%d" % number * 20_000, partition=ABORTED)
            producer.flush(30)
            (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)

    def _are_in_segments(self) -> bool:
        starts, locals_, ends = (self.offsets(which) for which in (-2, -4, -1))
        self.ends = {key: (starts[key], ends[key]) for key in ends}
        written = {key for key in ends if key != ("d", ABORTED)}
        return all(locals_[key] >= ends[key] > starts[key] for key in written)

    def offsets(self, timestamp: int) -> dict[tuple[str, int], int]:
        rows = [
            ListOffsetsPartition(partition_index=number, timestamp=timestamp)
            for number in range(PARTITIONS + 1)
        ]
        topics = [ListOffsetsTopic(name=name, partitions=rows) for name in MODES.values()]
        asked = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=1000)
        with Peer(self.one.bootstrap_servers) as peer:
            answer = peer.ask("ListOffsets", 9, asked)
        return {
            (topic.name, row.partition_index): row.offset
            for topic in answer.topics
            for row in topic.partitions
        }

    def start(self, topic: str = "t", partition: int = 0) -> int:
        return self.ends[topic, partition][0]

    def frame(self, place: Place, version: int = 11, number: int = 1) -> bytes:
        row = FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.epoch,
            fetch_offset=place.offset,
            partition_max_bytes=place.max_bytes,
        )
        topic = FetchTopic(topic=place.topic, topic_id=self.ids[place.topic], partitions=[row])
        body = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=int(place.committed),
            topics=[topic],
        )
        return request("Fetch", version, body, number)

    def peer(self, listener: str = "PLAINTEXT") -> Peer:
        return (TlsPeer if listener == "SSL" else Peer)(self.one.address(listener))

    def ask(self, peer: Peer, place: Place, version: int = 11, number: int = 1) -> Any:
        """Return the partition of a response."""
        peer.send(self.frame(place, version, number))
        return self.response(peer, version)[1]

    def response(self, peer: Peer, version: int = 11) -> tuple[int, Any]:
        number, answer = parsed(peer.answer(), ROWS["Fetch"], version)
        assert answer.error_code == 0
        return number, answer.responses[0].partitions[0]

    def files(self, topic: str = "t", partition: int = 0) -> list[Path]:
        return sorted(self.folder.glob(f"*/{self.ids[topic].hex}/{partition}/*"))


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    tiers = Tiers(tmp_path_factory.mktemp("tiers"))
    try:
        tiers.fill()
        yield tiers
    finally:
        if tiers.two is not None:
            tiers.two.close()
        tiers.one.close()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that gets, for each frame compared with a template, whether it was answered by it."""
    found: list[bool] = []
    answer = fetch_fast_path.answer

    def noted(template: FetchTemplate, frame: bytes) -> Any:
        given = answer(template, frame)
        found.append(given is not None)
        return given

    monkeypatch.setattr(fetch_fast_path, "answer", noted)
    return found


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition states that stay fresh for 60 s, so that a busy machine changes no result."""
    monkeypatch.setattr(recent_states, "FRESH_S", 60.0)


def next_offset(data: bytes) -> int:
    """Return the offset after the last record of whole batches."""
    at = last = 0
    while at < len(data):
        base = int.from_bytes(data[at : at + 8], "big")
        last = base + int.from_bytes(data[at + 23 : at + 27], "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return last + 1


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("version", [4, 8, 11, 12, 18])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("topic", ["t", "d"])
@pytest.mark.usefixtures("lasting")
def test_a_repeated_fetch_gets_byte_for_byte_what_a_decoded_one_gets(
    tiers: Tiers, known: list[bool], listener: str, version: int, committed: bool, topic: str
) -> None:
    offset, end = tiers.ends[topic, 1]
    size = fetches = 0
    with tiers.peer(listener) as peer:
        while offset < end:
            place = Place(topic, 1, offset, committed)
            peer.send(tiers.frame(place, version))
            found = peer.answer()
            with tiers.peer() as stranger:
                stranger.send(tiers.frame(place, version))
                assert stranger.answer() == found
            row = parsed(found, ROWS["Fetch"], version)[1].responses[0].partitions[0]
            data = bytes(row.records)
            size += len(data)
            offset, fetches = next_offset(data), fetches + 1
    assert size == BATCHES * len(made(0)) and fetches >= 4
    # The first two fetches read the state, the segment's row and its footer; so does each segment.
    assert known.count(True) >= fetches // 2


@pytest.mark.parametrize(("numbers", "follower"), [((1, 2), -1), ((1,), 7)])
@pytest.mark.usefixtures("lasting")
def test_a_fetch_of_two_partitions_or_of_a_follower_is_always_decoded(
    tiers: Tiers, known: list[bool], numbers: tuple[int, ...], follower: int
) -> None:
    """A follower needs CLUSTER_ACTION, which templates do not check."""
    rows = [
        FetchPartition(partition=n, fetch_offset=tiers.start("t", n), partition_max_bytes=1000)
        for n in numbers
    ]
    topic = FetchTopic(topic="t", partitions=rows)
    body = FetchRequest(replica_id=follower, max_wait_ms=0, min_bytes=1, topics=[topic])
    with tiers.peer() as peer:
        for _ in range(4):
            peer.send(request("Fetch", 11, body, 1))
            answer = parsed(peer.answer(), ROWS["Fetch"], 11)[1].responses[0]
            assert [(row.partition_index, bool(row.records)) for row in answer.partitions] == [
                (n, True) for n in numbers
            ]
    assert not known


@pytest.mark.usefixtures("lasting")
def test_aborted_transactions_are_listed_for_a_repeated_fetch(
    tiers: Tiers, known: list[bool]
) -> None:
    offset, end = tiers.ends["t", ABORTED]
    listed: set[tuple[int, int]] = set()
    with tiers.peer() as peer:
        while offset < end:
            place = Place("t", ABORTED, offset, committed=True, max_bytes=100_000)
            row = tiers.ask(peer, place)
            listed |= {(each.producer_id, each.first_offset) for each in row.aborted_transactions}
            with tiers.peer() as stranger:
                assert tiers.ask(stranger, place) == row
            offset = next_offset(bytes(row.records))
    assert len(listed) == 4 and known


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.usefixtures("lasting")
def test_fetches_sent_ahead_are_answered_in_their_order(
    tiers: Tiers, known: list[bool], listener: str
) -> None:
    with tiers.peer(listener) as peer:
        for _ in range(3):
            places = [
                Place("t", n % PARTITIONS, tiers.start("t", n % PARTITIONS)) for n in range(20)
            ]
            peer.send(*(tiers.frame(place, number=n) for n, place in enumerate(places)))
            for n, place in enumerate(places):
                number, row = tiers.response(peer)
                assert (number, row.partition_index) == (n, place.partition)
                assert next_offset(bytes(row.records)) > place.offset and not row.error_code
    assert known.count(True) > 20


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.usefixtures("lasting")
def test_a_slow_client_gets_large_and_small_responses_whole_and_in_order(
    tiers: Tiers, known: list[bool], listener: str
) -> None:
    place = Place(offset=tiers.start(), max_bytes=900_000)
    small = request("ApiVersions", 0, ApiVersionsRequest(), 7)
    with tiers.peer(listener) as peer:
        wanted = [tiers.ask(peer, place) for _ in range(3)][-1]
        assert len(bytes(wanted.records)) > 500_000
        for n in range(20):
            peer.send(tiers.frame(place, number=n), small, tiers.frame(place, number=100 + n))
        sleep(0.05)
        for n in range(20):
            assert tiers.response(peer) == (n, wanted)
            assert peer.answer()[:4] == (7).to_bytes(4, "big")
            assert tiers.response(peer) == (100 + n, wanted)
    assert known.count(True) > 20


@pytest.mark.usefixtures("lasting")
def test_chunks_read_ahead_are_those_of_their_reader(tiers: Tiers, known: list[bool]) -> None:
    """Three clients read one partition; one of them reads earlier offsets again."""
    start, end = tiers.ends["d", 2]
    batch = len(made(0))
    with tiers.peer() as one, tiers.peer() as two, tiers.peer() as three:
        offset = start
        while offset < end:
            rows = [tiers.ask(one, Place("d", 2, offset)), tiers.ask(two, Place("d", 2, offset))]
            assert rows[0] == rows[1]
            again = tiers.ask(three, Place("d", 2, max(start, offset - 40), max_bytes=2 * batch))
            data = bytes(rows[0].records)
            assert int.from_bytes(data[:8], "big") == offset and len(data) % batch == 0
            back = bytes(again.records)
            assert int.from_bytes(back[:8], "big") == max(start, offset - 40)
            offset = next_offset(data)
    assert known.count(True) > 3


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.usefixtures("lasting")
def test_a_client_that_closes_during_a_response_does_not_affect_others(
    tiers: Tiers, known: list[bool], listener: str
) -> None:
    place = Place(offset=tiers.start())
    with tiers.peer(listener) as patient:
        wanted = tiers.ask(patient, place)
        for _ in range(5):
            with tiers.peer(listener) as rude:
                for _ in range(3):
                    tiers.ask(rude, place)
                rude.send(*[tiers.frame(place)] * 30)
                rude.socket.recv(1000)
            assert tiers.ask(patient, place) == wanted
    assert known.count(True) > 5


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.usefixtures("lasting")
def test_a_file_that_is_removed_while_it_is_sent_is_sent_whole(
    tiers: Tiers, known: list[bool], listener: str
) -> None:
    place, file = Place("t", 2, tiers.start("t", 2)), tiers.files("t", 2)[0]
    kept = file.read_bytes()
    with tiers.peer(listener) as peer:
        wanted = [tiers.ask(peer, place) for _ in range(3)][-1]
        peer.send(*[tiers.frame(place)] * 8)
        first = tiers.response(peer)[1]
        file.unlink()
        try:
            rows = [first, *(tiers.response(peer)[1] for _ in range(7))]
        finally:
            file.write_bytes(kept)
    assert first == wanted
    assert {row.error_code for row in rows} <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
    assert all(bytes(row.records) == bytes(wanted.records) for row in rows if not row.error_code)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


HARM: dict[str, Callable[[bytes], bytes | None]] = {
    "a base offset": lambda data: flipped(data, 7),
    "a record": lambda data: flipped(data, 150_000),
    "the end is missing": lambda data: data[:100_000],
    "the file is missing": lambda data: None,
}


@pytest.mark.parametrize("name", HARM)
@pytest.mark.usefixtures("lasting")
def test_a_file_that_changes_while_it_is_read_is_an_error_of_its_partition(
    tiers: Tiers, known: list[bool], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    place, file = Place("t", 3, tiers.start("t", 3)), tiers.files("t", 3)[0]
    kept = file.read_bytes()
    with tiers.peer() as peer:
        wanted = [tiers.ask(peer, place) for _ in range(3)][-1]
        assert known[-1]
        changed = HARM[name](kept)
        if changed is None:
            file.unlink()
        else:
            file.write_bytes(changed)
        try:
            harmed = tiers.ask(peer, place)
            other = tiers.ask(peer, Place("t", 4, tiers.start("t", 4)))
        finally:
            file.write_bytes(kept)
        assert harmed.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not harmed.records
        assert other.error_code == 0 and other.records
        fields = [row.__dict__["fields"] for row in caplog.records if "remote read" in row.message]
        assert (fields[-1]["topic"], fields[-1]["partition"]) == ("t", 3)
        assert fields[-1]["offset"] == place.offset
        assert tiers.ask(peer, place) == wanted


def test_records_deleted_through_another_broker_are_out_of_range_at_once(
    tiers: Tiers, known: list[bool]
) -> None:
    assert tiers.two is not None
    place = Place("d", 4, tiers.start("d", 4))
    with tiers.peer() as peer, Peer(tiers.two.bootstrap_servers) as deleter:
        for _ in range(3):
            row = tiers.ask(peer, place)
            after = next_offset(bytes(row.records)[:1000])
            rows = [DeleteRecordsPartition(partition_index=4, offset=after)]
            topics = [DeleteRecordsTopic(name="d", partitions=rows)]
            asked = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
            assert deleter.ask("DeleteRecords", 2, asked).topics[0].partitions[0].error_code == 0
            assert tiers.ask(peer, place).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            place = place._replace(offset=after)


@pytest.mark.usefixtures("lasting")
def test_a_consumer_that_has_caught_up_is_served_by_redis(tiers: Tiers, known: list[bool]) -> None:
    start, end = tiers.ends["d", 0]
    with tiers.peer() as peer:
        for _ in range(3):
            tiers.ask(peer, Place("d", 0, start))
        row = tiers.ask(peer, Place("d", 0, end))
        assert (row.error_code, row.high_watermark) == (0, end) and not row.records
        beyond = tiers.ask(peer, Place("d", 0, end + 1_000_000))
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert known[-2:] == [False, False]


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize("change", ["settings", "topic", "principal", "rules", "member"])
def test_a_template_ends_when_its_conditions_change(
    tiers: Tiers, known: list[bool], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(offset=tiers.start())
    with tiers.peer() as peer:
        for _ in range(3):
            wanted = tiers.ask(peer, place)
        assert known[-1]
        current = FetchTemplate.is_current

        def changed(self: FetchTemplate) -> bool:
            services = self.services
            others: dict[str, Any] = {
                "settings": lambda: setattr(self, "_settings", None),
                "topic": lambda: setattr(self, "topic", replace(self.topic)),
                "principal": lambda: setattr(self, "_principal", None),
                "rules": lambda: setattr(self, "_decisions", None),
                "member": lambda: patch.setattr(
                    services.stream_reads, "find_member", lambda client_id: object()
                ),
            }
            with monkeypatch.context() as patch:
                others[change]()
                return current(self)

        monkeypatch.setattr(FetchTemplate, "is_current", changed)
        assert tiers.ask(peer, place) == wanted
        assert not known[-1]


def test_a_connection_keeps_few_templates(tiers: Tiers, known: list[bool]) -> None:
    with tiers.peer() as peer:
        for size in range(3 * repeated_request.MAX_TEMPLATES):
            row = tiers.ask(peer, Place(offset=tiers.start(), max_bytes=MAX_BYTES + size))
            assert row.error_code == 0 and row.records
    assert len(known) <= 3 * repeated_request.MAX_TEMPLATES
