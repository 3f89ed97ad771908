"""Test a Kafka application against a broker in the test process: `pytest examples/pytest`."""

from confluent_kafka import Consumer, Producer

from korvet.testing import Broker

pytest_plugins = ["korvet.testing.fixtures"]


def send_order(bootstrap_servers: str, order: bytes) -> None:
    """Send one order: the application under test."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("orders", order)
    assert producer.flush(10) == 0


def test_an_order_is_stored(korvet_broker: Broker) -> None:
    korvet_broker.log.create_topic("orders", partitions=1)
    send_order(korvet_broker.bootstrap_servers, b"3 cups")
    assert [record.value for record in korvet_broker.log.records("orders", 0)] == [b"3 cups"]


def test_an_order_is_sent_again_after_a_leader_change() -> None:
    with Broker(topics={"orders": 1}) as broker:
        broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        send_order(broker.bootstrap_servers, b"3 cups")
        assert [record.value for record in broker.log.records("orders", 0)] == [b"3 cups"]


def test_a_consumer_continues_after_a_restart_of_the_broker() -> None:
    with Broker(topics={"orders": 1}) as broker:
        send_order(broker.bootstrap_servers, b"3 cups")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "kitchen",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        first = consumer.poll(10)
        broker.restart()
        send_order(broker.bootstrap_servers, b"2 plates")
        second = consumer.poll(10)
        consumer.close()
        assert first is not None and second is not None
        assert [first.value(), second.value()] == [b"3 cups", b"2 plates"]
