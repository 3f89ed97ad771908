"""Programs that read partition 0 from the beginning without a reset policy: BOOTSTRAP TOPIC.

Each prints the values of the records, and ends with a line about records that Redis has lost.
This file is the one of kafka-python.
"""

import sys

from tests.interop import kafka_python
from tests.interop.jvm import HERE, prepared
from tests.support.programs import Build

CLIENTS = ("Java", "franz-go", "kafka-python")


def words(client: str, build: Build) -> list[str]:
    """Return the command of a client's program, which is built first."""
    if client == "Java":
        return prepared(build, HERE / "clients").words("Lost")
    if client == "franz-go":
        folder = build(HERE.parent / "go", ("go", "build", "-o", "lost.exe", "./lost"))
        return [str(folder / "lost.exe")]
    return [sys.executable, "-m", __name__]


def main(bootstrap: str, topic: str) -> None:
    partition = kafka_python.TopicPartition(topic, 0)
    with kafka_python.consumer(bootstrap, auto_offset_reset="none") as source:
        source.assign([partition])
        source.seek(partition, 0)
        try:
            while True:
                for records in source.poll(1000).values():
                    for record in records:
                        sys.stdout.write(f"{record.value.decode()}\n")
                sys.stdout.flush()
        except (
            kafka_python.errors.OffsetOutOfRangeError,
            kafka_python.errors.LogTruncationError,
        ) as error:
            sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
