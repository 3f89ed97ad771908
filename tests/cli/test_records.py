"""Check `korvet produce` and `korvet consume`: formats, keys, headers, ranges, groups."""

import json

import pytest

from korvet import Korvet as Log
from korvet import Record
from korvet.cli.record_template import reader, writer
from korvet.config.setting import StartError
from korvet.library.values import StoredRecord
from korvet.store.sync_store import SyncStore
from tests.cli.conftest import Korvet
from tests.spark import topic_log
from tests.support.redis_servers import TestServer

RECORD = StoredRecord("orders", 2, 7, 1700000000000, b"k1", b"v\xff", [("a", b"1"), ("b", None)])
EMPTY = StoredRecord("orders", 0, 0, -1, None, None, [])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"%t-%p@%o %T\n", b"orders-2@7 1700000000000\n"),
        ("%k(%K)=%s(%S)", b"k1(2)=v\xff(2)"),
        (r"%h\t100%%\x41\\", b"a=1,b\t100%A\\"),
    ],
)
def test_a_format_writes_the_parts_of_a_record(text: str, written: bytes) -> None:
    assert writer(text)(RECORD) == written
    assert writer("%k|%s|%K|%S|%h|%T")(EMPTY) == b"||-1|-1||-1"


@pytest.mark.parametrize("text", ["%x", "%", r"\q", r"\x4", "a%"])
def test_an_unknown_code_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="is no part of a format"):
        writer(text)


def test_a_line_is_read_in_its_format() -> None:
    read = reader(r"%p %T %k:%s|%h\n")
    assert read(b"1 5 a b:c:d|n=x=y,m", 1) == (
        1,
        Record(b"c:d", b"a b", [("n", b"x=y"), ("m", None)], 5),
    )
    assert reader("%o,%s")(b"12,v", 1) == (None, Record(b"v", None, []))
    with pytest.raises(StartError, match="Line 3 does not have the format"):
        read(b"x", 3)
    with pytest.raises(StartError, match="twice"):
        reader("%k %k")


def test_consume_writes_what_produce_reads(korvet: Korvet, log: Log) -> None:
    log.create_topic("copy", 2, {"offset.mode": "dense"})
    records = [Record(b"v1", b"k", [("h", b"1")], 1700000000000), Record(b"v 2", b"k2", [], 5)]
    log.produce("orders", records)
    text = r"%p;%T;%k;%s;%h\n"
    code, first, _ = korvet("consume", "orders", "-f", text)
    assert code == 0 and sorted(line.split(";", 1)[1] for line in first.splitlines()) == [
        "1700000000000;k;v1;h=1",
        "5;k2;v 2;",
    ]
    assert korvet("produce", "copy", "-f", text, stdin=first.encode())[0] == 0
    assert korvet("consume", "copy", "-f", text)[1] == first


def test_options_add_keys_headers_and_tombstones(korvet: Korvet, log: Log) -> None:
    words = ("-K", ":", "--key", "other", "-H", "from=test", "-H", "n=", "-Z", "-p", "1")
    assert korvet("produce", "orders", *words, stdin=b"a:1\n2\ngone:\n")[0] == 0
    rows = [json.loads(line) for line in korvet("consume", "orders", "-f", "json")[1].splitlines()]
    assert [(row["partition"], row["key"], row["value"]) for row in rows] == [
        (1, "a", "1"),
        (1, "other", "2"),
        (1, "gone", None),
    ]
    assert all(row["headers"] == [["from", "test"], ["n", ""]] for row in rows)
    code, _, said = korvet("produce", "orders", "-H", "x", stdin=b"1\n")
    assert code == 2 and "--header needs NAME=VALUE" in said


def test_a_range_of_times_or_offsets_is_read(korvet: Korvet, log: Log) -> None:
    moments = [1_700_000_000_000 + 60_000 * minute for minute in range(4)]
    for moment in moments:
        log.append("orders", 0, [Record(str(moment).encode(), timestamp_ms=moment)])
    at = ("--from", "2023-11-14T22:14Z", "--to", "2023-11-14T22:16Z")
    assert korvet("consume", "orders", *at)[1].split() == [str(each) for each in moments[1:3]]
    offsets = ("--from", "1", "--to", "3", "-p", "0")
    assert korvet("consume", "orders", *offsets, "-f", "%o ")[1] == "1 2 "
    code, _, said = korvet("consume", "orders", "--to", "latest", "--follow")
    assert code == 2 and "leave out --to" in said


def test_only_records_with_a_key_are_printed(korvet: Korvet, log: Log) -> None:
    log.produce("orders", [Record(b"%d" % n, b"ab"[n % 2 : n % 2 + 1]) for n in range(6)])
    assert korvet("consume", "orders", "--key", "a", "--max", "2")[1] == "0\n2\n"


def test_a_group_continues_where_it_stopped(korvet: Korvet, log: Log) -> None:
    log.append("orders", 0, [Record(b"%d" % n) for n in range(5)])
    assert korvet("consume", "orders", "-g", "readers", "--max", "2")[1] == "0\n1\n"
    (row,) = [row for row in log.committed("readers") if row.partition == 0]
    assert (row.offset, row.lag) == (2, 3)
    assert korvet("consume", "orders", "-g", "readers")[1] == "2\n3\n4\n"
    assert korvet("consume", "orders", "-g", "readers")[1] == ""
    assert korvet("consume", "orders", "-g", "readers", "--from", "4", "-p", "0")[1] == "4\n"
    assert sum(row.lag for row in log.committed("readers")) == 0


def test_a_group_that_has_read_lost_records_gets_a_warning_and_continues_at_the_first_of_them(
    korvet: Korvet, log: Log, valkey_server: TestServer
) -> None:
    with SyncStore.connect(valkey_server.url) as store:
        stored = topic_log.Log(store, valkey_server.url)
        topic = stored.create("t")
        stored.append(topic, 0, topic_log.plain(2))
        with topic_log.forgotten(stored):
            stored.append(topic, 0, topic_log.plain(2))
        topic_log.begun(stored, topic, 4)
        stored.append(topic, 0, topic_log.plain(1))
    log.commit("readers", {("t", 0): 4})
    _, printed, said = korvet("consume", "t", "-g", "readers", "-f", "%o ")
    assert printed == "5 " and "cannot be read from offset 4: " in said and "offset 2 on" in said
    assert korvet("consume", "t", "-g", "readers") == (0, "", "")
    assert "has lost the records from offset 2 on" in korvet("consume", "t", "--from", "4")[2]


def test_aborted_transactions_are_left_out_on_request(korvet: Korvet, log: Log) -> None:
    code, _, said = korvet("consume", "orders", "--isolation-level", "serializable")
    assert code == 2 and "read_uncommitted or read_committed" in said
    log.append("orders", 0, [Record(b"x")])
    assert korvet("consume", "orders", "--isolation-level", "read_committed")[1] == "x\n"
