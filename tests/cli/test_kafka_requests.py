"""Check the commands that send Kafka requests: to brokers and to a Redis, with the same output."""

import asyncio
import json
import re
import socket
import threading
import zlib
from pathlib import Path
from typing import TextIO

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from korvet import Record
from korvet.cli import run
from korvet.cli.broker_log import BrokerLog
from korvet.cli.kafka_client import ClientSettings, KafkaClient
from korvet.config.setting import StartError
from korvet.library.values import KorvetError
from korvet.scripts.keys import Keys
from tests.cli.conftest import Lines, lines_of
from tests.support.certificates import Authority
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console, where_of


@pytest.fixture
def topic(broker: RunningConsole, request: pytest.FixtureRequest) -> str:
    """A topic of this test with two partitions."""
    name = f"t{zlib.crc32(request.node.nodeid.encode())}"
    broker.log.create_topic(name, 2)
    return name


@pytest.fixture(params=["brokers", "redis"])
def korvet(
    broker: RunningConsole, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> Lines:
    """Run a command line on the broker or on its Redis; return exit code, lines and stderr."""
    return lines_of(capfd, where_of(broker, request.param))


def test_quotas_are_set_listed_and_removed(korvet: Lines) -> None:
    app = ("--user", "bob", "--client-id", "app")
    set_ = ("quotas", "set", "producer_byte_rate=1000", "request_percentage=12.5", *app)
    assert korvet(*set_)[:2] == (0, ["set producer_byte_rate, request_percentage"])
    korvet("quotas", "set", "connection_creation_rate=5", "--default", "ip")
    assert korvet("quotas", "list")[1] == [
        "user\tclient_id\tip\tquota\tvalue",
        "-\t-\t(default)\tconnection_creation_rate\t5",
        "bob\tapp\t-\tproducer_byte_rate\t1000",
        "bob\tapp\t-\trequest_percentage\t12.5",
    ]
    (row,) = json.loads("".join(korvet("quotas", "list", "--default", "ip", "--json")[1]))
    assert (row["ip"], row["value"]) == ("(default)", 5)
    korvet("quotas", "remove", "producer_byte_rate", "request_percentage", *app)
    korvet("quotas", "remove", "connection_creation_rate", "--default", "ip")
    assert korvet("quotas", "list", "--no-header")[1] == []


@pytest.mark.parametrize("command", ["groups", "queues"])
def test_configs_of_a_group_are_changed_and_listed(korvet: Lines, command: str) -> None:
    name, config = "share.auto.offset.reset", "share.auto.offset.reset=earliest"
    assert korvet(command, "alter", "jobs", "--config", config)[1] == [f"altered jobs: {name}"]
    assert korvet(command, "configs", "jobs", "--no-header")[1] == [
        f"{name}\tearliest\tdynamic_group"
    ]
    assert len(korvet(command, "configs", "jobs", "--all")[1]) > 5
    korvet(command, "alter", "jobs", "--delete-config", name)
    assert korvet(command, "configs", "jobs", "--no-header")[1] == []


def test_settings_of_all_brokers_and_of_one_are_changed(korvet: Lines) -> None:
    name = "log.retention.ms"
    assert korvet("brokers", "alter", "--config", f"{name}=5000")[1] == [
        f"altered all brokers: {name}"
    ]
    korvet("brokers", "alter", "--config", f"{name}=6000", "--broker", "0")
    assert korvet("brokers", "configs", "--no-header")[1] == [
        f"{name}\t5000\tdynamic_default_broker"
    ]
    assert korvet("brokers", "configs", "--broker", "0", "--no-header")[1] == [
        f"{name}\t6000\tdynamic_broker"
    ]
    for of in ((), ("--broker", "0")):
        korvet("brokers", "alter", "--delete-config", name, *of)
        assert korvet("brokers", "configs", *of, "--no-header")[1] == []


def test_topics_are_created_listed_grown_and_deleted(korvet: Lines) -> None:
    ages = ("topics", "create", "ages", "-c", "retention.ms=7h", "-c", "segment.ms=2d")
    assert korvet(*ages)[0] == 0
    assert korvet("topics", "alter", "ages", "-c", "retention.ms=12h")[0] == 0
    row = korvet("topics", "describe", "ages", "--no-header")[1][0].split("\t")
    assert row[2:6] == ["1", "1", "record", "time"]
    assert row[-1] == "retention.ms=43200000 segment.ms=172800000"
    korvet("topics", "delete", "ages")
    with_configs = ("-p", "3", "-r", "1", "-c", "offset.mode=dense", "-c", "storage.format=batch")
    assert korvet("topics", "create", "a", "b", *with_configs)[:2] == (
        0,
        ["created a with 3 partitions", "created b with 3 partitions"],
    )
    code, lines, said = korvet("topics", "create", "a", *with_configs)
    assert (code, lines) == (2, []) and "exists" in said
    again = korvet("topics", "create", "a", "c", "--if-not-exists")
    assert again == (0, ["a exists", "created c with 1 partition"], "")
    assert korvet("topics", "add-partitions", "a", "4")[1] == ["a has 4 partitions"]
    assert korvet("topics", "add-partitions", "a", "4")[0] == 2
    rows = {line.split("\t")[0]: line.split("\t") for line in korvet("topics", "list")[1]}
    assert rows["a"][1:4] == ["4", "batch", "dense"] and rows["c"][1:4] == ["1", "record", "time"]
    code, lines, said = korvet("topics", "delete", "a", "absent")
    assert (code, lines) == (2, []) and "There is no topic 'absent'" in said
    assert "reate it with `korvet topics create absent`" in said
    assert korvet("topics", "delete", "a", "b", "c")[1] == ["deleted a", "deleted b", "deleted c"]
    assert {"a", "b", "c"}.isdisjoint(line.split("\t")[0] for line in korvet("topics", "list")[1])


def test_groups_of_every_type_are_listed_and_deleted(
    korvet: Lines, broker: RunningConsole, topic: str
) -> None:
    broker.log.commit("committed", {(topic, 0): 0})
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "modern", "group.protocol": "consumer"}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    rows = [line.split("\t") for line in korvet("groups", "list", "--no-header")[1]]
    consumer.close()
    assert ["committed", "classic", "Empty"] in [row[:3] for row in rows]
    assert ["modern", "consumer", "Stable", "consumer", "1"] in rows
    assert korvet("groups", "delete", "committed", "modern")[1] == [
        "deleted committed",
        "deleted modern",
    ]
    code, _, said = korvet("groups", "delete", "committed")
    assert code == 2 and "group 'committed'" in said


def open_file(request: pytest.FixtureRequest, text: str) -> TextIO:
    """Return a file with that text, as stdin."""
    path = request.getfixturevalue("tmp_path") / "stdin"
    path.write_text(text)
    file: TextIO = path.open()
    request.addfinalizer(file.close)
    return file


def test_records_are_produced_and_consumed_by_a_group(
    korvet: Lines, topic: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    values = [f"k{n}={n}" for n in range(300)]
    monkeypatch.setattr("sys.stdin", open_file(request, "\n".join(values)))
    code, _, said = korvet("produce", topic, "-K", "=", "-H", "a=b")
    assert code == 0 and f"300 records appended to {topic}" in said
    shown = ("--format", "%k=%s %h\n")
    assert sorted(korvet("consume", topic, *shown)[1]) == sorted(f"{row} a=b" for row in values)
    assert len(korvet("consume", topic, "--group", "readers", "--max", "120")[1]) == 120
    assert len(korvet("consume", topic, "--group", "readers")[1]) == 180
    assert korvet("consume", topic, "--group", "readers")[1] == []
    assert len(korvet("consume", topic, "--from", "1h", "--key", "k7")[1]) == 1
    assert korvet("consume", topic, "--from", "latest")[1] == []
    code, lines, said = korvet("consume", topic, "--from", "99999999999999999")
    assert (code, lines) == (2, []) and "it holds" in said


def test_records_of_aborted_transactions_are_left_out(
    korvet: Lines, broker: RunningConsole, topic: str
) -> None:
    producer = opened(broker, topic)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(30)
    committed = ("--isolation-level", "read_committed")
    assert korvet("consume", topic, *committed)[1] == ["committed"]
    assert korvet("consume", topic)[1] == ["value", "committed"]


def test_new_records_are_followed(korvet: Lines, broker: RunningConsole, topic: str) -> None:
    broker.log.append(topic, 1, [Record(b"before")])
    timer = threading.Timer(0.5, lambda: broker.log.append(topic, 0, [Record(b"new")]))
    timer.start()
    assert korvet("consume", topic, "--follow", "--max", "2")[1] == ["before", "new"]
    timer.join()


def test_partitions_are_merged_by_time(
    korvet: Lines, broker: RunningConsole, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {0: [1, 5, 3, 9, 9], 1: [2, 4, 6, 8, 10]}
    for number, moments in times.items():
        for at in moments:
            record = Record(b"x" * (1 << 19 if at == 5 else 9), timestamp_ms=at)
            broker.log.append(topic, number, [record])
    text = ("-f", "%p:%T ")
    merged = "0:1 1:2 1:4 0:5 0:3 1:6 1:8 0:9 0:9 1:10 "
    assert korvet("consume", topic, *text)[1] == [merged]
    assert korvet("consume", topic, "-n", "4", "-g", "merged", *text)[1] == [merged[:16]]
    assert korvet("consume", topic, "-g", "merged", *text)[1] == [merged[16:]]
    assert korvet("consume", topic, "--from", "latest", "-g", "merged", *text)[1] == []
    # Memory for one partition: the other waits until its records are written.
    monkeypatch.setattr("korvet.cli.record_reader.MEMORY", 1)
    by_partition = " ".join(f"{number}:{at}" for number in times for at in times[number])
    assert korvet("consume", topic, *text)[1] == [f"{by_partition} "]


def test_a_record_goes_to_no_partition_that_the_topic_lacks(
    korvet: Lines, topic: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("sys.stdin", open_file(request, "value"))
    code, _, said = korvet("produce", topic, "--partition", "2")
    assert code == 2 and "partitions 0 to 1" in said


def test_a_topic_is_described_and_trimmed(
    korvet: Lines, broker: RunningConsole, topic: str
) -> None:
    first = broker.log.append(topic, 1, [Record(b"a"), Record(b"b")]).base_offset
    row = korvet("topics", "describe", topic, "--no-header")[1][0].split("\t")
    assert row[:6] == [topic, broker.log.topic(topic).id, "2", "1", "record", "time"]
    both = korvet("topics", "describe", topic, topic, "--configs")[1]
    assert both.count(f"{topic}\toffset.mode\ttime\tdefault") == 2
    _, *rows = korvet("topics", "describe", topic, "--partitions")[1]
    assert rows[1].split("\t")[1:4] == ["1", str(first), str(first + 2)] and len(rows) == 2
    assert "two tables" in korvet("topics", "describe", topic, "-p", "-c")[2]
    trimmed = korvet("topics", "trim", topic, "--before", str(first + 1), "-p", "1")
    assert trimmed[:2] == (0, ["partition\tstarted_at\tstarts_at", f"1\t{first}\t{first + 1}"])
    assert korvet("consume", topic)[1] == ["b"]
    assert korvet("topics", "describe", topic, "nope")[:2] == (2, [])


def test_a_group_is_created_and_moved(korvet: Lines, broker: RunningConsole, topic: str) -> None:
    name = f"of-{topic}"
    broker.log.append(topic, 0, [Record(b"a"), Record(b"b")])
    end = broker.log.offsets(topic)[0].latest
    code, _, said = korvet("groups", "reset", name, "--topic", topic, "--to", "earliest")
    assert code == 2 and f"There is no group '{name}'" in said
    created = korvet("groups", "create", name, "--topic", topic, "--no-header")
    assert created[1][0] == f"{topic}\t0\t{end}"
    code, _, said = korvet("groups", "create", name, "--topic", topic)
    assert code == 2 and "already" in said
    korvet("groups", "reset", name, "--topic", topic, "--to", "earliest")
    assert len(korvet("consume", topic, "--group", name)[1]) == 2
    code, _, said = korvet("groups", "reset", name, "--topic", "nope", "--to", "earliest")
    assert code == 2 and "There is no topic 'nope'" in said


def test_members_offsets_and_lag_of_a_group_are_described(
    korvet: Lines, broker: RunningConsole, request: pytest.FixtureRequest
) -> None:
    topic, group = (f"{of}{zlib.crc32(request.node.nodeid.encode())}" for of in ("d", "g"))
    broker.log.create_topic(topic, 2, configs={"offset.mode": "dense"})
    source = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3):
        source.produce(topic, b"%d" % number, partition=0)
    assert source.flush(30) == 0
    broker.log.commit(group, {(topic, 0): 2})

    def described(name: str) -> tuple[str, list[list[str]], list[list[str]]]:
        state, _, *rows = korvet("groups", "describe", name)[1]
        at = rows.index("")
        cells = [row.split("\t") for row in rows]
        return state.partition(":")[2][1:].split(",")[0], cells[:at], cells[at + 2 :]

    state, members, [offsets] = described(group)
    assert (state, members, offsets[:5]) == ("Empty", [], [topic, "0", "2", "3", "1"])
    settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
    for protocol in ("classic", "consumer"):
        of = f"{group}-{protocol}"
        member = Consumer({**settings, "group.id": of, "group.protocol": protocol})
        member.subscribe([topic])
        assert len(member.consume(3, timeout=30)) == 3
        state, members, offsets = described(of)
        assert state == "Stable" and [row[3] for row in members] == ["/127.0.0.1"]
        assert [row[:5] for row in offsets] == [
            [topic, "0", "-", "3", "3"],
            [topic, "1", "-", "0", "0"],
        ]
        assert {row[8] for row in offsets} == {members[0][0]}
        member.close()
    code, _, said = korvet("groups", "describe", "nope")
    assert code == 2 and "There is no group 'nope'" in said


def test_configs_of_a_topic_are_changed(korvet: Lines, broker: RunningConsole, topic: str) -> None:
    assert korvet("topics", "alter", topic, "--config", "segment.ms=7")[1] == [
        f"altered {topic}: segment.ms"
    ]
    with broker.server.client() as client:
        assert b'"segment.ms":"7"' in client.hget(f"{broker.namespace}:topics", topic)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("quotas set nonsense=1 --user x", "nonsense is not a quota of user (INVALID_REQUEST)."),
        ("quotas set producer_byte_rate=1", "whose quota: use --user, --client-id, --ip or"),
        ("quotas set producer_byte_rate=x --user x", "producer_byte_rate must be a number"),
        ("quotas set producer_byte_rate --user x", "a quota needs NAME=VALUE"),
        ("quotas list --default host", "--default must be one of user, client-id, ip"),
        ("groups alter jobs", "no change is given"),
        ("groups alter jobs --config share.record.lock.duration.ms=1", "from 1000 to"),
        ("brokers alter --config node.id=7", "(INVALID_"),
        ("transactions describe nope", "There is no transactional id 'nope'"),
        ("transactions abort nope", "There is no transactional id 'nope'"),
        ("transactions hanging nope", "There is no topic 'nope'"),
        ("groups delete-offsets nope --topic nope", "There is no topic 'nope'"),
    ],
)
def test_a_refusal_says_why(korvet: Lines, words: str, sentence: str) -> None:
    code, lines, said = korvet(*words.split())
    assert (code, lines) == (2, []) and sentence in said


def test_offsets_of_a_group_are_deleted(korvet: Lines, broker: RunningConsole, topic: str) -> None:
    broker.log.commit("g", {(topic, 0): 5, (topic, 1): 6})
    assert korvet("groups", "delete-offsets", "g", "--topic", topic, "-p", "1")[1] == [
        f"deleted the offsets of g for {topic}, partitions 1"
    ]
    assert [row.offset for row in broker.log.committed("g")] == [5]
    korvet("groups", "delete-offsets", "g", "--topic", topic)
    assert broker.log.committed("g") == []


def opened(broker: RunningConsole, topic: str) -> Producer:
    """Begin a transaction with a record in partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(30) == 0
    return producer


def test_an_open_transaction_is_described_and_aborted(
    korvet: Lines, broker: RunningConsole, topic: str
) -> None:
    producer, name = opened(broker, topic), f"of-{topic}"
    assert [name, "Ongoing"] in [line.split("\t")[:2] for line in korvet("transactions", "list")[1]]
    row = korvet("transactions", "describe", name, "--no-header")[1][0].split("\t")
    assert (row[0], row[3], row[5]) == ("Ongoing", "60000", f"{topic}-0")
    assert korvet("transactions", "abort", name)[1] == [f"{name}: aborted; its producer is fenced"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert korvet("transactions", "abort", name)[1] == [
        f"{name}: had no open transaction; its producer is fenced"
    ]
    row = korvet("transactions", "describe", name, "--no-header")[1][0].split("\t")
    assert (row[0], row[4:]) == ("Empty", ["-", "-"])


def test_a_transaction_that_no_id_has_is_listed_and_aborted(
    korvet: Lines, broker: RunningConsole, topic: str
) -> None:
    producer = opened(broker, topic)
    assert korvet("transactions", "hanging", topic, "--no-header")[1] == []
    with broker.server.client() as client:
        client.unlink(Keys(broker.namespace).transaction(f"of-{topic}").transaction)
    _, (line,), said = korvet("transactions", "hanging", topic, "--no-header")
    assert line.split("\t")[:2] == [topic, "0"] and "give --abort" in said
    assert korvet("transactions", "hanging", topic, "--abort")[0] == 0
    assert korvet("transactions", "hanging", topic, "--no-header")[1] == []
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


@pytest.mark.parametrize("mode", ["time", "dense", "bytes"])
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_the_newest_records_are_read_in_every_offset_mode(
    korvet: Lines, broker: RunningConsole, request: pytest.FixtureRequest, mode: str, layout: str
) -> None:
    name = f"n{zlib.crc32(request.node.nodeid.encode())}"
    broker.log.create_topic(name, 3, {"offset.mode": mode, "storage.format": layout})
    if (mode, layout) == ("time", "record"):  # a gap of weeks: these offsets are times
        with broker.server.client() as client:
            at = int(client.time()[0]) * 1000 - 86_400_000
            stream = Keys(broker.namespace).partition(name, 0).stream
            client.xadd(stream, {"value": "old"}, id=f"{at}-0")
    for n in range(12):
        sizes = 9 if n % 5 else 600_000  # a fetch ends after one or two of the large ones
        broker.log.append(name, n % 2, [Record(b"%d " % n + b"x" * sizes, timestamp_ms=n + 1)])
    text = ("-f", "%p:%T ")
    assert korvet("consume", name, "--tail", "3", *text)[1] == ["1:10 0:11 1:12 "]
    assert korvet("consume", name, "--from", "-2", *text)[1] == ["0:9 1:10 0:11 1:12 "]
    assert korvet("consume", name, "--tail", "4", "-p", "1", *text)[1] == ["1:6 1:8 1:10 1:12 "]
    assert korvet("consume", name, "--tail", "4", "--to", "earliest", *text)[1] == []
    assert korvet("consume", name, "--tail", "99", "-n", "2", "-p", "1", *text)[1] == ["1:2 1:4 "]
    words = ("--grep", "^(3|10) ", "--isolation-level", "read_committed", *text)
    assert korvet("consume", name, "--tail", "99", *words)[1] == ["1:4 0:11 "]
    everything = korvet("consume", name, *text)
    assert korvet("consume", name, "--from", "-99", *text) == everything
    assert "leave out --from" in korvet("consume", name, "--tail", "1", "--from", "1")[2]
    assert "no regular expression" in korvet("consume", name, "--grep", "(")[2]


def test_the_brokers_of_the_environment_are_used_unless_a_redis_is_named(
    broker: RunningConsole, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORVET_BROKERS", broker.bootstrap)
    assert run(["brokers", "configs", "--broker", "3"]) == 2
    assert "There is no broker 3; there are 0." in capfd.readouterr().err
    here = ["--redis", broker.server.url, "--namespace", broker.namespace]
    assert run(["brokers", "configs", "--broker", "3", *here]) == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_user_is_authenticated_and_authorized(
    valkey_server: TestServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mechanism: str,
    protocol: str,
) -> None:
    authority = Authority.make()
    authority.sign("broker").write(tmp_path / "broker.pem")
    (tmp_path / "ca.pem").write_text(authority.pem)
    sets = (
        f"sasl.enabled.mechanisms={mechanism}",
        f"ssl.keystore.location={tmp_path / 'broker.pem'}",
        "authorizer.class.name=korvet",
        "super.users=User:ann",
    )
    file = tmp_path / "client.properties"
    monkeypatch.setenv("KORVET_PASSWORD", "cor,rect=")
    with running_console(valkey_server, *sets, listen=f"{protocol}://127.0.0.1:0") as made:
        for user in ("ann", "ben"):
            made.add_user(user, "cor,rect=")

        def command(user: str) -> tuple[int, str]:
            file.write_text(
                f"# of a test\nbootstrap.servers={made.bootstrap}\nsecurity.protocol={protocol}\n"
                f"sasl.mechanisms={mechanism}\nsasl.username={user}\n"
                f"ssl.ca.location={tmp_path / 'ca.pem'}\n"
            )
            code = run(
                [
                    "quotas",
                    "set",
                    "producer_byte_rate=9",
                    "--user",
                    "x",
                    "--client-config",
                    str(file),
                ]
            )
            said = capfd.readouterr()
            return code, said.out + said.err

        assert command("ann") == (0, "set producer_byte_rate\n")
        code, said = command("ben")
        assert code == 2 and "CLUSTER_AUTHORIZATION_FAILED" in said
        code, said = command("nobody")
        assert code == 2 and re.search("invalid credentials|Invalid username", said)
        monkeypatch.setenv("KORVET_PASSWORD", "wrong")
        code, said = command("ann")
        assert code == 2 and re.search("invalid credentials|Invalid username", said)
        monkeypatch.delenv("KORVET_PASSWORD")
        code, said = command("ann")
        assert code == 2 and "KORVET_PASSWORD" in said
        # Without TLS and SASL the broker closes the connection, or answers nothing that is Kafka's.
        assert run(["quotas", "list", "--brokers", made.bootstrap]) == 2
        said = capfd.readouterr().err
        assert "--client-config" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sasl.jaas=x\n", "sasl.jaas is no setting of commands"),
        ("security.protocol\n", "each line is NAME=VALUE"),
        ("security.protocol=tls\n", "security.protocol must be one of plaintext, ssl"),
        ("sasl.mechanism=GSSAPI\n", "sasl.mechanism must be PLAIN or one of SCRAM-SHA-256"),
        ("", "No broker is named"),
        ("bootstrap.servers=host:port\n", "'host:port' is no address of a broker"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(StartError, match=sentence):
        ClientSettings.read("", str(file), {})
    with pytest.raises(StartError, match="cannot be read"):
        ClientSettings.read("", str(tmp_path / "absent"), {})


def test_the_first_broker_that_answers_is_asked(
    broker: RunningConsole, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["quotas", "list", "--brokers", f"127.0.0.1:1,{broker.bootstrap}"]) == 0
    assert run(["quotas", "list", "--brokers", "127.0.0.1:1"]) == 2
    assert "There is no connection to 127.0.0.1:1" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "This is no Kafka broker"),
        (b"\x00\x00\x00\x02\x00\x00", "cannot be decoded"),
        (b"", "has closed the connection"),
    ],
)
def test_a_server_that_is_no_broker_is_named(
    capfd: pytest.CaptureFixture[str], reply: bytes, sentence: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(1 << 16)
                accepted.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        assert run(["quotas", "list", "--brokers", where]) == 2
        thread.join()
    assert sentence in capfd.readouterr().err


def test_a_topic_that_was_created_again_is_not_deleted(broker: RunningConsole, topic: str) -> None:
    settings = ClientSettings.read(broker.bootstrap, None, {})

    async def delete() -> None:
        async with KafkaClient(settings) as client:
            log = BrokerLog(client)
            await log.topic(topic)
            broker.log.delete_topic(topic)
            broker.log.create_topic(topic, 1)
            await log.delete_topic(topic)

    with pytest.raises(KorvetError, match="UNKNOWN_TOPIC_ID"):
        asyncio.run(delete())
    assert topic in [row.name for row in broker.log.topics()]
