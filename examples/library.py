"""Use the log from Python without a broker: `python examples/library.py redis://localhost:6379`."""

import asyncio
import sys

from korvet import AsyncKorvet, Korvet, Record


def produce_and_read(url: str) -> None:
    """Create a topic, append records and read them."""
    with Korvet.connect(url) as log:
        log.create_topic("orders", partitions=2, configs={"retention.ms": "86400000"})
        log.produce("orders", [Record(b"3 cups", key=b"ann"), Record(b"2 plates", key=b"bob")])
        for partition in range(2):
            for record in log.records("orders", partition):
                print(record.partition, record.key, record.value)


def append_once(url: str) -> None:
    """Append a batch so that sending it again stores it once."""
    with Korvet.connect(url) as log:
        producer = log.new_producer()
        batch = [Record(b"1 spoon", key=b"ann")]
        for attempt in range(2):
            appended = log.append("orders", 0, batch, producer=producer, sequence=0)
            print("attempt", attempt, "duplicate" if appended.duplicate else "stored")


async def move_a_group(url: str) -> None:
    """Commit the newest offsets for a group, and print its lag."""
    async with await AsyncKorvet.connect(url) as log:
        await log.reset("kitchen", "orders", "latest")
        for row in await log.committed("kitchen"):
            print(row.topic, row.partition, "lag", row.lag)


if __name__ == "__main__":
    produce_and_read(sys.argv[1])
    append_once(sys.argv[1])
    asyncio.run(move_a_group(sys.argv[1]))
