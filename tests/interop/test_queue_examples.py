"""Run the examples of the pages on queues unchanged, on a broker with its defaults."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message

from tests.interop.brokers import Broker
from tests.interop.jvm import Tools
from tests.interop.librdkafka import eventually, producer, read, send
from tests.interop.records import Record
from tests.interop.share_members import ShareMember, Tally
from tests.support.pages import run_by

pytestmark = pytest.mark.korvet_only
COMMANDS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-share-groups.sh": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
}
LOCAL = "localhost:9092"


def examples(page: str, language: str) -> list[str]:
    """Return the code of a page in one language, in order."""
    return [block.code for block in run_by(__file__, f"docs/concepts/{page}", language)]


class Shell:
    """A shell in the folder of a broker that was started with `python -m korvet`."""

    def __init__(self, folder: Path, tools: Tools) -> None:
        self.broker = Broker(folder)
        self.broker.start()
        self._folder = folder
        (folder / "korvet-data").symlink_to(folder / "data")
        programs = folder / "bin"
        programs.mkdir()
        for name, main in COMMANDS.items():
            words = " ".join(f"'{word}'" for word in tools.words(main))
            (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}

    def start(self, code: str, *words: str) -> "subprocess.Popen[str]":
        """Start a process that runs the code with an interpreter."""
        return subprocess.Popen(
            [*words, code.replace(LOCAL, self.broker.address)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, code: str) -> str:
        """Run the commands, which must succeed, and return their output."""
        done = self.start(code, "sh", "-ec")
        reported, _ = done.communicate(timeout=90)
        assert done.returncode == 0, reported
        return reported

    def lines_until(self, process: "subprocess.Popen[str]", last: str) -> list[str]:
        """Return the lines that a process prints up to `last`, and interrupt the process."""
        assert process.stdout is not None
        found: list[str] = []
        with process:
            for line in process.stdout:
                found.append(line.strip())
                if last in line:
                    break
            # Ctrl-C, as a user ends it.
            process.send_signal(signal.SIGINT)
        return found


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, java_tools: Tools) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("examples"), java_tools)
    made.run("korvet topics create orders --partitions 2")
    yield made
    made.broker.close()
    assert "Traceback" not in made.broker.log


def send_orders(shell: Shell, *values: bytes) -> None:
    send(producer(shell.broker.address), "orders", [Record(b"k", value) for value in values])


def test_the_first_share_consumer_gets_the_records(shell: Shell) -> None:
    (consumer,) = examples("queues.md", "python")
    from_the_beginning, commands = examples("queues.md", "sh")
    shell.run(from_the_beginning)
    send_orders(shell, b"one", b"two")
    found = shell.lines_until(shell.start(consumer, sys.executable, "-uc"), "two")
    # librdkafka calls its share consumer a preview.
    assert [line for line in found if "Preview" not in line] == ["b'one'", "b'two'"]
    eventually(lambda: "Stable" not in shell.run("korvet queues list"))
    reported = shell.run(commands.replace("korvet groups delete jobs\n", ""))
    assert "jobs\tEmpty" in reported and "jobs: Empty" in reported
    assert "orders\t0\t" in reported
    assert "deleted jobs" in shell.run("korvet groups delete jobs")


def test_a_rejected_record_is_a_dead_letter_and_returns(shell: Shell) -> None:
    (code,) = examples("dead-letters.md", "sh")
    setup, _, rest = code.partition("korvet consume")
    assert rest
    shell.run(setup)
    address, tally = shell.broker.address, Tally()

    def choose(message: Message) -> AcknowledgeType:
        is_bad = message.value() == b"bad" and tally.delivered[b"bad"] == 1
        return AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT

    member = ShareMember(address, "workers", "orders", tally, choose)
    eventually(lambda: "workers\tStable" in shell.run("korvet queues list"))
    # Before its first read of the partition the group begins at the end, so `good` is sent again.
    eventually(lambda: send_orders(shell, b"good") or b"good" in tally.accepted)
    send_orders(shell, b"bad")
    eventually(lambda: tally.delivered[b"bad"] == 1)
    assert read(address, "dlq.orders", 1)[0].value() == b"bad"
    reported = shell.run(f"korvet consume{rest}")
    assert "bad" in reported and "1 records put back" in reported
    eventually(lambda: b"bad" in tally.accepted)
    member.stop()


def test_a_delayed_record_is_listed_cancelled_and_read(shell: Shell) -> None:
    code = examples("scheduled-records.md", "sh")[0]
    setup, consume, cancel = re.split(r"^(korvet consume .*\n)", code, flags=re.MULTILINE)
    name = "-H korvet-schedule-id=tea-1"
    shell.run("korvet topics create reminders --config delivery.schedule.enable=true")
    shell.run(f"printf x | korvet produce reminders -H korvet-delay-ms=60000 {name}")
    reported = shell.run(setup.partition("\n")[2])
    assert len(re.findall(r"^\d+\t", reported, re.MULTILINE)) == 2 and "tea-1" in reported
    shell.run(cancel)
    assert "tea-1" not in shell.run("korvet schedule list reminders")
    found = shell.lines_until(shell.start(f"exec {consume}", "sh", "-ec"), "drink tea")
    assert len(found) == 1
