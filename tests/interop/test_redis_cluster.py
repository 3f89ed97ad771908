"""A broker whose Redis is a cluster of three masters: real clients see no difference."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from tests.conformance.cases.shares import looking, moving
from tests.interop.brokers import Broker
from tests.interop.conftest import create_topic, topic_name
from tests.interop.jvm import Tools
from tests.interop.librdkafka import consumer, eventually, producer, read, send, take
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally, configure_group
from tests.interop.test_streams_groups import counting, tasks
from tests.store.cluster_topology import cluster
from tests.support.raw_client import Peer as Wire

pytestmark = pytest.mark.korvet_only


@pytest.fixture(scope="module")
def on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on its own cluster."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with cluster() as redis:
        broker = Broker(folder, options=("--redis", redis.url))
        broker.start()
        yield broker
        broker.close()
    assert "Traceback" not in broker.log


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("form", ["record", "batch"])
def test_topics_live_and_die_on_a_cluster(on_cluster: Broker, form: str, mode: str) -> None:
    address = on_cluster.address
    name = create_topic(address, 6, storage_format=form, offset_mode=mode)
    sink = producer(address)
    for partition in range(6):
        send(sink, name, [Record(b"k", b"%d" % n) for n in range(20)], partition)
    for partition in range(6):
        found = read(address, name, 20, partition=partition)
        assert [message.value() for message in found] == [b"%d" % n for n in range(20)]
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_partitions([NewPartitions(name, 8)])[name].result(60)
    eventually(lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == 8)
    admin.delete_topics([name])[name].result(60)
    eventually(lambda: name not in admin.list_topics(timeout=60).topics)
    with pytest.raises(KafkaException):
        admin.delete_topics([name])[name].result(60)


def test_a_group_commits_and_continues_from_there(on_cluster: Broker) -> None:
    address, group = on_cluster.address, topic_name("group")
    name = create_topic(address, 3)
    sink = producer(address, enable_idempotence=True)
    for partition in range(3):
        send(sink, name, [Record(b"k", b"%d" % n) for n in range(5)], partition)
    first = consumer(address, group)
    first.subscribe([name])
    assert len(take(first, 15)) == 15
    first.commit(asynchronous=False)
    first.close()
    send(sink, name, [Record(b"k", b"later")], 1)
    second = consumer(address, group)
    second.subscribe([name])
    assert [message.value() for message in take(second, 1)] == [b"later"]
    second.close()


def test_a_transaction_is_committed_across_slots(on_cluster: Broker) -> None:
    address = on_cluster.address
    name = create_topic(address, 4)
    sink = producer(address, transactional_id=topic_name("txn"))
    sink.init_transactions(60)
    for word, ends in (("lost", sink.abort_transaction), ("kept", sink.commit_transaction)):
        sink.begin_transaction()
        for partition in range(4):
            sink.produce(name, word.encode(), partition=partition)
        sink.flush(60)
        ends(60)
    for partition in range(4):
        found = read(address, name, 1, partition=partition, isolation_level="read_committed")
        assert [message.value() for message in found] == [b"kept"]


def test_scheduled_records_are_appended_in_every_slot(on_cluster: Broker) -> None:
    name = create_topic(on_cluster.address, 6, delivery_schedule_enable="true")
    sink = producer(on_cluster.address, enable_idempotence=True)
    for partition in range(6):
        for delay in (b"300", b"100"):
            headers = [("korvet-delay-ms", delay)]
            sink.produce(name, delay, partition=partition, headers=headers)
    assert sink.flush(60) == 0
    for partition in range(6):
        found = read(on_cluster.address, name, 2, partition=partition)
        assert [message.value() for message in found] == [b"100", b"300"]


def test_a_share_group_reads_partitions_in_all_slots_and_is_deleted(on_cluster: Broker) -> None:
    address, group = on_cluster.address, topic_name("share")
    name = create_topic(address, 6)
    configure_group(address, group)
    sink, tally = producer(address), Tally()
    for partition in range(6):
        send(sink, name, [Record(b"k", b"%d-%d" % (partition, n)) for n in range(20)], partition)
    members = [ShareMember(address, group, name, tally) for _ in range(2)]
    eventually(lambda: len(tally.accepted) == 120)
    for member in members:
        member.stop()
    assert set(tally.delivered.values()) == {1}
    with Wire(address) as wire:
        answer = wire.ask("DescribeShareGroupOffsets", 1, looking(group))
        (topic,) = answer.groups[0].topics
        assert [row.lag for row in topic.partitions] == [0] * 6
        back = moving(group, *((number, 0) for number in range(6)), topic=name)
        moved = wire.ask("AlterShareGroupOffsets", 0, back)
        assert [row.error_code for row in moved.responses[0].partitions] == [0] * 6
        answer = wire.ask("DescribeShareGroupOffsets", 1, looking(group))
        assert [row.lag for row in answer.groups[0].topics[0].partitions] == [20] * 6
        deletion = DeleteGroupsRequest(groups_names=[group])
        assert wire.ask("DeleteGroups", 2, deletion).results[0].error_code == 0
        assert wire.ask("DescribeShareGroupOffsets", 1, looking(group)).groups[0].topics == []


def test_dead_letters_of_all_slots_arrive_in_their_queue_and_return(on_cluster: Broker) -> None:
    address, group = on_cluster.address, topic_name("share")
    name, queue = create_topic(address, 6), f"dlq.{group}"
    config = {"errors.deadletterqueue.group.enable": "true"}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(queue, 1, 1, config=config)])[queue].result(60)
    configure_group(
        address,
        group,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )
    sink, tally = producer(address), Tally()

    def choose(message: Message) -> AcknowledgeType:
        is_first = tally.delivered[message.value() or b""] == 1
        return AcknowledgeType.REJECT if is_first else AcknowledgeType.ACCEPT

    for partition in range(6):
        send(sink, name, [Record(b"k", b"%d-%d" % (partition, n)) for n in range(5)], partition)
    members = [ShareMember(address, group, name, tally, choose) for _ in range(2)]
    found = sorted(message.value() or b"" for message in read(address, queue, 30))
    assert found == [b"%d-%d" % (partition, n) for partition in range(6) for n in range(5)]
    url = on_cluster.options[1]
    command = [sys.executable, "-m", "korvet", "queues", "replay", queue, "--redis", url]
    reported = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert reported == "30 records put back\n"
    eventually(lambda: len(tally.accepted) == 30)
    for member in members:
        member.stop()
    assert set(tally.delivered.values()) == {2}


@pytest.mark.slow
def test_a_streams_application_has_internal_topics_in_all_slots(
    on_cluster: Broker, tmp_path: Path, java_tools: Tools
) -> None:
    with counting(java_tools, tmp_path, on_cluster.address, partitions=6) as words:
        words.instance("processing.guarantee=exactly_once_v2")
        words.write(30)
        eventually(words.counted, 120)
        assert set(words.counts.by_word.values()) == {30}
        found = words.described()
        assert (found.group_state, len(tasks(found, "active"))) == ("Stable", 12)
