"""Share groups with real share consumers: librdkafka's, Java's, franz-go's, and Kafka's tools."""

import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message

import korvet
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Jvm, Tools
from tests.interop.librdkafka import eventually, producer, send
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally, configure_group, share_consumer
from tests.support.programs import Build, check

GO = Path(__file__).parent / "go"
TOOLS = "org.apache.kafka.tools"
LOCK_S = 2
pytestmark = pytest.mark.needs_api(78)


def numbers(count: int, first: int = 0) -> list[Record]:
    return [Record(None, b"%d" % n) for n in range(first, first + count)]


def group_of(broker: Broker, **configs: str) -> str:
    """Return a new group that begins at the first record."""
    group = topic_name("share")
    configure_group(broker.address, group, **configs)
    return group


def test_three_members_get_each_record_once(broker: Broker) -> None:
    topic, group, tally = create_topic(broker.address, 2), group_of(broker), Tally()
    sink = producer(broker.address)
    send(sink, topic, numbers(300), 0)
    members = [ShareMember(broker.address, group, topic, tally) for _ in range(3)]
    send(sink, topic, numbers(300, 300), 1)
    for n in range(20):
        send(sink, topic, numbers(10, 600 + 10 * n), n % 2)
    eventually(lambda: len(tally.accepted) == 800)
    for member in members:
        member.stop()
    assert set(tally.delivered.values()) == {1}


def test_an_implicit_member_accepts_what_it_polled_before(broker: Broker) -> None:
    topic, group = create_topic(broker.address), group_of(broker)
    send(producer(broker.address), topic, numbers(100))
    seen: list[bytes] = []
    with share_consumer(broker.address, group, topic) as consumer:
        deadline = time.monotonic() + 60
        while len(seen) < 100 and time.monotonic() < deadline:
            seen += [message.value() or b"" for message in consumer.poll(0.5)]
        assert not any(error for error in consumer.commit_sync(10.0).values())
    assert sorted(seen) == sorted(b"%d" % n for n in range(100))
    with share_consumer(broker.address, group, topic) as consumer:
        assert len(consumer.poll(1.0)) == 0


def test_released_records_return_and_rejected_ones_do_not(broker: Broker) -> None:
    topic, group, tally = create_topic(broker.address), group_of(broker), Tally()
    send(producer(broker.address), topic, numbers(30))

    def choose(message: Message) -> AcknowledgeType:
        number = int(message.value() or b"")
        if number % 3 == 0:
            return AcknowledgeType.ACCEPT
        is_first = tally.delivered[b"%d" % number] == 1
        if number % 3 == 1:
            return AcknowledgeType.RELEASE if is_first else AcknowledgeType.ACCEPT
        return AcknowledgeType.REJECT

    member = ShareMember(broker.address, group, topic, tally, choose)
    eventually(lambda: len(tally.accepted) == 20)
    member.stop()
    times = {n: tally.delivered[b"%d" % n] for n in range(30)}
    assert times == {n: 2 if n % 3 == 1 else 1 for n in range(30)}


def test_a_record_is_delivered_at_most_as_often_as_the_limit(default_broker: Broker) -> None:
    group = group_of(default_broker, share_delivery_count_limit="3")
    topic, tally = create_topic(default_broker.address), Tally()
    sink = producer(default_broker.address)
    send(sink, topic, numbers(5))
    member = ShareMember(
        default_broker.address, group, topic, tally, lambda _: AcknowledgeType.RELEASE
    )
    eventually(lambda: sum(tally.delivered.values()) >= 15)
    send(sink, topic, numbers(1, 5))
    eventually(lambda: tally.delivered[b"5"] == 3)
    member.stop()
    assert set(tally.delivered.values()) == {3}


@pytest.mark.korvet_only
def test_a_released_record_returns_after_a_delay_that_grows(default_broker: Broker) -> None:
    group = group_of(default_broker, share_retry_backoff_ms="300", share_retry_backoff_max_ms="500")
    topic, tally = create_topic(default_broker.address), Tally()
    send(producer(default_broker.address), topic, numbers(1))
    times: list[float] = []

    def choose(message: Message) -> AcknowledgeType:
        times.append(time.monotonic())
        return AcknowledgeType.RELEASE if len(times) < 4 else AcknowledgeType.ACCEPT

    member = ShareMember(default_broker.address, group, topic, tally, choose)
    eventually(lambda: len(tally.accepted) == 1)
    member.stop()
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert [wait >= least for wait, least in zip(waits, (0.3, 0.5, 0.5), strict=True)] == [True] * 3
    # The record lock would be 30 s.
    assert sum(waits) < 15


def test_committed_records_only_reach_a_group_of_read_committed(broker: Broker) -> None:
    group = group_of(broker, share_isolation_level="read_committed")
    topic, tally = create_topic(broker.address), Tally()
    sink = producer(broker.address, transactional_id=topic_name("tx"))
    sink.init_transactions(30)
    member = ShareMember(broker.address, group, topic, tally)
    for n in range(9):
        sink.begin_transaction()
        for record in numbers(10, 10 * n):
            sink.produce(topic, value=record.value)
        sink.flush(30)
        if n % 3 == 1:
            sink.abort_transaction(30)
        else:
            sink.commit_transaction(30)
    eventually(lambda: len(tally.accepted) == 60)
    member.stop()
    kept = [n for n in range(90) if n // 10 % 3 != 1]
    assert tally.delivered == Counter(b"%d" % n for n in kept)


@pytest.fixture(scope="session")
def franz_go(build: Build) -> Path:
    """The program of a share consumer of franz-go."""
    return build(GO, ("go", "build", "-o", "share", ".")) / "share"


def fill_with_numbers(broker: Broker) -> str:
    """Create a topic with the numbers 0 to 59 in three batches."""
    topic, sink = create_topic(broker.address), producer(broker.address)
    for n in range(3):
        send(sink, topic, numbers(20, 20 * n))
    return topic


def check_answers(said: Sequence[Sequence[str]], mode: str) -> None:
    """Check that each number was delivered as often as its acknowledgements require."""
    assert said[-1][:3] == ["end", "60", "[]"]
    # Whole batches may have more records than the limit.
    assert said[-1][3] == "within" or mode == "batch_optimized"
    assert ["renewed", "0", "1"] in said
    got = Counter((int(number), int(times)) for word, number, times in said[:-1] if word == "got")
    expected = {(n, 1) for n in range(60)} | {(n, 2) for n in range(60) if n % 3 == 1}
    assert set(got) == expected and set(got.values()) == {1}


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_javas_share_consumer_acknowledges_every_way(broker: Broker, java: Jvm, mode: str) -> None:
    topic, group = fill_with_numbers(broker), group_of(broker)
    lines = java.run("Share", broker.address, topic, group, "60", mode).splitlines()
    check_answers([line.split("\t") for line in lines], mode)


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_franz_gos_share_consumer_acknowledges_every_way(
    broker: Broker, franz_go: Path, mode: str
) -> None:
    topic, group = fill_with_numbers(broker), group_of(broker)
    lines = check([str(franz_go), broker.address, topic, group, "60", mode], seconds=90)
    check_answers([line.split("\t") for line in lines.splitlines()], mode)


def test_kafkas_tools_show_and_move_a_share_group(
    default_broker: Broker, java_tools: Tools
) -> None:
    address = default_broker.address
    topic, group, tally = create_topic(address), group_of(default_broker), Tally()
    send(producer(address), topic, numbers(20))
    member = ShareMember(address, group, topic, tally)
    eventually(lambda: len(tally.accepted) == 20)

    def groups(*words: str) -> str:
        place = ("--bootstrap-server", address, "--group", group)
        return java_tools.tool(f"{TOOLS}.consumer.group.ShareGroupCommand", *place, *words)

    assert group in groups("--describe", "--members")
    member.stop()
    rows = [line.split() for line in groups("--describe", "--offsets").splitlines()]
    assert [row[-1] for row in rows if topic in row] == ["0"]
    groups("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    rows = [line.split() for line in groups("--describe", "--offsets").splitlines()]
    assert [row[-1] for row in rows if topic in row] == ["20"]
    again = Tally()
    member = ShareMember(address, group, topic, again)
    eventually(lambda: len(again.accepted) == 20)
    member.stop()


def test_kafkas_verifiable_share_consumer_finds_all_records(
    default_broker: Broker, java_tools: Tools
) -> None:
    topic, group = create_topic(default_broker.address), group_of(default_broker)
    send(producer(default_broker.address), topic, numbers(50))
    said = java_tools.tool(
        f"{TOOLS}.VerifiableShareConsumer",
        "--bootstrap-server",
        default_broker.address,
        "--topic",
        topic,
        "--group-id",
        group,
        "--max-messages",
        "50",
        "--acknowledgement-mode",
        "sync",
    )
    assert '"name":"records_consumed"' in said and '"success":true' in said


@pytest.mark.korvet_only
@pytest.mark.slow
@pytest.mark.parametrize("redis_too", [False, True], ids=["broker", "broker and Redis"])
def test_nothing_accepted_returns_after_a_kill(tmp_path: Path, redis_too: bool) -> None:
    """Acquired records return after their lock expires; accepted ones do not."""
    settings = {"group.share.record.lock.duration.ms": f"{LOCK_S}000"}
    with Broker(tmp_path, settings) as broker:
        address = broker.address
        topic, group, tally = create_topic(address, 2), group_of(broker), Tally()
        sink, began = producer(address), time.monotonic()
        send(sink, topic, numbers(5))
        holder = share_consumer(address, group, topic, share_acknowledgement_mode="explicit")
        held: list[Message] = []
        while len(held) < 5:
            held += holder.poll(0.5)
        for partition in (0, 1):
            send(sink, topic, numbers(400, 5 + 400 * partition), partition)
        place = (address, group, topic)
        members = [ShareMember(*place, tally, max_poll_records="7") for _ in range(2)]
        eventually(lambda: len(tally.accepted) >= 50)
        if redis_too:
            broker.kill_everything()
        else:
            broker.kill()
        broker.start()
        eventually(lambda: len(tally.accepted | tally.unsure) == 805)
        for member in members:
            member.stop()
        assert tally.again == []
        assert len(tally.accepted) > 700
        returned = [tally.at[b"%d" % n] for n in range(5)]
        assert min(returned) >= began + LOCK_S
        # A count is the deliveries seen, and at most one whose response was lost by the kill.
        assert [tally.counts[b"%d" % n] for n in range(5)] == [2] * 5
        seen = tally.delivered
        unseen = {count - seen[value] for value, count in tally.counts.items() if int(value) >= 5}
        assert unseen <= {0, 1}
        assert "Traceback" not in broker.log


@pytest.mark.korvet_only
@pytest.mark.parametrize("way", ["stop", pytest.param("kill", marks=pytest.mark.slow)])
def test_members_continue_at_another_broker(own_redis: str, tmp_path: Path, way: str) -> None:
    """The locks of a killed broker's members expire."""
    space = ("--redis", own_redis, "--namespace", topic_name("two"))
    settings = {"group.share.record.lock.duration.ms": f"{LOCK_S}000"}
    first, second = (
        Broker(tmp_path / node, settings, (*space, "--node-id", node)) for node in ("1", "2")
    )
    with first, second:
        both = f"{first.address},{second.address}"
        topic, group, tally = create_topic(both, 4), group_of(second), Tally()
        members = [ShareMember(both, group, topic, tally, max_poll_records="5") for _ in range(3)]
        sink = producer(both)
        for n in range(80):
            send(sink, topic, numbers(10, 10 * n), n % 4)
            if n == 40:
                eventually(lambda: len(tally.accepted) > 100)
                getattr(first, way)()
        eventually(lambda: len(tally.accepted | tally.unsure) == 800)
        for member in members:
            member.stop()
        assert tally.again == []
        assert len(tally.accepted) > 700
        assert "Traceback" not in first.log + second.log
        first.start()


@pytest.mark.korvet_only
def test_a_broker_that_stops_releases_what_its_members_hold(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        topic, group = create_topic(broker.address), group_of(broker)
        send(producer(broker.address), topic, numbers(5))
        holder = share_consumer(broker.address, group, topic, share_acknowledgement_mode="explicit")
        held: list[Message] = []
        while len(held) < 5:
            held += holder.poll(0.5)
        assert broker.stop() == 0
        broker.start()
        stopped, found = time.monotonic(), list[Message]()
        with share_consumer(broker.address, group, topic) as other:
            while len(found) < 5:
                found += other.poll(0.5)
        # The record lock is 30 s.
        assert time.monotonic() - stopped < 20
        assert [message.delivery_count() for message in found] == [2] * 5


@pytest.mark.korvet_only
def test_a_member_of_the_library_shares_the_records(tmp_path: Path, own_redis: str) -> None:
    broker = Broker(tmp_path, {}, ("--redis", own_redis, "--namespace", "shared"))
    with broker, korvet.Korvet.connect(own_redis, namespace="shared") as log:
        topic, group, tally = create_topic(broker.address), topic_name("share"), Tally()
        log.configure_group(group, {"share.auto.offset.reset": "earliest"})
        member = ShareMember(broker.address, group, topic, tally, max_poll_records="5")
        taken: Counter[bytes] = Counter()
        with log.share_consumer(group, topic, max_records=5, idle_s=0.05) as consumer:

            def is_shared() -> bool:
                log.produce(topic, [korvet.Record(b"%d" % n) for n in range(100)])
                for record in consumer:
                    taken[record.value or b""] += 1
                    consumer.acknowledge(record)
                return bool(consumer.assignment and taken and tally.accepted)

            eventually(is_shared)
            sent = log.offsets(topic)[0].records
            eventually(lambda: sum(tally.delivered.values()) + taken.total() == sent)
        member.stop()
        found = tally.delivered + taken
        assert set(found.values()) == {sent // 100} and len(found) == 100


@pytest.mark.korvet_only
def test_java_gets_the_records_that_the_library_has_not(
    tmp_path: Path, own_redis: str, java: Jvm
) -> None:
    options = ("--redis", own_redis, "--namespace", "java")
    made = korvet.Korvet.connect(own_redis, namespace="java")
    with Broker(tmp_path, {}, options) as broker, made as log:
        topic, group = create_topic(broker.address), topic_name("share")
        log.configure_group(group, {"share.auto.offset.reset": "earliest"})
        log.produce(topic, [korvet.Record(b"%d" % n) for n in range(60)])
        with log.share_consumer(group, topic, max_records=21, idle_s=0) as consumer:
            mine = [next(consumer) for _ in range(21)]
            said = java.run("Share", broker.address, topic, group, "39", "record_limit")
            words = [line.split("\t") for line in said.splitlines()]
            assert words[-1] == ["end", "39", "[]", "within"]
            assert {int(row[1]) for row in words if row[0] == "got"} == set(range(21, 60))
            for record in mine:
                consumer.acknowledge(record)
            assert [record.value for record in consumer] == []


@pytest.mark.korvet_only
def test_a_share_consumer_takes_the_jobs_of_a_queue(tmp_path: Path, own_redis: str) -> None:
    broker = Broker(tmp_path, {}, ("--redis", own_redis, "--namespace", "jobs"))
    with broker, korvet.Korvet.connect(own_redis, namespace="jobs") as log:
        queue, tally = korvet.Queue(log, topic_name("queue")), Tally()
        queue.create(partitions=1, order="key")
        for n in range(10):
            queue.enqueue(b"%d" % n, key=b"k", unique=f"{n // 2}", delay_s=0.1 * (n == 9))
        member = ShareMember(broker.address, queue.group, queue.name, tally)
        eventually(lambda: len(tally.accepted) == 5)
        member.stop()
        assert list(tally.delivered.items()) == [(b"%d" % n, 1) for n in (0, 2, 4, 6, 8)]
        # The broker has deleted the finished jobs.
        eventually(lambda: log.offsets(queue.name)[0].records == 0)
