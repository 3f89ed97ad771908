"""Check `korvet topics`: create under changed settings, alter, add-partitions and trim."""

import pytest

import korvet as korvet_log
from korvet import Record
from korvet.cli import run
from korvet.config.dynamic import ALL_BROKERS, encode_configs
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from tests.cli.conftest import Lines
from tests.support.redis_servers import TestServer


def test_settings_changed_for_all_brokers_are_the_defaults(
    valkey_server: TestServer, capfd: pytest.CaptureFixture[str]
) -> None:
    changed = {"num.partitions": "3", "offset.mode": "dense", "log.retention.ms": "7000"}
    with valkey_server.client() as client:
        client.flushall()
        store = SyncStore(client)
        wanted = encode_configs(changed)
        store.run(Keys().config_alter(resource=ALL_BROKERS, expected=b"", wanted=wanted))
    assert run(["topics", "create", "orders", "--redis", valkey_server.url]) == 0
    assert run(["topics", "describe", "orders", "--configs", "--redis", valkey_server.url]) == 0
    said = capfd.readouterr().out
    assert "created orders with 3 partitions" in said
    assert "offset.mode\tdense\tdynamic_default_broker" in said
    assert "retention.ms\t7000\tdynamic_default_broker" in said


def test_a_name_that_differs_by_dots_and_underscores_only_is_refused(
    valkey_server: TestServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with valkey_server.client() as client:
        client.flushall()
    at = ("--redis", valkey_server.url)
    assert run(["topics", "create", "a.b", *at]) == 0
    assert run(["topics", "create", "a_b", *at]) == 2
    assert "Topic 'a_b' collides with existing topic: a.b" in capfd.readouterr().err
    assert run(["topics", "create", "a.b", *at]) == 2
    assert "Topic 'a.b' exists already." in capfd.readouterr().err


@pytest.fixture
def korvet(lines: Lines) -> Lines:
    return lines


def configs(korvet: Lines, name: str) -> dict[str, tuple[str, str]]:
    rows = [line.split("\t") for line in korvet("topics", "describe", name, "-c")[1]]
    return {row[1]: (row[2], row[3]) for row in rows}


def test_configs_are_set_and_returned_to_their_defaults(korvet: Lines) -> None:
    korvet("topics", "create", "a", "--config", "retention.ms=5")
    changes = ("--config", "segment.ms=9", "--delete-config", "retention.ms")
    assert korvet("topics", "alter", "a", *changes)[:2] == (
        0,
        ["altered a: segment.ms, retention.ms"],
    )
    found = configs(korvet, "a")
    assert found["segment.ms"] == ("9", "dynamic_topic")
    assert found["retention.ms"] == ("604800000", "default")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("alter", "a"), "no change is given"),
        (("alter", "a", "--config", "retention.ms"), "--config needs NAME=VALUE"),
        (("alter", "a", "--config", "retention.ms=x"), "retention.ms must be"),
        (("alter", "a", "--config", "retention.m=1"), "did you mean retention.ms?"),
        (("alter", "a", "--config", "offset.mode=bytes"), "offset.mode is fixed when the topic"),
        (("alter", "b", "--config", "retention.ms=1"), "Topic 'b' does not exist"),
        (("add-partitions", "a", "2"), "Topic 'a' has 2 partitions: give a higher number."),
        (("add-partitions", "a", "10001"), "A topic has from 1 to 10000 partitions"),
        (("trim", "a", "--before", "noon"), "--before: 'noon' is no position"),
        (("trim", "a", "--before", "latest", "-p", "2"), "a has partitions 0 to 1."),
        (("trim", "compacted", "--before", "latest"), "its cleanup.policy lacks delete"),
    ],
)
def test_a_refused_change_says_why(korvet: Lines, words: tuple[str, ...], sentence: str) -> None:
    korvet("topics", "create", "a", "-p", "2", "--config", "retention.ms=5")
    korvet("topics", "create", "compacted", "--config", "cleanup.policy=compact")
    before = configs(korvet, "a")
    code, lines, said = korvet("topics", *words)
    assert (code, lines) == (2, []) and sentence in said
    assert configs(korvet, "a") == before


def test_a_change_follows_the_settings_that_brokers_stored(
    korvet: Lines, valkey_server: TestServer
) -> None:
    korvet("topics", "create", "a")
    change = ("topics", "alter", "a", "-c", "retention.consumed=readers")
    assert korvet(*change)[0] == 2
    stored = {"remote_storage_url": "file:///of/brokers", "remote_storage_topics": "true"}
    with valkey_server.client() as client:
        client.hset(Keys().cluster(), mapping=stored)
    assert korvet(*change)[0] == 0


def test_partitions_are_added_and_records_stay(korvet: Lines, valkey_server: TestServer) -> None:
    korvet("topics", "create", "a", "--config", "offset.mode=dense")
    with valkey_server.client() as client:
        client.xadd("korvet:a:0", {"value": "x"})
    assert korvet("topics", "add-partitions", "a", "3")[:2] == (0, ["a has 3 partitions"])
    assert korvet("topics", "list", "--no-header")[1][0].split("\t")[:5:4] == ["a", "1"]
    assert korvet("topics", "list", "--no-header")[1][0].split("\t")[1] == "3"


def test_a_reserved_name_is_created_on_request(korvet: Lines) -> None:
    name = "__debezium-heartbeat.shop"
    code, _, said = korvet("topics", "create", name)
    assert code == 2 and "reserved.topic.names.enable" in said
    setting = ("--set", "reserved.topic.names.enable=true")
    assert korvet(*setting, "topics", "create", name)[0] == 0


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_records_below_a_position_are_deleted(
    korvet: Lines, valkey_server: TestServer, layout: str
) -> None:
    chosen = ("--config", "offset.mode=dense", "--config", f"storage.format={layout}")
    korvet("topics", "create", "a", "-p", "2", *chosen)
    with korvet_log.Korvet.connect(valkey_server.url) as log:
        for partition in (0, 1):
            for _ in range(5):
                log.append("a", partition, [Record(b"x")])
    assert korvet("topics", "trim", "a", "--before", "3", "-p", "1") == (
        0,
        ["partition\tstarted_at\tstarts_at", "1\t0\t3"],
        "",
    )
    assert korvet("topics", "trim", "a", "--before", "latest", "--no-header")[1] == [
        "0\t0\t5",
        "1\t3\t5",
    ]
    assert korvet("consume", "a")[1] == []


@pytest.mark.parametrize("mode", ["time", "dense"])
def test_entries_that_no_client_can_read_are_named_and_deleted(
    korvet: Lines, valkey_server: TestServer, mode: str
) -> None:
    korvet("topics", "create", "a", "--config", f"offset.mode={mode}")
    with valkey_server.client() as client:
        client.xadd("korvet:a:0", {"value": "far"}, id=f"{2**63}-0")
    row = "0\t1\t8\t"
    assert korvet("topics", "repair", "a")[1][-1] == f"{row}-"
    _, lines, _ = korvet("doctor")
    found = [line for line in lines if "\tentries\t" in line]
    assert len(found) == 1 and "1 entries of a-0" in found[0]
    assert "`korvet topics repair a --yes`" in found[0]
    assert korvet("topics", "repair", "a", "--partition", "0", "--yes")[1][-1] == f"{row}deleted"
    assert korvet("topics", "repair", "a", "--yes")[1][-1] == "0\t0\t0\t-"
    assert "\tentries\t" not in "\n".join(korvet("doctor")[1])
    with valkey_server.client() as client:
        assert client.xlen("korvet:a:0") == 0


@pytest.mark.parametrize("by_doctor", [False, True])
@pytest.mark.parametrize("mode", ["time", "dense"])
def test_a_partition_without_ids_is_copied(
    korvet: Lines, valkey_server: TestServer, mode: str, by_doctor: bool
) -> None:
    korvet("topics", "create", "a", "--config", f"offset.mode={mode}")
    with valkey_server.client() as client:
        client.xadd("korvet:a:0", {"value": "one"})
        # A script cannot add so many fields.
        client.xadd("korvet:a:0", {f"f{n}": n for n in range(5000)})
        client.xadd("korvet:a:0", {"value": "last"}, id=f"{2**64 - 1}-{2**64 - 1}")
    row = "0\t1\t9\t"
    assert korvet("topics", "repair", "a")[1][-1] == f"{row}appends fail"
    assert "WARNING\tentries\tnothing can be appended to a-0" in "\n".join(korvet("doctor")[1])
    if by_doctor:
        assert "a-0 accepts appends again" in korvet("doctor", "--fix")[2]
        with valkey_server.client() as client:
            client.config_set("appendonly", "no")  # --fix turned it on, and other tests follow
    else:
        assert korvet("topics", "repair", "a", "--yes")[1][-1] == f"{row}copied"
    assert korvet("topics", "repair", "a", "--yes")[1][-1] == "0\t0\t0\t-"
    assert "\tentries\t" not in "\n".join(korvet("doctor")[1])
    with valkey_server.client() as client:
        client.xadd("korvet:a:0", {"value": "two"})
        assert not client.exists("{korvet:a:0}:compacted")
    assert len(korvet("consume", "a")[1]) == 3


def test_an_entry_that_is_too_large_for_clients_is_named(
    korvet: Lines, valkey_server: TestServer
) -> None:
    for name, limit in (("a", 1_048_588), ("b", 100_000_000)):
        korvet("topics", "create", name, "--config", f"max.message.bytes={limit}")
        with valkey_server.client() as client:
            # A count of foreign entries writes these.
            client.hset(f"{{korvet:{name}:0}}:log", mapping={"largest_append": 2**26 + 1})
            client.hset(f"{{korvet:{name}:0}}:log", mapping={"bytes": 2**26 + 1})
    found = [line for line in korvet("doctor")[1] if "\tentries\t" in line]
    assert len(found) == 1 and "an entry of 67108865 bytes to a-0" in found[0]
    with valkey_server.client() as client:
        client.hset("{korvet:a:0}:log", "start_bytes", 1)
    assert "\tentries\t" not in "\n".join(korvet("doctor")[1])


def test_doctor_runs_no_script_for_partitions_that_have_natural_ids_only(
    korvet: Lines, valkey_server: TestServer
) -> None:
    def scripts_of_doctor() -> int:
        with valkey_server.client() as client:
            client.config_resetstat()
            korvet("doctor")
            stats = client.info("commandstats")
            return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])

    korvet("topics", "create", "a", "--partitions", "1")
    with valkey_server.client() as client:
        client.xadd("korvet:a:0", {"value": "far"}, id=f"{2**63}-0")
    korvet("topics", "repair", "a")
    one = scripts_of_doctor()
    korvet("topics", "create", "b", "--partitions", "40")
    assert scripts_of_doctor() == one > 0
