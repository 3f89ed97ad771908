"""Check `korvet queues` against a real server."""

import json

import pytest
import redis

from korvet.share.service import Acknowledge
from korvet.store.sync_store import SyncStore
from tests.cli.conftest import Lines
from tests.cli.test_groups import KEYS, korvet, orders
from tests.share.members import deliver, join_share_group
from tests.support.redis_servers import TestServer

__all__ = ["korvet", "orders"]

TABS = "\t".join


def accept(store: SyncStore, topic_id: str, offset: int, kind: Acknowledge) -> None:
    """Let m1 acknowledge a record."""
    settled = KEYS.partition("orders", 0, topic_id).share_acknowledge(
        [(offset, offset, int(kind))],
        group="jobs",
        member="m1",
        lock_ms=30_000,
        delivery_limit=5,
        backoff_ms=0,
        max_backoff_ms=0,
    )
    assert store.run(settled).error == 0


@pytest.fixture
def queue(orders: redis.Redis, valkey_server: TestServer) -> str:
    """A share group with one member, which has acquired two records and accepted one."""
    definition = json.loads(orders.hget(KEYS.topics(), "orders") or b"{}")
    topic_id = definition["id"]
    store = SyncStore.connect(valkey_server.url)
    join_share_group(store, KEYS, "jobs", ("orders", topic_id), 1)
    store.run(KEYS.partition("orders", 0, topic_id).number_entries())
    deliver(store, KEYS.partition("orders", 0, topic_id), 0, 2)
    accept(store, topic_id, 0, Acknowledge.ACCEPT)
    store.close()
    return "jobs"


def test_share_groups_are_listed_with_their_lag(korvet: Lines, queue: str) -> None:
    korvet("groups", "create", "readers", "--topic", "orders")
    code, lines, _ = korvet("queues", "list")
    assert (code, lines) == (
        0,
        [
            TABS(("group", "state", "members", "topics", "available", "acquired", "lag")),
            TABS((queue, "Stable", "1", "1", "0", "2", "4")),
        ],
    )


def test_a_share_group_is_described_with_holders_and_deadlines(korvet: Lines, queue: str) -> None:
    code, lines, _ = korvet("queues", "describe", queue)
    assert code == 0
    assert lines[0] == "jobs: Stable, epoch 1"
    assert lines[2] == TABS(("m1", "app", "/10.0.0.1", "1", "1"))
    assert lines[5] == TABS(("orders", "0", "1", "0", "2", "1", "0", "0", "4"))
    assert lines[7].startswith("topic\tpartition\tfirst\tlast\tdeliveries\tends")
    first, ends, member = lines[8].rsplit("\t", 2)
    assert (first, member) == (TABS(("orders", "0", "1", "2", "1")), "m1")
    assert ends.endswith("+00:00")
    code, lines, _ = korvet("queues", "describe", queue, "--json")
    reported = json.loads("\n".join(lines))
    assert (reported["state"], reported["partitions"][0]["lag"]) == ("Stable", 4)
    assert reported["delivered"][0]["deliveries"] == 1


def test_records_that_members_do_not_finish_are_named(
    korvet: Lines, queue: str, valkey_server: TestServer
) -> None:
    with valkey_server.client() as client:
        topic_id = json.loads(client.hget(KEYS.topics(), "orders") or b"{}")["id"]
    store = SyncStore.connect(valkey_server.url)
    accept(store, topic_id, 1, Acknowledge.RELEASE)
    _, lines, _ = korvet("queues", "describe", queue)
    assert lines[8].endswith("\tm1") and lines[9] == TABS(("orders", "0", "1", "1", "1", "-", "-"))
    _, lines, _ = korvet("doctor")
    assert "\tqueues\t" not in "\n".join(lines)
    for _ in range(3):
        deliver(store, KEYS.partition("orders", 0, topic_id), 1, 1)
        accept(store, topic_id, 1, Acknowledge.RELEASE)
    store.close()
    _, lines, _ = korvet("doctor")
    (reported,) = (line for line in lines if "\tqueues\t" in line)
    assert "share group jobs do not finish orders-0 at offset 1: one more delivery of 5" in reported


def test_a_group_of_another_type_is_no_queue(korvet: Lines, queue: str) -> None:
    korvet("groups", "create", "readers", "--topic", "orders")
    for name in ("readers", "absent"):
        code, _, reported = korvet("queues", "describe", name)
        assert (code, reported) == (2, f"korvet: There is no share group '{name}'.\n")
    code, lines, _ = korvet("groups", "describe", queue)
    assert (code, lines[0]) == (0, "jobs: Stable, epoch 1, assignor simple")
    code, _, reported = korvet("groups", "reset", queue, "--topic", "orders", "--to", "earliest")
    assert (code, reported) == (2, "korvet: 'jobs' is a share group, which commits no offsets.\n")
    code, _, reported = korvet("groups", "delete", queue)
    assert code == 2 and "has members" in reported


COLUMNS = TABS(("topic", "partition", "start", "new_start", "records"))


@pytest.fixture
def new(orders: redis.Redis, valkey_server: TestServer) -> str:
    """A share group without members and without a position in a topic."""
    topic_id = json.loads(orders.hget(KEYS.topics(), "orders") or b"{}")["id"]
    with SyncStore.connect(valkey_server.url) as store:
        for epoch in (0, -1):
            join_share_group(store, KEYS, "new", ("orders", topic_id), 1, epoch)
    return "new"


@pytest.mark.usefixtures("new")
def test_a_group_is_moved_and_a_dry_run_moves_nothing(korvet: Lines, queue: str) -> None:
    code, lines, _ = korvet("queues", "reset", queue, "--to", "latest", "--dry-run")
    assert (code, lines) == (0, [COLUMNS, TABS(("orders", "0", "1", "5", "0"))])
    code, _, reported = korvet("queues", "reset", queue, "--to", "latest")
    assert (code, reported) == (2, "korvet: Share group 'jobs' has members: stop them first.\n")
    for position, start, left in (("earliest", 0, 5), ("latest", 5, 0), ("2", 2, 3)):
        code, lines, _ = korvet("queues", "reset", "new", "-t", "orders", "--to", position)
        assert code == 0 and lines[1].endswith(TABS(("", str(start), str(left))))
    for position, start in (("2020-01-01T00:00Z", 0), ("2100-01-01T00:00Z", 5), ("orders=3", 3)):
        words = ("-t", position) if "=" in position else ("--to", position)
        code, lines, _ = korvet("queues", "reset", "new", *words, "--json")
        (row,) = json.loads("\n".join(lines))
        assert (code, row["new_start"], row["records"]) == (0, start, 5 - start)
    _, lines, _ = korvet("queues", "describe", "new")
    assert TABS(("orders", "0", "3", "0", "0", "0", "0", "0", "2")) in lines
    _, lines, _ = korvet("queues", "reset", "new", "--to", "earliest", "--dry-run", "--json")
    assert json.loads("\n".join(lines))[0]["start"] == 3


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("readers", "-t", "orders", "--to", "latest"), "or it is a group of another type"),
        (("absent", "--to", "latest"), "There is no share group 'absent'"),
        (("absent", "-t", "orders", "--to", "latest"), "There is no share group 'absent'"),
        (("new", "-t", "absent", "--to", "latest"), "'absent'"),
        (("new", "-t", "orders", "--to", "noon"), "'noon' is no position"),
        (("new", "-t", "orders"), "The position in 'orders' is missing"),
        (("new",), "give --to POSITION"),
        (("", "-t", "orders", "--to", "latest"), "A group needs a name."),
    ],
)
@pytest.mark.usefixtures("new")
def test_a_move_that_cannot_be_says_why(
    korvet: Lines, queue: str, words: tuple[str, ...], reported: str
) -> None:
    korvet("groups", "create", "readers", "--topic", "orders")
    code, _, said = korvet("queues", "reset", *words)
    assert code == 2 and reported in said
