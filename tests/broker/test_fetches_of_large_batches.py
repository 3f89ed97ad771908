"""Check fetches of large batches in Redis: repeated ones are read ahead, not decoded."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import redis
from confluent_kafka import Producer

from korvet.base.errors import ErrorCode
from korvet.broker import fetch_fast_path
from korvet.broker.fetch_fast_path import FetchTemplate, PendingFetch
from korvet.log.range_reads import AHEAD_BYTES, RangeReads
from korvet.testing import Broker
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.test_fetches_from_segments import (
    AUTHORITY,
    LISTENERS,
    MODES,
    Place,
    TlsPeer,
    made,
    next_offset,
)
from tests.broker.test_fetches_from_segments import Tiers as _Tiers
from tests.support.raw_client import ROWS, Peer, parsed, to_produce, until

PARTITIONS, BATCHES = 5, 30
BATCH = len(made(0))
SETTINGS = {"fetch.cache.bytes": "0"}
"""Nothing is cached: Redis serves each fetch."""


class Logs(_Tiers):
    """Two brokers on one Redis, without segments."""

    def __init__(self, certificate: str) -> None:
        self.settings = {**SETTINGS, "ssl.keystore.location": certificate}
        self.one = Broker(settings=self.settings, listeners=LISTENERS)
        self.two: Broker | None = None
        self.ends = {}
        self.ids = {}

    def open(self) -> None:
        """Start the brokers, and fill a topic of each mode."""
        self.one.start()
        for mode, name in MODES.items():
            self.fill_topic(name, mode)
        self.two = Broker(
            settings=self.settings, redis=self.one.redis_url, node_id=1, listeners=LISTENERS
        )
        self.two.start()

    def fill_topic(self, name: str, mode: str = "dense") -> None:
        """Create a topic, and write batches of 40 KB to its partitions."""
        configs = {"offset.mode": mode, "storage.format": "batch"}
        made_topic = self.one.log.create_topic(name, PARTITIONS + 1, configs)
        self.ids[name] = UUID(hex=made_topic.id)
        with Peer(self.one.bootstrap_servers) as peer:
            for number in range(BATCHES):
                for partition in range(PARTITIONS):
                    sent = to_produce(name, made_of(number, partition), partition=partition)
                    answer = peer.ask("Produce", 12, sent).responses[0].partition_responses[0]
                    assert answer.error_code == 0
                    if not number:
                        self.ends[name, partition] = (answer.base_offset, -1)

    def peer(self, listener: str = "PLAINTEXT", broker: int = 0) -> Peer:
        """Connect to a broker."""
        found = self.two if broker else self.one
        assert found is not None
        return (TlsPeer if listener == "SSL" else Peer)(found.address(listener))


_MADE: dict[tuple[int, int], bytes] = {}


def made_of(number: int, partition: int) -> bytes:
    """Return a batch that no other partition has."""
    return _MADE.setdefault((number, partition), made(100 * partition + number))


def written(data: bytes) -> list[bytes]:
    """Return the stored batches without what the broker sets: base offset, length, epoch."""
    assert len(data) % BATCH == 0
    return [data[at + 16 : at + BATCH] for at in range(0, len(data), BATCH)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    file = tmp_path_factory.mktemp("logs") / "broker.pem"
    AUTHORITY.sign("broker").write(file)
    found = Logs(str(file))
    try:
        found.open()
        yield found
    finally:
        if found.two is not None:
            found.two.close()
        found.one.close()


class Known:
    """Counts of frames that were compared with a template: answered now, later, or decoded."""

    def __init__(self) -> None:
        self.now = self.later = self.decoded = 0
        self.ranges: RangeReads | None = None
        self.services: Any = None

    def note(self, template: FetchTemplate, given: object) -> None:
        self.services = template.services
        self.ranges = template.services.log_reader.ranges
        if isinstance(given, PendingFetch):
            self.later += 1
        elif given is None:
            self.decoded += 1
        else:
            self.now += 1


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Counts of fetches; sizes stay known for a test, so that a busy machine changes no result."""
    monkeypatch.setattr("korvet.log.size_estimates.STALE_S", 60.0)
    found, answer = Known(), fetch_fast_path.answer

    def noted(template: FetchTemplate, frame: bytes) -> Any:
        given = answer(template, frame)
        found.note(template, given)
        return given

    monkeypatch.setattr(fetch_fast_path, "answer", noted)
    return found


def read(
    logs: Logs, peer: Peer, place: Place, version: int = 11, *, stranger: bool = False
) -> tuple[list[bytes], int]:
    """Return all batches from an offset on, as they were written, and the number of fetches.

    A fetch with a retriable error is repeated.
    """
    found: list[bytes] = []
    fetches = 0
    while True:
        peer.send(logs.frame(place, version))
        answer = peer.answer()
        if stranger:  # whose first fetch is decoded
            with logs.peer() as other:
                other.send(logs.frame(place, version))
                assert other.answer() == answer
        row = parsed(answer, ROWS["Fetch"], version)[1].responses[0].partitions[0]
        if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            continue
        assert row.error_code == 0
        data = bytes(row.records)
        if not data:
            return found, fetches
        found += written(data)
        fetches += 1
        assert row.high_watermark >= next_offset(data) > place.offset
        place = place._replace(offset=next_offset(data))


def sent(partition: int, first: int = 0) -> list[bytes]:
    return [made_of(number, partition)[16:] for number in range(first, BATCHES)]


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("version", [4, 8, 11, 12, 18])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("topic", ["t", "d"])
def test_a_repeated_fetch_gets_byte_for_byte_what_a_decoded_one_gets(
    logs: Logs, known: Known, listener: str, version: int, committed: bool, topic: str
) -> None:
    with logs.peer(listener) as peer:
        place = Place(topic, 1, logs.start(topic, 1), committed)
        found, fetches = read(logs, peer, place, version, stranger=True)
    assert found == sent(1) and fetches >= 4
    assert known.now + known.later >= 1


def test_a_reader_gets_what_was_read_ahead(logs: Logs, known: Known) -> None:
    with logs.peer() as peer:
        assert read(logs, peer, Place("d", 2))[0] == sent(2)
        assert known.ranges is not None
        hits = known.ranges.hits
        assert read(logs, peer, Place("d", 2))[0] == sent(2)
    assert known.ranges.hits >= hits + 2


@pytest.mark.parametrize("listener", LISTENERS)
def test_fetches_sent_ahead_are_answered_in_their_order(
    logs: Logs, known: Known, listener: str
) -> None:
    with logs.peer(listener) as peer:
        for round_ in range(3):
            places = [Place("d", n % PARTITIONS, 20 * round_) for n in range(20)]
            peer.send(*(logs.frame(place, number=n) for n, place in enumerate(places)))
            for n, place in enumerate(places):
                number, row = logs.response(peer)
                assert (number, row.partition_index) == (n, place.partition)
                first = written(bytes(row.records))[0]
                assert first == sent(place.partition)[round_]
    assert known.now + known.later >= 10


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_client_that_leaves_with_reads_in_flight_does_not_affect_others(
    logs: Logs, known: Known, listener: str
) -> None:
    with logs.peer(listener) as patient:
        for _ in range(5):
            with logs.peer(listener) as rude:
                for place in (Place("d", 3), Place("d", 3, 140)):
                    logs.ask(rude, place)
                rude.send(*[logs.frame(Place("d", n % PARTITIONS, 20 * n)) for n in range(20)])
                rude.socket.recv(1000)
            assert read(logs, patient, Place("d", 3))[0] == sent(3)
    assert known.ranges is not None
    assert 0 <= known.ranges._ahead_bytes <= AHEAD_BYTES
    assert known.later


def test_records_deleted_through_another_broker_are_out_of_range_at_once(
    logs: Logs, known: Known
) -> None:
    logs.fill_topic("deleted")
    place = Place("deleted", 4)
    with logs.peer() as peer, logs.peer(broker=1) as deleter:
        for _ in range(3):
            rows = [logs.ask(peer, place) for _ in range(2)]
            after = next_offset(bytes(rows[-1].records))
            next_place = place._replace(offset=after)
            logs.ask(peer, next_place)  # what follows is read ahead now
            gone = DeleteRecordsPartition(partition_index=4, offset=after + 40)
            topics = [DeleteRecordsTopic(name="deleted", partitions=[gone])]
            asked = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
            assert deleter.ask("DeleteRecords", 2, asked).topics[0].partitions[0].error_code == 0
            for each in (place, next_place):
                assert logs.ask(peer, each).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            place = place._replace(offset=after + 40)
    assert known.now + known.later + known.decoded


@pytest.mark.parametrize("raised_by", ["this broker", "another broker"])
def test_a_repeated_fetch_that_names_an_earlier_epoch_gets_no_records(
    logs: Logs, known: Known, raised_by: str
) -> None:
    """Its client would not compare its position with records that were lost."""
    name = f"raised-by-{raised_by[:2]}"
    logs.fill_topic(name)
    with logs.peer() as peer, redis.Redis.from_url(logs.one.redis_url) as client:
        read(logs, peer, Place(name, 1))
        services, before = known.services, known.now + known.later
        epoch = services.epochs.epoch
        place = Place(name, 1, epoch=epoch)
        assert read(logs, peer, place)[0] == sent(1)
        assert known.now + known.later > before
        if raised_by == "this broker":
            services.epochs.epoch += 1
        else:
            key = services.keys.partition(name, 1).log
            client.hset(key, "epoch", epoch + 1)
        refused = ErrorCode.FENCED_LEADER_EPOCH
        try:
            # The state of the log that a repeated fetch uses is up to 50 ms old.
            assert until(lambda: logs.ask(peer, place).error_code == refused)
            assert {logs.ask(peer, place).error_code for _ in range(3)} == {refused}
        finally:
            services.epochs.epoch = epoch


def test_a_topic_that_was_made_again_has_none_of_the_old_records(logs: Logs, known: Known) -> None:
    logs.fill_topic("again")
    with logs.peer() as peer:
        for offset in (0, 140, 280):
            logs.ask(peer, Place("again", 0, offset), version=12)
        old = logs.ids["again"]
        logs.one.log.delete_topic("again")
        made_topic = logs.one.log.create_topic("again", 1, {"storage.format": "batch"})
        for offset in (280, 420):
            row = logs.ask(peer, Place("again", 0, offset), version=12)
            assert row.error_code in (
                ErrorCode.OFFSET_OUT_OF_RANGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            assert not row.records
            row = logs.ask(peer, Place("again", 0, offset), version=13)  # by the old id
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and not row.records
        assert old.hex != made_topic.id


def test_no_fetch_is_wrong_while_redis_closes_connections(logs: Logs, known: Known) -> None:
    import redis

    with redis.Redis.from_url(logs.one.redis_url) as admin, logs.peer() as peer:
        for _ in range(10):
            offset = 0
            for n in range(6):
                peer.send(logs.frame(Place("d", 0, offset)), logs.frame(Place("d", 1, offset)))
                if n == 3:
                    admin.client_kill_filter(_type="normal", skipme=True)
                rows = [logs.response(peer)[1] for _ in range(2)]
                for partition, row in enumerate(rows):
                    if row.error_code:
                        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                        continue
                    data = bytes(row.records)
                    assert written(data)[0] == sent(partition)[offset // 20]
                offset += 80
        assert read(logs, peer, Place("d", 0))[0] == sent(0)


def test_a_committed_fetch_ends_at_an_open_transaction(logs: Logs, known: Known) -> None:
    logs.fill_topic("open")
    producer = Producer(
        {"bootstrap.servers": logs.one.bootstrap_servers, "transactional.id": "open"}
    )
    producer.init_transactions(30)
    with logs.peer() as peer:
        assert read(logs, peer, Place("open", 0, committed=True))[0] == sent(0)
        producer.begin_transaction()
        producer.produce("open", b"x" * 300_000, partition=0)
        producer.flush(30)
        for end in ("abort", "commit"):
            for offset in (0, 140, 280, 420, 560):
                row = logs.ask(peer, Place("open", 0, offset, committed=True))
                found = written(bytes(row.records))
                assert found and found == sent(0, offset // 20)[: len(found)]
                assert row.last_stable_offset <= row.high_watermark
            row = logs.ask(peer, Place("open", 0, 600, committed=True))
            if end == "abort":
                assert not row.records and row.last_stable_offset == 600
                producer.abort_transaction(30)
            else:
                assert row.last_stable_offset > 600
