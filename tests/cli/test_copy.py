"""Check `korvet copy`: what is kept, other partitions and layouts, continued and fenced runs."""

import zlib
from typing import Any

import pytest

from korvet import Record
from korvet.cli import copy
from tests.cli.conftest import Lines, lines_of
from tests.support.running_console import RunningConsole, where_of

FORMAT = ("-f", "%p|%k|%s|%h|%T\n")


@pytest.fixture(params=["brokers", "redis"])
def korvet(
    broker: RunningConsole, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> Lines:
    return lines_of(capfd, where_of(broker, request.param))


@pytest.fixture
def source(broker: RunningConsole, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions with records, and a name for its copy."""
    name = f"c{zlib.crc32(request.node.nodeid.encode())}"
    broker.log.create_topic(name, 3)
    for number in range(3):
        records = [
            Record(b"v%d" % n, b"k%d" % n if n % 2 else None, [("h", b"%d" % n)], 1000 + n)
            for n in range(40)
        ]
        broker.log.append(name, number, records)
    return name


def test_a_copy_has_what_the_topic_has_and_continues(
    korvet: Lines, broker: RunningConsole, source: str
) -> None:
    target = f"{source}-copy"
    configs = ("-c", "storage.format=batch", "-c", "offset.mode=dense")
    said = f"copied 120 records from {source} to {target}"
    assert korvet("copy", source, target, *configs)[1] == [said]
    assert broker.log.topic(target).storage_format == "batch"
    assert korvet("consume", target, *FORMAT) == korvet("consume", source, *FORMAT)
    broker.log.append(source, 1, [Record(b"later", b"k")])
    assert korvet("copy", source, target)[1][0].startswith("copied 1 records")
    assert korvet("copy", source, target)[1][0].startswith("copied 0 records")
    middle = korvet("consume", source, "-p", "2", "-n", "10", "-g", f"{source}-g")[1]
    assert korvet("copy", source, target, "-g", f"{source}-g")[1][1:] == [
        f"committed the offsets of {source}-g"
    ]
    rest = korvet("consume", target, "-p", "2", "-g", f"{source}-g")[1]
    assert [*middle, *rest] == korvet("consume", source, "-p", "2")[1]


def test_keys_choose_the_partition_in_a_topic_of_another_size(
    korvet: Lines, broker: RunningConsole, source: str
) -> None:
    target = f"kafka://{broker.bootstrap}/{source}-copy"
    assert korvet("copy", f"kafka://{broker.bootstrap}/{source}", target, "-p", "5")[0] == 0
    rows = [row.split("|") for row in korvet("consume", f"{source}-copy", *FORMAT)[1]]
    assert sorted(row[1:] for row in rows) == sorted(
        row.split("|")[1:] for row in korvet("consume", source, *FORMAT)[1]
    )
    partitions: dict[str, set[str]] = {}
    for number, key, *_ in rows:
        partitions.setdefault(key, set()).add(number)
    assert all(len(found) == 1 for key, found in partitions.items() if key)
    code, _, said = korvet("copy", source, f"{source}-copy", "-g", "g")
    assert code == 2 and "only if both topics have equal partitions" in said


def test_a_run_that_was_ended_leaves_nothing_of_its_transaction(
    korvet: Lines, broker: RunningConsole, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, calls = f"{source}-copy", 0
    commit = copy._Copier._commit_progress

    async def end(self: Any, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the first one begins the copy
            raise KeyboardInterrupt
        await commit(self, *arguments)

    monkeypatch.setattr(copy._Copier, "_commit_progress", end)
    assert korvet("copy", source, target)[0] == 130
    committed = ("--isolation-level", "read_committed")
    said = f"copied 120 records from {source} to {target}"
    assert korvet("copy", source, target) == (0, [said], "")
    assert len(korvet("consume", target, *committed)[1]) == 120


def test_a_topic_with_other_records_is_no_copy(
    korvet: Lines, broker: RunningConsole, source: str
) -> None:
    target = f"{source}-copy"
    broker.log.create_topic(target, 3)
    broker.log.append(target, 0, [Record(b"x")])
    code, _, said = korvet("copy", source, target)
    assert code == 2 and "has records, and no progress of a copy" in said
    assert korvet("copy", source, target, "--append")[0] == 0
    assert len(korvet("consume", target)[1]) == 121
    assert "is not kafka://HOST:PORT/TOPIC" in korvet("copy", "kafka://a:1", target)[2]
    assert "There is no topic 'absent'" in korvet("copy", "absent", target)[2]
