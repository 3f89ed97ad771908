"""A consume-transform-produce application of confluent-kafka, at its client's default settings.

Run `python -m tests.interop.transformer ADDRESS NAME FROM TO [SETTING=VALUE...]`.
It copies FROM to TO in transactions that include the offsets of group NAME, until it is killed.
Any error ends it, and the test restarts it. The settings are the consumer's, for a shorter test.
"""

import signal
import sys
import time

from confluent_kafka import Consumer, Producer

BATCH = 15
WORK_S = 0.01
STUCK_S = 10


def main(address: str, name: str, origin: str, result: str, *settings: str) -> None:
    """Copy records until the process is killed."""
    about = {"bootstrap.servers": address, "log_level": 0}
    own = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    source = Consumer({**about, **own, **dict(pair.split("=") for pair in settings)})
    sink = Producer({**about, "transactional.id": name})
    try:
        sink.init_transactions()
        source.subscribe([origin])
        while True:
            pass_on(source, sink, result)
    finally:
        source.close()


def pass_on(source: Consumer, sink: Producer, result: str) -> None:
    """Copy the records that have arrived, in one transaction."""
    messages = [message for message in source.consume(BATCH, timeout=0.3) if not message.error()]
    if not messages:
        return
    # send_offsets_to_transaction of librdkafka up to 2.16 may never return, whatever its timeout:
    # if the cached coordinator is from before all brokers were down (its issues 5456 and 5511).
    # The alarm ends the application then.
    signal.alarm(STUCK_S)
    sink.begin_transaction()
    for message in messages:
        sink.produce(result, message.value(), partition=message.partition() % 2)
    time.sleep(WORK_S)
    position = source.position(source.assignment())
    sink.send_offsets_to_transaction(position, source.consumer_group_metadata())
    sink.commit_transaction()
    signal.alarm(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
