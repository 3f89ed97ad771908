"""Check backup and restore with real clients: equal records, groups that continue, refusals."""

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from korvet.cli import run
from korvet.embedded_redis.server import RedisServer
from korvet.remote_log.recovery import backup as backup_module
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from korvet.testing import Broker

SHAPES = {
    "record-time": {"storage.format": "record", "offset.mode": "time"},
    "record-dense": {"storage.format": "record", "offset.mode": "dense"},
    "batch-time": {"storage.format": "batch", "offset.mode": "time"},
    "batch-dense": {"storage.format": "batch", "offset.mode": "dense"},
    "stamped": {"storage.format": "batch", "message.timestamp.type": "LogAppendTime"},
    "compacted": {"storage.format": "record", "cleanup.policy": "compact"},
}
Rows = list[tuple[Any, ...]]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def korvet(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; return exit code, stdout and stderr."""

    def command(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return command


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty Redis."""
    with RedisServer.launch(str(tmp_path / "other")) as server:
        yield server


def producer_of(options: dict[str, Any]) -> Producer:
    """Return a producer that logs nothing after its broker has stopped."""
    return Producer({**options, "log_level": 0})


def read(servers: str, topic: str, level: str) -> Rows:
    """Return the topic's records as a consumer gets them, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": level,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0 if number < 0 else -2) for number in (0, 1)])
    rows: Rows = []
    ended: set[int] = set()
    until = monotonic() + 20
    while len(ended) < 2:
        assert monotonic() < until, (topic, level, len(rows))
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
            continue
        rows.append(
            (
                message.partition(),
                message.offset(),
                message.timestamp(),
                message.key(),
                message.value(),
                message.headers(),
            )
        )
    consumer.close()
    return sorted(rows, key=lambda row: row[:2])


def seen(name: str, rows: Rows) -> Any:
    """Return the records that the cleaner keeps: of a compacted topic the last values."""
    if name != "compacted":
        return rows
    last = {(row[0], row[3]): row for row in rows}
    return {key: row for key, row in last.items() if row[4] is not None}


def create(broker: Broker, name: str, configs: dict[str, str]) -> None:
    """Create a topic of two partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1, config=configs)])[name].result(10)


def fill(broker: Broker, seed: int = 3) -> None:
    """Produce plain records, committed and aborted transactions, and commit a group's offsets."""
    servers, dice = broker.bootstrap_servers, random.Random(seed)
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, 2, 1, config=SHAPES[name]) for name in SHAPES])
    for each in made.values():
        each.result(10)
    plain = producer_of({"bootstrap.servers": servers, "linger.ms": 2, "compression.type": "lz4"})
    ends = producer_of({"bootstrap.servers": servers, "transactional.id": f"t{seed}"})
    ends.init_transactions(10)
    for turn in range(6):
        for name in SHAPES:
            for at in range(20):
                plain.produce(
                    name,
                    key=f"k{at % 5}" if at % 3 else None,
                    value=dice.randbytes(dice.choice((1, 300, 3000))) if at % 7 else None,
                    headers=[("h", b"%d" % at), ("none", None)] if at % 2 else None,
                    timestamp=int(time() * 1000) - 5000 + at,
                    partition=at % 2,
                )
        assert plain.flush(10) == 0
        ends.begin_transaction()
        for name in SHAPES:
            for at in range(4):
                ends.produce(name, key=b"t", value=b"%d-%d" % (turn, at), partition=at % 2)
        assert ends.flush(10) == 0
        if turn % 2:
            ends.abort_transaction(10)
        else:
            ends.commit_transaction(10)


def commit(servers: str, topic: str, rows: Rows, at: int) -> int:
    """Commit the offset of a row of partition 0 for group `shop`; return it."""
    mine = [row for row in rows if row[0] == 0]
    offset: int = mine[min(at, len(mine) - 2)][1]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "shop"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    return offset


def next_of_group(servers: str, topic: str) -> int:
    """Return the offset of the first record that a member of group `shop` gets."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "shop", "auto.offset.reset": "error"}
    )
    found = []
    consumer.subscribe(
        [topic],
        on_assign=lambda it, parts: it.assign([part for part in parts if not part.partition]),
    )
    until = monotonic() + 20
    while not found and monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.offset())
    consumer.close()
    return int(found[0])


def test_a_restored_backup_is_read_by_clients_as_before(
    tmp_path: Path, korvet: Run, other: RedisServer
) -> None:
    folder = tmp_path / "backup"
    before: dict[tuple[str, str], Rows] = {}
    with Broker() as broker:
        fill(broker)
        for name in SHAPES:
            for level in ("read_uncommitted", "read_committed"):
                before[name, level] = read(broker.bootstrap_servers, name, level)
        committed = {
            name: commit(broker.bootstrap_servers, name, before[name, "read_committed"], 30)
            for name in SHAPES
        }
        code, out, _ = korvet("backup", str(folder), "--redis", broker.redis_url, "--json")
        assert code == 0
        report = json.loads(out)
    assert (report["topics"], report["partitions"], report["groups"]) == (6, 12, 1)
    assert (report["open"], report["left_out"]) == ([], [])
    modes = {path: path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}
    assert not {path: oct(mode) for path, mode in modes.items() if mode & 0o077}
    counts = [len(rows) for (name, level), rows in before.items() if level == "read_uncommitted"]
    assert sum(counts) - 200 <= report["records"] <= sum(counts), "or the cleaner has run"

    command = ("restore", "--from", str(folder), "--redis", other.url, "--offset-gap", "0")
    code, out, said = korvet(*command)
    assert code == 0, said
    assert "from the backup of" in out and "lost of what the backup has: nothing" in out
    assert korvet(*command)[0] == 2
    with Broker(redis=other.url) as broker:
        servers = broker.bootstrap_servers
        for (name, level), rows in before.items():
            assert seen(name, read(servers, name, level)) == seen(name, rows), (name, level)
        for name in SHAPES:
            found = next_of_group(servers, name)
            assert found == committed[name] or (name == "compacted" and found > committed[name])
        producer = producer_of({"bootstrap.servers": servers, "transactional.id": "after"})
        producer.init_transactions(10)
        producer.begin_transaction()
        for name in SHAPES:
            producer.produce(name, b"after", key=b"new", partition=0)
        producer.commit_transaction(10)
        for name in SHAPES:
            rows = read(servers, name, "read_committed")
            (last,) = [row for row in rows if row[4] == b"after"]
            assert last == [row for row in rows if row[0] == 0][-1]
            if name != "compacted":
                assert len(rows) == len(before[name, "read_committed"]) + 1
        # The restored Redis can be backed up again.
        code, out, _ = korvet("backup", str(tmp_path / "again"), "--redis", other.url, "--json")
        assert code == 0 and json.loads(out)["records"] > len(SHAPES) * 100


def test_a_backup_is_served_read_only(tmp_path: Path, korvet: Run, other: RedisServer) -> None:
    folder = tmp_path / "backup"
    with Broker() as broker:
        fill(broker)
        before = {name: read(broker.bootstrap_servers, name, "read_committed") for name in SHAPES}
        assert korvet("backup", folder.as_uri(), "--redis", broker.redis_url)[0] == 0
    words = ("restore", "--from", str(folder), "--redis", other.url, "--in-segments")
    assert korvet(*words)[0] == 0
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": folder.as_uri(),
    }
    with Broker(redis=other.url, settings=settings) as broker:
        for name, rows in before.items():
            found = read(broker.bootstrap_servers, name, "read_committed")
            assert seen(name, found) == seen(name, rows)


def test_records_that_are_produced_meanwhile_do_not_tear_the_backup(
    tmp_path: Path, korvet: Run, other: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_module, "SEGMENT_BYTES", 20_000)
    folder = tmp_path / "backup"
    with Broker() as broker:
        fill(broker)
        stopping = threading.Event()

        def write() -> None:
            producer = producer_of({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})
            at = 0
            while not stopping.is_set():
                for name in SHAPES:
                    producer.produce(name, b"live-%06d" % at, partition=0)
                producer.flush(5)
                at += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            code, out, _ = korvet("backup", str(folder), "--redis", broker.redis_url, "--json")
        finally:
            stopping.set()
            thread.join()
        assert code == 0
        after = {name: read(broker.bootstrap_servers, name, "read_committed") for name in SHAPES}
    assert json.loads(out)["segments"] > 12
    assert korvet("restore", "--from", str(folder), "--redis", other.url)[0] == 0
    with Broker(redis=other.url) as broker:
        for name, rows in after.items():
            restored = read(broker.bootstrap_servers, name, "read_committed")
            for number in (0, 1):
                whole = [row for row in rows if row[0] == number]
                part = [row for row in restored if row[0] == number]
                if name != "compacted":
                    assert part == whole[: len(part)] and len(part) > 20


def test_a_backup_that_was_interrupted_continues(
    tmp_path: Path, korvet: Run, other: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    monkeypatch.setattr(backup_module, "SEGMENT_BYTES", 20_000)
    real, left, done = backup_module.PartitionBackup.write, [9], asyncio.Semaphore(0)

    async def failing(self: Any, *words: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            for _ in range(9):
                await done.acquire()
            raise backup_module.BackupRefused("the disk is full")
        await real(self, *words)
        done.release()

    with Broker() as broker:
        fill(broker)
        before = {name: read(broker.bootstrap_servers, name, "read_committed") for name in SHAPES}
        command = ("backup", str(folder), "--redis", broker.redis_url)
        monkeypatch.setattr(backup_module.PartitionBackup, "write", failing)
        code, _, said = korvet(*command)
        assert (code, "the disk is full" in said) == (2, True)
        written = set(folder.rglob("*.segment"))
        assert len(written) == 9
        code, _, said = korvet("restore", "--from", str(folder), "--redis", other.url)
        assert code == 2 and "has no snapshot" in said
        monkeypatch.setattr(backup_module.PartitionBackup, "write", real)
        assert korvet(*command)[0] == 0
        assert written < set(folder.rglob("*.segment"))
        code, _, said = korvet(*command)
        assert code == 2 and "has a backup already" in said
    assert korvet("restore", "--from", str(folder), "--redis", other.url)[0] == 0
    with Broker(redis=other.url) as broker:
        for name, rows in before.items():
            found = read(broker.bootstrap_servers, name, "read_committed")
            assert seen(name, found) == seen(name, rows)


def test_an_open_transaction_is_named_and_left_out(
    tmp_path: Path, korvet: Run, other: RedisServer
) -> None:
    with Broker() as broker:
        create(broker, "orders", {"offset.mode": "dense"})
        servers = broker.bootstrap_servers
        plain = producer_of({"bootstrap.servers": servers})
        open_one = producer_of({"bootstrap.servers": servers, "transactional.id": "open"})
        open_one.init_transactions(10)
        plain.produce("orders", b"before", partition=0)
        assert plain.flush(10) == 0
        open_one.begin_transaction()
        open_one.produce("orders", b"open", partition=0)
        assert open_one.flush(10) == 0
        began = monotonic()
        words = ("backup", str(tmp_path / "b"), "--redis", broker.redis_url, "--wait", "0.3")
        code, out, _ = korvet(*words)
        assert code == 0 and 0.3 <= monotonic() - began < 10
        assert out.splitlines()[-2:] == ["topic\tpartition\tfirst\tlast", "orders\t0\t1\t1"]
        # With a marker within the wait, the backup has the whole transaction.
        timer = threading.Timer(0.3, lambda: open_one.commit_transaction(10))
        timer.start()
        words = ("backup", str(tmp_path / "c"), "--redis", broker.redis_url, "--json")
        code, out, _ = korvet(*words)
        timer.join()
        assert (code, json.loads(out)["open"]) == (0, [])
    assert korvet("restore", "--from", str(tmp_path / "c"), "--redis", other.url)[0] == 0
    with Broker(redis=other.url) as broker:
        found = read(broker.bootstrap_servers, "orders", "read_committed")
        assert [row[4] for row in found] == [b"before", b"open"]


def test_scheduled_records_users_rules_and_share_groups_are_restored(
    tmp_path: Path, korvet: Run, other: RedisServer
) -> None:
    redis = ("--redis", other.url)
    with Broker() as broker:
        from_ = ("--redis", broker.redis_url)
        for layout in ("record", "batch"):
            configs = ("--config", "delivery.schedule.enable=true", "--config", "offset.mode=dense")
            form = ("--config", f"storage.format={layout}")
            assert (
                korvet("topics", "create", layout, "--partitions", "2", *configs, *form, *from_)[0]
                == 0
            )
            producer = producer_of({"bootstrap.servers": broker.bootstrap_servers})
            for name, due in (("soon", 3000), ("later", 3_600_000)):
                producer.produce(
                    layout,
                    name.encode(),
                    partition=0,
                    headers={
                        "korvet-deliver-at": b"%d" % (int(time() * 1000) + due),
                        "korvet-schedule-id": name.encode(),
                    },
                )
            assert producer.flush(10) == 0
        rule = ("--principal", "User:ann", "--operation", "read", "--topic", "record")
        assert korvet("acls", "add", *rule, *from_) == (0, "1 rules added, 0 existed\n", "")
        code, out, _ = korvet("backup", str(tmp_path / "b"), *from_, "--json")
        report = json.loads(out)
        assert (code, report["scheduled"], report["acls"]) == (0, 4, 1)
    assert korvet("restore", "--from", str(tmp_path / "b"), *redis)[0] == 0
    code, out, _ = korvet("acls", "list", "--no-header", *redis)
    assert "User:ann" in out
    with Broker(redis=other.url) as broker:
        until = monotonic() + 15
        for layout in ("record", "batch"):
            while not (found := read(broker.bootstrap_servers, layout, "read_committed")):
                assert monotonic() < until
                sleep(0.1)
            assert [row[4] for row in found] == [b"soon"]
            code, out, _ = korvet("schedule", "list", layout, "--no-header", *redis)
            assert [line.split("\t")[3] for line in out.splitlines()] == ["later"]


def test_a_tiered_topic_is_backed_up_from_its_segments_and_redis(
    tmp_path: Path, korvet: Run, other: RedisServer
) -> None:
    store, folder = tmp_path / "store", tmp_path / "backup"
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": store.as_uri(),
        "remote.log.manager.task.interval.ms": "50",
        "log.retention.check.interval.ms": "50",
        "offset.mode": "dense",
    }
    configs = {"remote.storage.enable": "true", "segment.ms": "1", "local.retention.bytes": "1"}
    with Broker(settings=settings) as broker:
        servers = broker.bootstrap_servers
        create(broker, "t", configs)
        producer = producer_of({"bootstrap.servers": servers, "linger.ms": 5})
        for at in range(300):
            producer.produce("t", b"%06d" % at * 500, partition=0)
            if at % 30 == 29:
                assert producer.flush(10) == 0
        key, until = Keys().partition("t", 0).log, monotonic() + 15
        with SyncStore.connect(broker.redis_url) as redis:
            while redis.command("HGET", key, "local_start") in (None, b"0"):
                assert monotonic() < until
                sleep(0.05)
        for at in range(300, 320):
            producer.produce("t", b"%06d" % at * 500, partition=0)
        assert producer.flush(10) == 0
        before = read(servers, "t", "read_committed")
        assert len(before) == 320
        code, _, said = korvet("backup", str(store), "--redis", broker.redis_url)
        assert code == 2 and "name another directory" in said
        assert korvet("backup", str(folder), "--redis", broker.redis_url)[0] == 0
    assert korvet("restore", "--from", str(folder), "--redis", other.url)[0] == 0
    with Broker(redis=other.url) as broker:
        assert read(broker.bootstrap_servers, "t", "read_committed") == before


def test_damage_is_reported(tmp_path: Path, korvet: Run, other: RedisServer) -> None:
    folder = tmp_path / "b"
    with Broker() as broker:
        create(broker, "orders", {"offset.mode": "dense"})
        producer = producer_of({"bootstrap.servers": broker.bootstrap_servers})
        for at in range(20):
            producer.produce("orders", b"%d" % at, partition=at % 2)
        assert producer.flush(10) == 0
        assert korvet("backup", str(folder), "--redis", broker.redis_url)[0] == 0
    first, second = sorted(folder.rglob("*.segment"), key=lambda path: path.parent.name)
    data = bytearray(first.read_bytes())
    data[70] ^= 1
    first.write_bytes(data)
    second.unlink()
    code, out, _ = korvet("restore", "--from", str(folder), "--redis", other.url, "--json")
    report = json.loads(out)
    assert code == 0
    assert [
        (row["partition"], row["first"], row["last"], row["reason"]) for row in report["lost"]
    ] == [
        (0, 0, 9, "corrupt"),
        (1, 0, 9, "missing"),
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("backup", "/proc/none"), "cannot be created"),
        (("restore", "--from", "/nowhere"), "no such directory"),
        (("restore", "--from", "{empty}"), "has no snapshot"),
    ],
)
def test_a_refusal_has_one_sentence_with_the_reason(
    tmp_path: Path, korvet: Run, other: RedisServer, words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    given = [word.replace("{empty}", str(tmp_path / "empty")) for word in words]
    code, out, said = korvet(*given, "--redis", other.url)
    assert (code, out) == (2, "") and sentence in said and said.count("\n") == 1


def test_a_restored_topic_has_its_table(tmp_path: Path, korvet: Run, other: RedisServer) -> None:
    configs = ("--config", "table.enable=true", "--config", "offset.mode=dense")
    with Broker() as broker:
        from_ = ("--redis", broker.redis_url)
        assert korvet("topics", "create", "t", "--partitions", "1", *configs, *from_)[0] == 0
        producer = producer_of({"bootstrap.servers": broker.bootstrap_servers})
        for key, value in (("a", "1"), ("b", "2" * 3000), ("a", "3"), ("c", "4"), ("c", None)):
            producer.produce("t", value, key)
        assert producer.flush(10) == 0
        table = sorted(korvet("tables", "scan", "t", *from_)[1].splitlines())
        assert korvet("backup", str(tmp_path / "b"), *from_)[0] == 0
    redis = ("--redis", other.url)
    assert korvet("restore", "--from", str(tmp_path / "b"), *redis)[0] == 0
    assert table == ["a\t3", "b\t" + "2" * 3000]
    assert sorted(korvet("tables", "scan", "t", *redis)[1].splitlines()) == table
