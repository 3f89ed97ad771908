"""Check groups of confluent-kafka: join, leave, static members, commits, a killed broker."""

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from tests.interop.brokers import SHORT_SESSION_MS, Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.librdkafka import consumer, eventually, producer, send, take
from tests.interop.members import Member, Writer, settled, union
from tests.interop.records import Record


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_missed(default_broker: Broker, assignor: str) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=6)

    def join() -> Member:
        return Member(address, group, topic, partition_assignment_strategy=assignor)

    with Writer(address, topic, 6) as writer:
        first, second = join(), join()
        settled([first, second], 6)
        writer.reach(100)
        others = [join() for _ in range(4)]
        settled([first, second, *others], 6)
        writer.reach(100)
        first.leave()
        others[0].leave()
        rest = [second, *others[1:]]
        settled(rest, 6)
        writer.reach(100)
        writer.stop()
        everyone = [first, second, *others]
        eventually(lambda: union(everyone) == writer.stored)
        for member in rest:
            member.leave()
    assert committed(address, group, topic, 6) == ends(address, topic, 6)


def test_the_group_takes_over_from_a_member_that_vanished(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=2)
    # It does not poll again, and leaves the group after max.poll.interval.ms.
    silent = consumer(
        address, group, session_timeout_ms=SHORT_SESSION_MS, max_poll_interval_ms=SHORT_SESSION_MS
    )
    lost: list[TopicPartition] = []

    def gone(_: Consumer, partitions: list[TopicPartition]) -> None:
        lost.extend(partitions)

    silent.subscribe([topic], on_lost=gone, on_revoke=gone)
    eventually(lambda: (silent.poll(0.1), silent.assignment())[1])
    with Member(address, group, topic) as member:
        settled([member], 2)
    # close() of librdkafka 2.16 may never return before on_lost was called, with Kafka too.
    eventually(lambda: (silent.poll(0.1), len(lost) == 2)[1])
    silent.close()


def test_commits_and_their_metadata_survive_the_group(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=2)
    offsets = send(producer(address), topic, [Record(b"%d" % n, b"v") for n in range(5)])
    first = consumer(address, group)
    first.subscribe([topic])
    take(first, 5)
    place = TopicPartition(topic, 0, offsets[2] + 1, metadata="as far as this")
    first.commit(offsets=[place], asynchronous=False)
    first.close()
    second = consumer(address, group)
    found, other = second.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
    assert (found.offset, found.metadata) == (offsets[2] + 1, "as far as this")
    assert other.offset == OFFSET_INVALID
    second.subscribe([topic])
    assert [message.offset() for message in take(second, 2)] == offsets[3:]
    second.close()


def test_a_new_group_starts_where_its_reset_policy_says(default_broker: Broker) -> None:
    address = default_broker.address
    topic = create_topic(address)
    sink = producer(address)
    send(sink, topic, [Record(b"old", b"v")])
    early = joined(consumer(address, topic_name("group")), topic)
    late = joined(consumer(address, topic_name("group"), auto_offset_reset="latest"), topic)
    # A record may arrive before `late` has requested the end: records are sent until it reads one.
    assert take(early, 1)[0].key() == b"old"

    def seen() -> object:
        send(sink, topic, [Record(b"new", b"v")])
        message = late.poll(0.1)
        return message is not None and message.error() is None and message.key() == b"new"

    eventually(seen)
    early.close()
    late.close()


def test_automatic_commits_happen_on_close(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    offsets = send(producer(address), topic, [Record(None, b"v")] * 3)
    source = joined(consumer(address, group, enable_auto_commit=True), topic)
    take(source, 3)
    source.close()
    assert committed(address, group, topic, 1) == [offsets[-1] + 1]


def test_a_static_member_comes_back_without_a_rebalance(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address, partitions=4)
    one = Member(address, group, topic, group_instance_id="one")
    with Member(address, group, topic, group_instance_id="two") as two:
        settled([one, two], 4)
        before, rebalances = one.assigned, two.rebalances
        one.leave()
        one = Member(address, group, topic, group_instance_id="one")
        settled([one, two], 4)
        assert one.assigned == before
        assert two.rebalances == rebalances
        one.leave()


def test_the_older_of_two_static_members_of_one_name_is_fenced(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    older = Member(address, group, topic, group_instance_id="one")
    settled([older], 1)
    with Member(address, group, topic, group_instance_id="one") as newer:
        settled([newer], 1)
        eventually(
            lambda: any(
                error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
                for error in older.errors
            )
        )
    older.leave()


def test_a_group_needs_a_protocol_in_common(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    with Member(address, group, topic, partition_assignment_strategy="range") as member:
        settled([member], 1)
        stranger = consumer(address, group, partition_assignment_strategy="roundrobin")
        stranger.subscribe([topic])
        refused = eventually(lambda: (found := stranger.poll(0.2)) and found.error())
        stranger.close()
    assert refused.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_a_subscription_by_pattern_finds_new_topics(default_broker: Broker) -> None:
    address, prefix = default_broker.address, topic_name("pattern")
    source = consumer(address, topic_name("group"), topic_metadata_refresh_interval_ms=200)
    source.subscribe([f"^{prefix}-.*"])
    source.poll(0.1)
    sink = producer(address)
    sink.produce(f"{prefix}-one", b"v")
    assert sink.flush(60) == 0
    found = eventually(lambda: (message := source.poll(0.2)) and not message.error() and message)
    assert found.topic() == f"{prefix}-one"
    source.close()


def test_a_consumer_without_membership_may_commit(default_broker: Broker) -> None:
    address, group = default_broker.address, topic_name("group")
    topic = create_topic(address)
    source = consumer(address, group)
    source.assign([TopicPartition(topic, 0)])
    source.commit(offsets=[TopicPartition(topic, 0, 17)], asynchronous=False)
    source.close()
    assert committed(address, group, topic, 1) == [17]


def test_a_commit_for_an_unknown_topic_is_refused(default_broker: Broker) -> None:
    source = consumer(default_broker.address, topic_name("group"))
    place = TopicPartition(topic_name("absent"), 0, 1)
    with pytest.raises(KafkaException) as refusal:
        source.commit(offsets=[place], asynchronous=False)
    source.close()
    assert refusal.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.slow
@pytest.mark.korvet_only
@pytest.mark.parametrize("death", [Broker.kill, Broker.kill_everything, Broker.stop])
def test_a_broker_that_dies_and_returns_disturbs_no_group(
    own_broker: Broker, death: Callable[[Broker], object]
) -> None:
    address, group = own_broker.address, topic_name("group")
    topic = create_topic(address, partitions=4)
    # Longer than the slowest start of a broker.
    long = {"session_timeout_ms": 60_000}
    with Member(address, group, topic, **long) as one, Member(address, group, topic, **long) as two:
        settled([one, two], 4)
        owned, rebalances = (one.assigned, two.assigned), (one.rebalances, two.rebalances)
        sink = producer(address)
        stored = {(p, o) for p in range(4) for o in send(sink, topic, [Record(None, b"v")], p)}
        eventually(lambda: union([one, two]) == stored)
        death(own_broker)
        own_broker.start()
        stored |= {(p, o) for p in range(4) for o in send(sink, topic, [Record(None, b"v")], p)}
        eventually(lambda: union([one, two]) == stored)
        assert (one.assigned, two.assigned) == owned
        assert (one.rebalances, two.rebalances) == rebalances
        assert max((one.seen + two.seen).values()) == 1


def joined(source: Consumer, topic: str) -> Consumer:
    """Subscribe, and return the consumer once it owns a partition."""
    ready: list[bool] = []
    source.subscribe([topic], on_assign=lambda *_: ready.append(True))

    def assigned() -> bool:
        # A record that arrives with the assignment is put back for the test to read.
        message = source.poll(0.05)
        if message is not None and message.error() is None:
            place = TopicPartition(message.topic(), message.partition(), message.offset())
            source.seek(place)
        return bool(ready)

    eventually(assigned)
    return source


def committed(address: str, group: str, topic: str, partitions: int) -> list[int]:
    """Return the group's committed offset of each partition."""
    source = consumer(address, group)
    found = source.committed([TopicPartition(topic, p) for p in range(partitions)], 10)
    source.close()
    return [place.offset for place in found]


def ends(address: str, topic: str, partitions: int) -> list[int]:
    """Return the end offset of each partition."""
    source = consumer(address)
    found = [
        source.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1]
        for p in range(partitions)
    ]
    source.close()
    return found
