"""A consume-transform-produce application.

`python -m tests.interop.transformer ADDRESS NAME FROM TO` copies FROM to TO in transactions, the
offsets of group NAME among them, and goes on until killed. Whatever goes wrong ends it: it is made
to be restarted.
"""

import signal
import sys

from confluent_kafka import Consumer, Producer

BATCH = 15
STUCK_S = 20


def main(address: str, name: str, origin: str, result: str) -> None:
    """The copy goes on for ever."""
    source = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": name,
            "group.instance.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    sink = Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    sink.init_transactions(30)
    source.subscribe([origin])
    while True:
        messages = [
            message for message in source.consume(BATCH, timeout=0.3) if not message.error()
        ]
        if not messages:
            sys.stdout.write("idle\n")
            sys.stdout.flush()
            continue
        # send_offsets_to_transaction may never return when its broker dies: then so do we.
        signal.alarm(STUCK_S)
        sink.begin_transaction()
        for message in messages:
            sink.produce(result, message.value(), partition=message.partition() % 2)
        position = source.position(source.assignment())
        sink.send_offsets_to_transaction(position, source.consumer_group_metadata(), 30)
        sink.commit_transaction(30)
        signal.alarm(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
