"""Check `korvet groups` against a real server."""

import json
from typing import Any

import pytest
import redis
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from korvet.groups.modern import pack_bytes
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from tests.cli.conftest import Lines
from tests.lua.streams import STATEFUL, Member, settle
from tests.lua.streams import Group as StreamsGroup
from tests.support.redis_servers import TestServer

KEYS = Keys()


@pytest.fixture
def korvet(lines: Lines) -> Lines:
    return lines


@pytest.fixture
def orders(korvet: Lines, valkey_server: TestServer) -> redis.Redis:
    """Create a topic of one partition with dense offsets and five records."""
    korvet("topics", "create", "orders", "--config", "offset.mode=dense")
    client = valkey_server.client()
    for number in range(5):
        client.xadd("korvet:orders:0", {"value": str(number), "timestamp": "1700000000000"})
    return client


def join(store: SyncStore) -> int:
    """Join m1 to the classic group readers; return its generation."""
    reply = store.run(
        KEYS.group("readers").join(
            [("range", b"")],
            member="",
            fresh_id="m1",
            instance="",
            client_id="tests",
            client_host="/here",
            session_ms=60_000,
            rebalance_ms=60_000,
            protocol_type="consumer",
            require_member_id=0,
            skip=0,
            is_registered=1,
            delay_ms=0,
            max_size=9,
            max_bytes=1_000_000,
        )
    )
    assert reply.error == 0
    return reply.generation


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 0),
        ("latest", 5),
        ("3", 3),
        ("99", 5),
        ("2001-02-03", 0),
        ("2999-01-01T00:00Z", 5),
    ],
)
def test_a_group_starts_at_its_position(
    korvet: Lines, orders: redis.Redis, to: str, offset: int
) -> None:
    with orders:
        code, lines, _ = korvet("groups", "create", "readers", "--topic", "orders", "--to", to)
        assert (code, lines) == (0, ["topic\tpartition\toffset", f"orders\t0\t{offset}"])
        found = orders.xreadgroup("readers", "worker", {"korvet:orders:0": ">"})
        rows = found[0][1] if found else []
        assert [int(row[1][b"value"]) for row in rows] == list(range(offset, 5))


def test_a_group_is_listed_described_reset_and_deleted(korvet: Lines, orders: redis.Redis) -> None:
    with orders:
        korvet("groups", "create", "readers", "-t", "orders", "--to", "earliest")
        assert korvet("groups", "list", "--no-header")[1] == ["readers\tclassic\tEmpty\t-\t0"]
        korvet("groups", "reset", "readers", "-t", "orders", "--to", "2")
        lines = korvet("groups", "describe", "readers")[1]
        assert lines[0] == "readers: Empty, generation 0, protocol -"
        assert lines[-1].startswith("orders\t0\t2\t")
        assert korvet("groups", "delete", "readers")[:2] == (0, ["deleted readers"])
        assert korvet("groups", "list", "--no-header")[1] == []
        assert orders.xinfo_groups("korvet:orders:0") == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("describe", "readers"), "There is no group 'readers'."),
        (("delete", "readers"), "There is no group 'readers'."),
        (("reset", "readers", "-t", "orders", "--to", "latest"), "There is no group 'readers'"),
        (("create", "g\udcff", "-t", "orders"), "A group's name is UTF-8, not b'g\\xff'."),
        (("reset", "g\udcff", "-t", "orders", "--to", "latest"), "A group's name is UTF-8"),
        (("create", "", "-t", "orders"), "A group needs a name."),
        (("create", "readers", "-t", "absent"), "There is no topic 'absent'"),
        (("reset", "readers", "-t", "orders", "--to", "noon"), "'noon' is no position"),
        (("reset", "readers", "-t", "orders=noon"), "--topic: 'noon' is no position"),
        (
            ("reset", "readers", "-t", "orders"),
            "The position in 'orders' is missing: give --to POSITION",
        ),
    ],
)
def test_a_refused_command_says_why(
    korvet: Lines, orders: redis.Redis, words: tuple[str, ...], sentence: str
) -> None:
    with orders:
        code, lines, said = korvet("groups", *words)
        assert (code, lines) == (2, [])
        assert sentence in said
        assert orders.keys("*group*") == []


def test_each_topic_may_have_its_own_position(korvet: Lines, orders: redis.Redis) -> None:
    with orders:
        korvet("topics", "create", "logs", "-p", "2", "--config", "offset.mode=dense")
        words = ("-t", "orders=3", "-t", "logs", "--to", "earliest", "--no-header")
        code, lines, _ = korvet("groups", "create", "readers", *words)
        assert (code, lines) == (0, ["orders\t0\t3", "logs\t0\t0", "logs\t1\t0"])


def test_a_group_with_members_is_not_moved(
    korvet: Lines, orders: redis.Redis, valkey_server: TestServer
) -> None:
    with orders:
        korvet("groups", "create", "readers", "-t", "orders", "--to", "1")
        code, _, said = korvet("groups", "create", "readers", "-t", "orders")
        assert code == 2 and "already" in said
        join(SyncStore(valkey_server.client()))
        code, _, said = korvet("groups", "reset", "readers", "-t", "orders", "--to", "earliest")
        assert code == 2 and "has members" in said
        code, _, said = korvet("groups", "delete", "readers")
        assert code == 2 and "has members" in said
        lines = korvet("groups", "describe", "readers", "--no-header")[1]
        assert lines[0] == "readers: CompletingRebalance, generation 1, protocol range"
        assert lines[1] == "m1\t-\ttests\t/here"
        assert lines[-1].startswith("orders\t0\t1\t")


def test_the_member_of_each_partition_is_shown(
    korvet: Lines, orders: redis.Redis, valkey_server: TestServer
) -> None:
    with orders:
        korvet("topics", "create", "more", "-p", "3", "--config", "offset.mode=dense")
        korvet("groups", "create", "readers", "-t", "orders", "--to", "1")
        korvet("groups", "reset", "readers", "-t", "more", "--to", "earliest")
        orders.hdel("korvet:group:readers:offsets", "korvet:more:1", "korvet:more:2")
        store = SyncStore(valkey_server.client())
        generation = join(store)
        places = [("orders", [0]), ("more", [2])]
        held = ConsumerProtocolMemberAssignment(0, places, b"").encode()
        synced = store.run(
            KEYS.group("readers").sync(
                [("m1", held)],
                member="m1",
                instance="",
                generation=generation,
                protocol_type="consumer",
                protocol="range",
            )
        )
        assert synced.error == 0
        lines = korvet("groups", "describe", "readers", "--no-header")[1]
        shown = [line.split("\t") for line in lines[lines.index("") + 1 :]]
        assert [(row[0], row[1], row[2], row[8]) for row in shown] == [
            ("more", "0", "0", "-"),
            ("more", "2", "-", "m1"),
            ("orders", "0", "1", "m1"),
        ]


def test_members_of_a_consumer_group_are_shown(
    korvet: Lines, orders: redis.Redis, valkey_server: TestServer
) -> None:
    with orders, valkey_server.client() as client:
        topic = json.loads(client.hget("korvet:topics", "orders"))
        arguments: dict[str, Any] = {
            "member": "m1",
            "epoch": 0,
            "instance": "",
            "rack": "",
            "client_id": "tests",
            "client_host": "/here",
            "session_ms": 60_000,
            "rebalance_ms": 60_000,
            "assignor": "",
            "max_size": 9,
            "max_bytes": 1_000_000,
            "max_topics": 100,
            "is_registered": 1,
            "subscription_mask": 1,
            "names": b"6:orders",
            "regex": "",
            "has_owned": 1,
            "owned": b"",
        }
        rows = [("t", "orders", f"{topic['id']}:1")]
        asked = pack_bytes([b"6:orders", b""])
        joined = SyncStore(client).run(
            KEYS.group("readers").consumer_heartbeat(
                **arguments, topics_version=b"1", resolved=asked, rows=rows
            )
        )
        assert joined.error == 0
        lines = korvet("groups", "describe", "readers")[1]
        assert lines[:3] == [
            "readers: Stable, epoch 1, assignor uniform",
            "member\tinstance\tclient\thost",
            "m1\t-\ttests\t/here",
        ]
        row = lines[-1].split("\t")
        assert row[:5] == ["orders", "0", "-", "5", "5"] and row[8] == "m1"
        assert row[6].endswith(" s")
        code, _, said = korvet("groups", "delete", "readers")
        assert code == 2 and "has members" in said


def test_a_group_of_any_name_is_one_line(korvet: Lines, orders: redis.Redis) -> None:
    name = "two\nlines\tand\x1b[2J"
    assert korvet("groups", "create", name, "-t", "orders")[0] == 0
    _, row = korvet("groups", "list")[1]
    assert row == "two\\nlines\\tand\\x1b[2J\tclassic\tEmpty\t-\t0"


def test_a_streams_group_is_described_by_its_tasks(
    korvet: Lines, valkey_server: TestServer
) -> None:
    korvet("topics", "create", "t", "--partitions", "2")
    with valkey_server.client() as client:
        store = SyncStore(client)
        group = StreamsGroup(store, STATEFUL, t=2)
        store.run(KEYS.group_register(group="g"))
        members = [Member(group, name) for name in ("m1", "m2")]
        settle(members, replicas=1)
        assert korvet("groups", "list", "--no-header")[1] == ["g\tstreams\tStable\tstreams\t2"]
        lines = korvet("groups", "describe", "g")[1]
        assert lines[0] == "g: Stable, epoch 3, topology 0"
        assert lines[1] == "member\tinstance\tprocess\tclient\thost\tactive\tstandby"
        tasks = {line.split("\t")[0]: line.split("\t")[5:] for line in lines[2:4]}
        assert sorted(tasks.values()) == [["0_0", "0_1"], ["0_1", "0_0"]]
        owners = {line.split("\t")[1]: line.split("\t")[-1] for line in lines[-2:]}
        assert owners == {active[0][-1]: member for member, active in tasks.items()}
        group.size("t", None)
        settle(members, replicas=1)
        (found,) = [json.loads("\n".join(korvet("groups", "describe", "g", "--json")[1]))]
        assert found["state"] == "NotReady" and found["reason"] == "Source topics t are missing."
