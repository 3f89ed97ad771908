"""Check topics and records in the console: pages, and changes by forms."""

import httpx
import pytest

from korvet import Record
from korvet.console import browse
from tests.interop.librdkafka import eventually
from tests.support.running_console import RunningConsole, send


def test_the_overview_has_brokers_redis_and_the_findings_of_doctor(console: RunningConsole) -> None:
    # On a busy machine the first pages may be without the results of the checks.
    found = eventually(lambda: (page := console.api("/overview"))["is_checked"] and page)
    assert [row["is_controller"] for row in found["brokers"]] == [True]
    assert found["redis"]["server"].startswith("Valkey")
    assert found["redis"]["memory_bytes"] > 0
    assert "persistence" in {row["subject"] for row in found["findings"] if row["grade"] == "bad"}
    assert found["groups"] == 2


def test_the_list_of_topics_has_sizes_and_the_slowest_group(console: RunningConsole) -> None:
    (row,) = console.api("/topics", q="orders")["topics"]
    assert (row["partitions"], row["records"]) == (3, 60)
    assert row["slowest"]["group"] == "billing"
    assert (row["slowest"]["lag"], row["groups"]) == (60, 2)
    (polled,) = console.api("/topics", q="orders", lags=0)["topics"]
    assert (polled["records"], polled["slowest"]) == (row["records"], None)


def test_a_page_of_the_list_has_50_topics(console: RunningConsole) -> None:
    for at in range(52):
        console.log.create_topic(f"many-{at:02}", 1)
    first, second = (console.api("/topics", q="many-", page=page) for page in (1, 2))
    assert (first["total"], first["pages"], len(first["topics"])) == (52, 2, 50)
    assert [row["name"] for row in second["topics"]] == ["many-50", "many-51"]
    for at in range(52):
        console.log.delete_topic(f"many-{at:02}")


def test_a_topic_has_partitions_configs_and_consumers(console: RunningConsole) -> None:
    found = console.api("/topics/orders")
    rows = found["partitions"]
    assert [row["stream"] for row in rows] == [
        f"{console.namespace}:orders:{number}" for number in range(3)
    ]
    assert sum(row["records"] for row in rows) == 60
    assert all(row["earliest"] <= row["local_start"] <= row["last_stable"] for row in rows)
    assert [row["group"] for row in found["consumers"]] == ["billing", "shipping"]
    retention = next(row for row in found["configs"] if row["name"] == "retention.ms")
    assert (retention["source"], retention["is_read_only"]) == ("default", False)
    assert retention["documentation"]


def test_a_topic_says_which_partitions_have_entries_without_an_offset(
    console: RunningConsole, browser: httpx.Client
) -> None:
    console.log.create_topic("far", 2)
    assert console.api("/topics/far")["findings"] == []
    assert "entries" not in browser.get("/topics/far").text
    with console.server.client() as client:
        client.xadd(f"{console.namespace}:far:1", {"value": "far"}, id=f"{2**63}-0")
    (sentence,) = console.api("/topics/far")["findings"]
    assert sentence.startswith("1 entries of far-1 have ids that can have no offset")
    page = browser.get("/topics/far").text
    assert "<code>korvet topics repair far --yes</code> deletes them" in page
    console.log.delete_topic("far")


@pytest.mark.parametrize("topic", ["orders", "batches"])
def test_the_newest_records_are_shown_first(console: RunningConsole, topic: str) -> None:
    found = console.api(f"/topics/{topic}/records", limit=6)
    stamps = [row["timestamp_ms"] for row in found["records"]]
    assert stamps == sorted(stamps, reverse=True)
    assert stamps[0] == 1_700_000_000_059
    assert found["is_newest_first"]


def test_the_newest_records_may_all_be_of_one_partition(console: RunningConsole) -> None:
    console.log.create_topic("uneven", 4, {"offset.mode": "dense"})
    for number in range(4):
        old = [Record(b"old", timestamp_ms=1_000 + at) for at in range(20)]
        console.log.append("uneven", number, old)
    console.log.append("uneven", 2, [Record(b"new", timestamp_ms=9_000 + at) for at in range(20)])
    found = console.api("/topics/uneven/records", limit=10)["records"]
    assert [(row["partition"], row["timestamp_ms"]) for row in found] == [
        (2, 9_019 - at) for at in range(10)
    ]
    console.log.delete_topic("uneven")


@pytest.mark.parametrize("topic", ["orders", "batches"])
def test_pages_follow_each_other_without_a_gap_or_a_repeat(
    console: RunningConsole, topic: str
) -> None:
    found, query = [], {"from": "earliest", "limit": "7"}
    for _ in range(20):
        page = console.api(f"/topics/{topic}/records", **query)
        found += [row["timestamp_ms"] - 1_700_000_000_000 for row in page["records"]]
        query["cursor"] = page["cursor"]
        if page["is_end"]:
            break
    assert sorted(found) == list(range(60))


@pytest.mark.parametrize("topic", ["orders", "batches"])
@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"key": "k17"}, [17]),
        ({"key": "nothing"}, []),
        ({"value": '"id": 4'}, [4, *range(40, 50)]),
        ({"field": "customer.name", "equals": "c3"}, list(range(3, 60, 7))),
        ({"field": "customer.missing"}, []),
        ({"field": "id", "equals": "12", "key": "k12"}, [12]),
    ],
)
def test_records_are_found_by_key_content_and_json_field(
    console: RunningConsole, topic: str, query: dict[str, str], wanted: list[int]
) -> None:
    found = console.api(f"/topics/{topic}/records", limit=200, **query)
    assert sorted(row["timestamp_ms"] - 1_700_000_000_000 for row in found["records"]) == wanted
    assert found["is_end"] and found["scanned"] == 60


def test_a_value_that_is_almost_json_and_no_utf8_is_shown(console: RunningConsole) -> None:
    console.log.create_topic("odd", 1)
    console.log.produce("odd", [Record(b'{"a":"\xff"}')])
    (row,) = console.api("/topics/odd/records")["records"]
    assert "a" in str(row["value"])


def test_records_are_read_from_a_time(console: RunningConsole) -> None:
    found = console.api(
        "/topics/batches/records", **{"from": "2023-11-14T22:13:20.050Z", "limit": 200}
    )
    assert len(found["records"]) >= 10
    assert max(row["timestamp_ms"] for row in found["records"]) == 1_700_000_000_059


def test_a_search_ends_after_its_limit_and_continues_from_its_cursor(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "MAX_SECONDS", 60.0)  # the limit of records is met first
    console.log.create_topic("long", 1, {"storage.format": "batch"})
    for _ in range(3):
        console.log.produce("long", [Record(b"x" * 50) for _ in range(10_000)])
    console.log.produce("long", [Record(b"here", key=b"needle")])
    first = console.api("/topics/long/records", key="needle", **{"from": "earliest"})
    assert first["is_limited"] and not first["records"]
    assert 20_000 <= first["scanned"] < 30_001
    second = console.api("/topics/long/records", key="needle", cursor=first["cursor"])
    assert [row["value"]["text"] for row in second["records"]] == ["here"]
    newest = console.api("/topics/long/records", key="needle")
    assert [row["value"]["text"] for row in newest["records"]] == ["here"]
    console.log.delete_topic("long")


@pytest.mark.parametrize("topic", ["orders", "batches"])
def test_older_records_follow_the_newest_with_and_without_a_filter(
    console: RunningConsole, topic: str
) -> None:
    for query, wanted in (({"value": '"c3"'}, 9), ({}, 60)):
        found, before = [], {}
        for _ in range(30):
            page = console.api(f"/topics/{topic}/records", **query, **before, limit=4)
            found += page["records"]
            before = {"before": page["older"]}
            if page["is_end"]:
                break
        places = {(row["partition"], row["offset"]) for row in found}
        assert (len(found), len(places)) == (wanted, wanted)
    assert page["is_end"] and page["is_newest_first"]


def test_a_record_is_sent_again_by_a_form_with_its_fields(browser: httpx.Client) -> None:
    row = browser.get("/api/topics/orders/records").json()["records"][0]
    place = f"{row['partition']}:{row['offset']}"
    found = browser.get("/api/topics/orders/produce", params={"again": place}).json()["fields"]
    assert (found["key"], found["value"]) == (row["key"]["text"], row["value"]["text"])
    assert found["headers"].startswith("trace: t")
    text = browser.get("/topics/orders/produce", params={"again": place}).text
    assert f'name="key" autocomplete="off" value="{found["key"]}"' in text


def test_a_long_value_is_cut_to_a_prefix(console: RunningConsole, browser: httpx.Client) -> None:
    console.log.create_topic("large", 1)
    console.log.produce("large", [Record(b"v" * 900_000, key=b"\xff\x00")])
    (row,) = console.api("/topics/large/records")["records"]
    assert (row["value"]["bytes"], row["value"]["is_cut"]) == (900_000, True)
    assert len(row["value"]["text"]) == 2_000
    assert row["key"]["format"] == "hex"
    whole = browser.get(f"/topics/large/records/0/{row['offset']}/download")
    assert whole.content == b"v" * 900_000
    assert whole.headers["content-disposition"].startswith("attachment")
    assert len(browser.get(f"/topics/large/records/0/{row['offset']}").content) < 80_000
    console.log.delete_topic("large")


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_record_that_is_too_large_is_named_and_not_read(
    console: RunningConsole, browser: httpx.Client, layout: str
) -> None:
    configs = {"storage.format": layout, "max.message.bytes": "60000000", "offset.mode": "dense",
               "storage.compression": "none"}  # fmt: skip
    console.log.create_topic("huge", 1, configs)
    console.log.append("huge", 0, [Record(b"before")])
    console.log.append("huge", 0, [Record(b"x" * 40_000_000, key=b"k")])
    console.log.append("huge", 0, [Record(b"after")])
    found = console.api("/topics/huge/records", **{"from": "earliest"})["records"]
    assert [(row["offset"], row["value"]["format"]) for row in found] == [(0, "large"), (2, "text")]
    assert 40_000_000 < found[0]["value"]["bytes"] < 41_000_000
    page = browser.get("/topics/huge/records/0/1")
    assert page.status_code == 413 and "have 38.1 MiB" in page.text
    assert "not read: about 38.1 MiB" in browser.get("/topics/huge/records?from=earliest").text
    console.log.delete_topic("huge")


@pytest.mark.parametrize("topic", ["orders", "batches"])
def test_a_record_has_the_command_that_shows_the_same_entry(
    console: RunningConsole, topic: str
) -> None:
    row = console.api(f"/topics/{topic}/records", key="k33")["records"][0]
    found = console.api(f"/topics/{topic}/records/{row['partition']}/{row['offset']}")
    command, _, words = found["commands"]["redis-cli"].partition(" XRANGE ")
    assert command.startswith("redis-cli -s /")
    stream, *rest = words.split(" ")
    with console.server.client() as client:
        (entry,) = client.execute_command("XRANGE", stream.strip("'"), *rest)
    assert b'"id": 33' in b"".join(entry[1].values())
    assert found["record"]["headers"] == [
        ["trace", {"text": "t33", "format": "text", "bytes": 3, "is_cut": False, "note": ""}]
    ]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/missing", 404),
        ("/topics/orders/records?partition=9", 404),
        ("/topics/orders/records?partition=x", 400),
        ("/topics/orders/records?from=yesterday", 400),
        ("/topics/orders/records?cursor=1", 400),
        ("/topics/orders/records?format=xml", 400),
        ("/topics/orders/records/0/1", 404),
        ("/nothing", 404),
    ],
)
def test_a_wrong_path_or_query_is_one_sentence(
    browser: httpx.Client, path: str, status: int
) -> None:
    page, data = browser.get(path), browser.get(f"/api{path}")
    assert (page.status_code, data.status_code) == (status, status)
    assert data.json()["message"].endswith((".", ")"))
    assert 'role="alert"' in page.text
    assert '<nav aria-label="Pages">' in page.text


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/topics/orders/records?from=yesterday", 'name="from" list="positions" value="yesterday"'),
        ("/topics/orders/records?key=k1&partition=9", 'name="key" value="k1"'),
        ("/topics/orders/records?format=xml", 'name="format"'),
        ("/group/reset?id=billing&topic=orders&to=soon", 'value="soon"'),
        ("/group/reset?id=billing&topic=none&to=latest", 'value="none"'),
        ("/topics?q=ord&page=x", 'name="q" value="ord"'),
        ("/groups?q=bil&page=x", 'name="q" value="bil"'),
        ("/transactions?q=tx&page=x", 'name="q" value="tx"'),
        ("/topics/orders?page=x", 'aria-label="Of the topic"'),
    ],
)
def test_a_refused_query_keeps_the_form_as_typed(
    browser: httpx.Client, path: str, field: str
) -> None:
    page = browser.get(path)
    assert page.status_code in (400, 404)
    assert 'role="alert"' in page.text and field in page.text
    assert "No record" not in page.text and "There are no records" not in page.text


def test_a_form_that_is_too_old_comes_back_as_typed(browser: httpx.Client) -> None:
    page = browser.post("/topics/orders/produce", data={"csrf": "of before", "value": "long text"})
    assert page.status_code == 403 and "The form is too old" in page.text
    assert ">long text</textarea>" in page.text
    assert browser.post("/topics/none/produce", data={"csrf": "x"}).status_code == 403


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("key=none", "60 records read, 0 shown."),
        ("key=k7", "60 records read, 1 shown."),
        ("from=earliest&limit=200", "60 records read, 60 shown."),
    ],
)
def test_the_foot_of_the_records_says_how_many_were_read_and_how_many_are_shown(
    browser: httpx.Client, query: str, sentence: str
) -> None:
    assert sentence in browser.get(f"/topics/orders/records?{query}").text


def config_of(console: RunningConsole, topic: str, name: str) -> tuple[str, str]:
    configs = console.api(f"/topics/{topic}")["configs"]
    return next((row["value"], row["source"]) for row in configs if row["name"] == name)


def test_a_topic_is_created_filled_changed_and_deleted(
    console: RunningConsole, browser: httpx.Client
) -> None:
    form = {
        "name": "made",
        "partitions": "2",
        "offset.mode": "dense",
        "configs": "max.message.bytes=999",
    }
    page = send(browser, "/create-topic", "/topics", **form)
    assert "Topic made was created." in page.text
    topic = console.log.topic("made")
    assert (topic.partitions, topic.offset_mode) == (2, "dense")
    assert topic.configs["max.message.bytes"] == "999"

    fields = {"key": "k", "value": "line\r\nbreak", "headers": "a: 1", "partition": "1"}
    page = send(browser, "/topics/made/produce", "/topics/made/produce", **fields)
    assert "appended to partition 1 at offset 0" in page.text
    page = send(browser, "/topics/made/produce", "/topics/made/produce", key="6b", value="00ff",
                encoding="hex", partition="1")  # fmt: skip
    assert page.status_code == 200
    records = list(console.log.records("made", 1))
    assert [(row.key, row.value) for row in records] == [
        (b"k", b"line\nbreak"),
        (b"k", b"\x00\xff"),
    ]
    assert list(records[0].headers) == [("a", b"1")]

    page = send(browser, "/topics/made/records/1/1", "/topics/made/records/1/1/delete-below")
    assert "starts at offset 1 now" in page.text
    assert console.log.offsets("made")[1].earliest == 1

    page = send(
        browser, "/topics/made/configs", "/topics/made/configs", name="retention.ms", value="5000"
    )
    assert "retention.ms is 5000 now." in page.text
    assert config_of(console, "made", "retention.ms") == ("5000", "topic")
    page = send(
        browser, "/topics/made/configs", "/topics/made/configs", name="retention.ms", reset="1"
    )
    assert config_of(console, "made", "retention.ms") == ("604800000", "default")

    page = send(browser, "/topics/made", "/topics/made/partitions", count="3")
    assert "Topic made has 3 partitions." in page.text
    page = send(browser, "/topics/made", "/topics/made/delete", name="mode")
    assert page.status_code == 400 and "Type made to delete" in page.text
    page = send(browser, "/topics/made", "/topics/made/delete", name="made")
    assert "Topic made was deleted." in page.text
    assert console.api("/topics", q="made")["topics"] == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "orders", "partitions": "1"}, "TOPIC_ALREADY_EXISTS"),
        ({"name": "a b", "partitions": "1"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "x", "partitions": "many"}, "Partitions must be a number"),
        ({"name": "x", "partitions": "1", "configs": "nonsense"}, "A config is NAME=VALUE"),
        ({"name": "x", "partitions": "1", "configs": "no.such=1"}, "INVALID_CONFIG"),
    ],
)
def test_a_refused_topic_keeps_what_was_typed(
    browser: httpx.Client, fields: dict[str, str], sentence: str
) -> None:
    page = send(browser, "/create-topic", "/topics", **fields)
    assert page.status_code == 400
    assert sentence in page.text.replace("&#39;", "'")
    assert f'value="{fields["name"]}"' in page.text


def test_a_topic_shows_the_sizes_of_its_tables(
    console: RunningConsole, browser: httpx.Client
) -> None:
    console.log.create_topic("stock", 2, {"table.enable": "true"})
    console.log.append("stock", 1, [Record(b"3", key=b"cups"), Record(b"5", key=b"forks")])
    rows = console.api("/topics/stock")["partitions"]
    assert [row["table"][0] for row in rows] == [0, 2]
    assert rows[1]["table"][1] > rows[0]["table"][1] == 0
    assert "table of 2 keys" in browser.get("/topics/stock").text
    assert console.api("/topics/stock", key="forks")["newest"]["text"] == "5"
    assert "The key has no value." in browser.get("/topics/stock?key=spoons").text
    assert console.api("/topics/orders")["partitions"][0]["table"] is None
    console.log.delete_topic("stock")
