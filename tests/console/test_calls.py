"""Check the calls of the API: records as JSON, groups, changes; rights, quotas and bounds."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from korvet import Record
from korvet.console.visit import PageError
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, secured_console, token_in

V2 = "application/vnd.kafka.{}v2+json"


def sent(client: httpx.Client, path: str, body: Any, kind: str = "", **options: Any) -> Any:
    """Send a body as JSON, of a format of Confluent's REST proxy."""
    headers = {"Content-Type": V2.format(kind), **options.pop("headers", {})}
    return client.post(f"/api{path}", content=json.dumps(body), headers=headers, **options)


@pytest.fixture
def topic(console: RunningConsole) -> Iterator[str]:
    """A topic of two partitions whose offsets are 0, 1, 2..."""
    console.log.create_topic("calls", 2, {"offset.mode": "dense"})
    yield "calls"
    console.log.delete_topic("calls")


def test_json_is_stored_to_the_digit_and_read_as_it_is(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    body = (
        '{"records": [{"key": "k", "value": {"n": 1.10, "at": 12345678901234567890}},'
        ' {"partition": 1, "value": null, "timestamp": 7, "headers": [{"name": "h", "value": "v"}]}'
        ', {"key": "k", "value": [1,\n2]}]}'
    )
    kind = {"Content-Type": V2.format("json.")}
    answer = browser.post(f"/api/topics/{topic}", content=body, headers=kind)
    assert answer.status_code == 200, answer.text
    places = answer.json()["offsets"]
    assert all(place["error"] is None for place in places)
    at = places[0]["partition"]
    stored = {record.offset: record for record in console.log.records(topic, at)}
    assert stored[places[0]["offset"]].value == b'{"n": 1.10, "at": 12345678901234567890}'
    assert stored[places[2]["offset"]].key == b'"k"' and places[2]["partition"] == at
    read = browser.get(f"/api/topics/{topic}/partitions/{at}/records?offset=0", headers={
        "Accept": V2.format("json.")})  # fmt: skip
    assert read.headers["content-type"] == V2.format("json.")
    assert '"value":{"n":1.10,"at":12345678901234567890}' in read.text
    (other,) = [
        row
        for row in browser.get(f"/api/topics/{topic}/partitions/1/records").json()
        if row["offset"] == places[1]["offset"]
    ]
    assert (other["value"], other["timestamp"]) == (None, 7)
    assert other["headers"] == [{"name": "h", "value": "v"}]


def test_binary_is_base64_and_other_bytes_are_named_in_json(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    records = [{"partition": 0, "key": "a2V5", "value": "/w=="}, {"partition": 0, "value": None}]
    answer = sent(browser, f"/topics/{topic}", {"records": records}, "binary.")
    assert [row["offset"] for row in answer.json()["offsets"]] == [0, 1]
    console.log.append(topic, 0, [Record(b"plain", headers=[("n", b"5")])])
    path = f"/api/topics/{topic}/partitions/0/records"
    rows = browser.get(path, params={"format": "binary", "offset": 0}).json()
    assert [(row["key"], row["value"]) for row in rows] == [
        ("a2V5", "/w=="),
        (None, None),
        (None, base64.b64encode(b"plain").decode()),
    ]
    rows = browser.get(path).json()
    assert [row["value"] for row in rows] == [{"base64": "/w=="}, None, "plain"]
    assert (rows[0]["key"], rows[2]["headers"]) == ("key", [{"name": "n", "value": "5"}])


def test_many_records_keep_their_order_and_have_their_own_offsets(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    records = [{"value": at, "partition": at % 2} for at in range(5000)]
    places = sent(browser, f"/topics/{topic}", {"records": records}).json()["offsets"]
    for number in (0, 1):
        stored = {each.offset: each.value for each in console.log.records(topic, number)}
        assert [int(value or b"") for value in stored.values()] == list(range(number, 5000, 2))
        assert [stored[place["offset"]] for place in places[number::2]] == list(stored.values())


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ({"records": []}, "", 422, 42200),
        ({"records": [{"partition": 2, "value": 1}]}, "", 404, 40402),
        ({"records": [{"partition": -1, "value": 1}]}, "", 422, 422),
        ({"records": [{"timestamp": 1 << 60, "value": 1}]}, "", 422, 422),
        ({"records": [{"value": "no base64"}]}, "binary.", 422, 422),
        ({"records": [{"value": 5}]}, "binary.", 422, 422),
        ({"records": 5}, "", 422, 422),
        ({"records": [{"value": "v" * (2 << 20)}]}, "", 413, 413),
        ({"records": [{"value": "v" * (5 << 18)}]}, "", 400, 40002),
        ({"records": [{"value": 1}]}, "avro.", 415, 415),
    ],
)
def test_a_refused_produce_has_a_status_a_code_and_a_sentence(
    browser: httpx.Client, topic: str, body: Any, kind: str, status: int, code: int
) -> None:
    answer = sent(browser, f"/topics/{topic}", body, kind)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert answer.json()["message"].endswith((".", ")"))
    for number in (0, 1):
        assert browser.get(f"/api/topics/{topic}/partitions/{number}/records").json() == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/absent/partitions/0/records", 404, 40401),
        ("/topics/calls/partitions/2/records", 404, 40402),
        ("/topics/calls/partitions/0/records?offset=9", 400, 40002),
        ("/topics/calls/partitions/0/records?format=avro", 400, 400),
        ("/topics/calls/events?partition=7", 404, 40402),
        ("/topics/absent/events", 404, 40401),
        ("/nothing", 404, 404),
    ],
)
def test_a_refused_read_has_a_status_a_code_and_a_sentence(
    browser: httpx.Client, topic: str, path: str, status: int, code: int
) -> None:
    answer = browser.get(f"/api{path}")
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text


def events(lines: Iterator[str], count: int) -> list[tuple[str, Any]]:
    """Return the next events, each with its id."""
    found, place = [], ""
    while len(found) < count:
        name, _, text = next(lines).partition(": ")
        place = text if name == "id" else place
        if name == "data":
            found.append((place, json.loads(text)))
    return found


def test_events_follow_a_topic_and_continue_at_the_last_id(
    browser: httpx.Client, topic: str
) -> None:
    def produce(*values: int) -> None:
        records = [{"value": value, "partition": value % 2} for value in values]
        assert sent(browser, f"/topics/{topic}", {"records": records}).status_code == 200

    path = f"/api/topics/{topic}/events"
    produce(0)
    with browser.stream("GET", path) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        produce(1)
        ((place, row),) = events(lines, 1)
        assert (place, row["value"]) == ("0:1,1:1", 1), "from the end on"
        produce(2)
        assert [row["value"] for _, row in events(lines, 1)] == [2]
    with browser.stream("GET", path, headers={"Last-Event-ID": place}) as stream:
        assert [row["value"] for _, row in events(stream.iter_lines(), 1)] == [2]
    with browser.stream("GET", f"{path}?from=earliest&partition=1&format=binary") as stream:
        assert events(stream.iter_lines(), 1)[0][1]["value"] == "MQ=="


def test_the_number_of_open_events_is_bounded(
    browser: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.console.record_json.MAX_TAILS", 1)
    path = f"/api/topics/{topic}/events"
    while browser.get(path, headers={"Last-Event-ID": "x"}).status_code == 503:
        pass  # responses of other tests end
    with browser.stream("GET", path) as stream:
        lines = stream.iter_lines()
        next(lines)
        refused = browser.get(path)
        assert refused.status_code == 503 and "1 responses of events" in refused.text


def test_events_end_with_an_error_when_the_topic_is_deleted(
    console: RunningConsole, browser: httpx.Client
) -> None:
    console.log.create_topic("short", 1)
    with browser.stream("GET", "/api/topics/short/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        console.log.delete_topic("short")
        rest = list(lines)
    assert "event: error" in rest and "does not exist" in rest[-2]


# Groups.


def created(client: httpx.Client, group: str, topic: str, **configs: str) -> str:
    """Create an instance that reads a topic from the start; return its path."""
    body = {"format": "json", "auto.offset.reset": "earliest", **configs}
    made = sent(client, f"/consumers/{group}", body)
    assert made.status_code == 200, made.text
    path = f"/consumers/{group}/instances/{made.json()['instance_id']}"
    assert made.json()["base_uri"] == str(client.base_url).rstrip("/") + f"/api{path}"
    joined = sent(client, f"{path}/subscription", {"topics": [topic]})
    assert joined.status_code == 204, joined.text
    return path


def values(client: httpx.Client, path: str, timeout_ms: int = 1000) -> list[Any]:
    """Return the values of the next records."""
    answer = client.get(f"/api{path}/records", params={"timeout": timeout_ms})
    assert answer.status_code == 200, answer.text
    return [row["value"] for row in answer.json()]


def test_a_group_continues_after_the_last_records_that_are_done(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    console.log.append(topic, 0, [Record(b"%d" % at) for at in range(4)])
    path = created(browser, "done", topic, **{"auto.commit.enable": "false"})
    assert browser.get(f"/api{path}/subscription").json() == {"topics": [topic]}
    assert values(browser, path) == [0, 1, 2, 3]
    owned = browser.get(f"/api{path}/assignments").json()["partitions"]
    assert owned == [{"topic": topic, "partition": number} for number in (0, 1)]
    done = {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]}
    assert sent(browser, f"{path}/offsets", done).status_code == 204
    assert [row.offset for row in console.log.committed("done")] == [2]
    other = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
    assert sent(browser, f"{path}/offsets", other).status_code == 409
    assert browser.delete(f"/api{path}").status_code == 204
    assert browser.get(f"/api{path}/records").json()["error_code"] == 40403
    path = created(browser, "done", topic, **{"auto.commit.enable": "false"})
    assert values(browser, path) == [2, 3]
    assert browser.post(f"/api{path}/offsets").status_code == 204
    assert [row.offset for row in console.log.committed("done")] == [4]
    assert browser.delete(f"/api{path}/subscription").status_code == 204
    assert browser.get(f"/api{path}/records").json()["error_code"] == 40901
    browser.delete(f"/api{path}")


def test_a_read_commits_what_the_one_before_has_returned(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    console.log.append(topic, 1, [Record(b"1"), Record(b"2")])
    path = created(browser, "auto", topic)
    assert values(browser, path) == [1, 2] and console.log.committed("auto") == []
    console.log.append(topic, 1, [Record(b"3")])
    assert values(browser, path, 20_000) == [3]
    assert [row.offset for row in console.log.committed("auto")] == [2]
    browser.delete(f"/api{path}")
    assert [row.offset for row in console.log.committed("auto")] == [3]


def test_records_of_a_read_that_failed_are_read_again(
    console: RunningConsole,
    browser: httpx.Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console.log.append(topic, 0, [Record(b"1"), Record(b"2")])
    path = created(browser, "again", topic)

    def fail(record: Any, *, binary: bool) -> None:
        raise PageError(503, "It fails.")

    with monkeypatch.context() as patched:
        patched.setattr("korvet.console.group_calls.row_of", fail)
        assert browser.get(f"/api{path}/records").status_code == 503
    assert browser.post(f"/api{path}/offsets").status_code == 409
    assert values(browser, path) == [1, 2] and console.log.committed("again") == []
    browser.delete(f"/api{path}")


def test_two_instances_share_the_partitions(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    one, other = (created(browser, "shared", topic) for _ in range(2))
    owned: dict[str, list[Any]] = {}
    while sorted(map(len, owned.values())) != [1, 1]:
        for path in (one, other):
            assert values(browser, path, 10) == []
            owned[path] = browser.get(f"/api{path}/assignments").json()["partitions"]
    assert owned[one] != owned[other]
    for number in (0, 1):
        console.log.append(topic, number, [Record(b"%d" % number)])
    for path in (one, other):
        assert values(browser, path, 20_000) == [owned[path][0]["partition"]]
        browser.delete(f"/api{path}")


def test_a_name_is_used_once_and_instances_are_bounded(
    browser: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = created(browser, "named", topic, name="one")
    again = sent(browser, "/consumers/named", {"name": "one"})
    assert (again.status_code, again.json()["error_code"]) == (409, 40902)
    for body in ({"format": "avro"}, {"auto.offset.reset": "none"}, {"name": "a/b"}):
        assert sent(browser, "/consumers/named", body).json()["error_code"] == 42204
    monkeypatch.setattr("korvet.console.group_calls.MAX_INSTANCES", 1)
    assert sent(browser, "/consumers/named", {}).status_code == 503
    monkeypatch.setattr("korvet.console.consumers.IDLE_S", 0.0)
    while browser.get(f"/api{path}/subscription").status_code == 200:
        pass
    assert browser.get(f"/api{path}/subscription").json()["error_code"] == 40403


# Changes.


def test_a_topic_is_created_changed_and_deleted(
    console: RunningConsole, browser: httpx.Client
) -> None:
    cluster = browser.get("/api/v3/clusters").json()["data"][0]["cluster_id"]
    topics = f"/v3/clusters/{cluster}/topics"
    body = {"topic_name": "made", "partitions_count": 2, "replication_factor": 3,
            "configs": [{"name": "retention.ms", "value": "1000"}]}  # fmt: skip
    made = sent(browser, topics, body)
    assert (made.status_code, made.json()["partitions_count"]) == (201, 2)
    assert sent(browser, topics, body).json()["error_code"] == 40002
    two = {"topic_name": "two", "configs": [{"name": "retention.ms", "value": "1\nsegment.ms=2"}]}
    assert "retention.ms" in sent(browser, topics, two).json()["message"]
    assert sent(browser, "/v3/clusters/other/topics", body).status_code == 404
    grown = browser.patch(f"/api{topics}/made", json={"partitions_count": 3})
    assert grown.status_code == 204
    changes = [
        {"name": "retention.ms", "operation": "DELETE"},
        {"name": "max.message.bytes", "value": "2000"},
    ]
    alter = f"{topics}/made/configs:alter"
    wrong = sent(browser, alter, {"data": [*changes, {"name": "retention.bytes", "value": "x"}]})
    assert (wrong.status_code, wrong.json()["error_code"]) == (400, 40002)
    assert sent(browser, alter, {"data": changes}).status_code == 204
    found = console.log.topic("made")
    assert (found.partitions, found.configs["max.message.bytes"]) == (3, "2000")
    assert "retention.ms" not in found.configs
    assert browser.delete(f"/api{topics}/made").status_code == 204
    gone = browser.delete(f"/api{topics}/made")
    assert (gone.status_code, gone.json()["error_code"]) == (404, 40401)


def test_a_group_is_reset_and_deleted(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    cluster = browser.get("/api/v3/clusters").json()["data"][0]["cluster_id"]
    console.log.append(topic, 0, [Record(b"1"), Record(b"2")])
    console.log.reset("moved", topic, "earliest")
    group = f"/v3/clusters/{cluster}/consumer-groups/moved"
    body = {"topic": topic, "to": "latest"}
    assert sent(browser, f"{group}/offsets:reset", body).status_code == 204
    assert [row.offset for row in console.log.committed("moved")] == [2, 0]
    wrong = sent(browser, f"{group}/offsets:reset", {**body, "to": "yesterday"})
    assert wrong.status_code == 400 and "is no position" in wrong.json()["message"]
    assert browser.delete(f"/api{group}").status_code == 204
    assert browser.delete(f"/api{group}").status_code == 404


def test_a_change_from_another_site_or_with_a_cookie_alone_is_refused(
    browser: httpx.Client, topic: str
) -> None:
    body = {"records": [{"value": 1}]}
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert sent(browser, f"/topics/{topic}", body, headers=headers).status_code == 403
    token = token_in(browser.get("/create-topic").text)
    refused = sent(browser, f"/topics/{topic}", body)
    assert refused.status_code == 403 and "X-CSRF-Token" in refused.json()["message"]
    assert sent(browser, f"/topics/{topic}", body, headers={"X-CSRF-Token": "x"}).status_code == 403
    taken = sent(browser, f"/topics/{topic}", body, headers={"X-CSRF-Token": token})
    assert taken.status_code == 200


def test_clients_of_other_machines_change_nothing_without_users(
    browser: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.console.visit.is_loopback", lambda host: False)
    refused = sent(browser, f"/topics/{topic}", {"records": [{"value": 1}]})
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
    assert browser.get(f"/api/topics/{topic}/partitions/0/records").status_code == 200


# With security.


@pytest.fixture(scope="module")
def secured(valkey_server: TestServer) -> Iterator[RunningConsole]:
    """A console whose broker has ACLs: ann may read topic `open` and group `g`."""
    with secured_console(valkey_server) as made:
        made.add_user("ann", "b")
        for name in ("open", "closed"):
            made.log.create_topic(name, 1, {"offset.mode": "dense"})
            made.log.produce(name, [Record(b"1")])
        with made.server.client() as client:
            for kind, name in (("TOPIC", "open"), ("GROUP", "g")):
                rule = json.dumps([kind, "LITERAL", name, "User:ann", "*", "READ", "ALLOW"])
                client.hset(f"{made.namespace}:acls", rule.replace(", ", ","), "")
            client.hset(f"{made.namespace}:acls", ":version", "7")
        yield made


@pytest.fixture
def ann(secured: RunningConsole) -> Iterator[httpx.Client]:
    with secured.browser(auth=("ann", "b")) as made:
        yield made


@pytest.fixture
def admin(secured: RunningConsole) -> Iterator[httpx.Client]:
    with secured.browser(auth=("admin", "a")) as made:
        yield made


def test_a_user_produces_and_reads_what_the_rules_allow(
    ann: httpx.Client, admin: httpx.Client, secured: RunningConsole
) -> None:
    body = {"records": [{"value": 2}]}
    wrong = httpx.post(f"{secured.url}/api/topics/open", json=body, auth=("ann", "wrong"))
    assert (wrong.status_code, wrong.json()["error_code"]) == (401, 40101)
    assert wrong.headers["www-authenticate"].startswith("Basic")
    refused = sent(ann, "/topics/open", body)
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
    assert sent(admin, "/topics/open", body).json()["offsets"][0]["offset"] == 1
    rows = ann.get("/api/topics/open/partitions/0/records").json()
    assert [row["value"] for row in rows] == [1, 2]
    for path in ("partitions/0/records", "events"):
        assert ann.get(f"/api/topics/closed/{path}").status_code == 403


def test_an_instance_belongs_to_its_user_and_to_the_rights_of_the_group(
    ann: httpx.Client, admin: httpx.Client
) -> None:
    assert sent(ann, "/consumers/other", {}).status_code == 403
    path = created(ann, "g", "open")
    assert sent(ann, f"{path}/subscription", {"topics": ["closed"]}).status_code == 403
    assert admin.get(f"/api{path}/records").json()["error_code"] == 40403
    assert values(ann, path)[:1] == [1]
    assert ann.delete(f"/api{path}").status_code == 204


def test_users_rules_and_quotas_change_with_the_rights_for_them(
    secured: RunningConsole, ann: httpx.Client, admin: httpx.Client
) -> None:
    rule = {"principal": "cy", "operation": "READ", "resource_type": "TOPIC",
            "resource_name": "open"}  # fmt: skip
    quota = {"user": "cy", "key": "producer_byte_rate", "value": "1000"}
    changes: dict[str, Any] = {
        "/users": {"name": "cy", "password": "c"}, "/acls": rule, "/quotas": quota
    }  # fmt: skip
    for path, body in changes.items():
        assert sent(ann, path, body).status_code == 403, path
        assert sent(admin, path, body).status_code == 204, path
    (row,) = admin.get("/api/quotas").json()["quotas"]
    assert row == {"entity": {"user": "cy"}, "values": {"producer_byte_rate": 1000.0}}
    path, login = f"{secured.url}/api/topics/open/partitions/0/records", ("cy", "c")
    while httpx.get(path, auth=login).status_code == 403:
        pass  # the rules are read each half second
    assert sent(admin, "/acls", {**rule, "operation": "GUESS"}).status_code == 400
    assert admin.request("DELETE", "/api/acls", json=rule).status_code == 204
    assert sent(admin, "/quotas", {**quota, "value": ""}).status_code == 204
    assert admin.delete("/api/users/cy").status_code == 204
    assert httpx.get(path, auth=login).status_code == 401
