"""Check users, ACL rules, quotas, transactions and scripts in the console."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, secured_console, send, token_in


@pytest.fixture(scope="module")
def secured(valkey_server: TestServer) -> Iterator[RunningConsole]:
    with secured_console(valkey_server, mechanism="SCRAM-SHA-512") as made:
        yield made


@pytest.fixture
def admin(secured: RunningConsole) -> Iterator[httpx.Client]:
    with secured.browser() as made:
        made.get("/sign-in")
        csrf = token_in(made.get("/sign-in").text)
        made.post("/sign-in", data={"csrf": csrf, "user": "admin", "password": "a"})
        yield made


def test_a_user_is_made_used_and_deleted(secured: RunningConsole, admin: httpx.Client) -> None:
    page = send(admin, "/users", "/users", name="bob", password="pw-of-bob")
    assert "The password of bob was set." in page.text and "pw-of-bob" not in page.text
    rows = {row["name"]: row["mechanisms"] for row in admin.get("/api/users").json()["users"]}
    assert rows["bob"] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
    producer = Producer(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": "pw-of-bob",
        }
    )
    assert producer.list_topics(timeout=30).brokers, "a Kafka client authenticates with it"
    assert httpx.get(f"{secured.url}/api/users", auth=("bob", "pw-of-bob")).status_code == 403
    page = send(admin, "/users", "/users/delete", name="bob")
    assert "User bob was deleted." in page.text
    assert httpx.get(f"{secured.url}/api/users", auth=("bob", "pw-of-bob")).status_code == 401


def test_a_rule_is_added_takes_effect_and_is_deleted(
    secured: RunningConsole, admin: httpx.Client
) -> None:
    secured.add_user("cy", "c")
    secured.log.create_topic("seen", 1)
    rule = {"principal": "cy", "permission": "ALLOW", "operation": "DESCRIBE",
            "resource_type": "TOPIC", "name": "see", "pattern_type": "PREFIXED"}  # fmt: skip

    def post(path: str, **fields: str) -> httpx.Response:
        data = {"csrf": token_in(admin.get("/acls").text), **fields}
        return admin.post(path, data=data, follow_redirects=True)

    def topics() -> list[str]:
        found = httpx.get(f"{secured.url}/api/topics", auth=("cy", "c")).json()
        return [row["name"] for row in found["topics"]]

    assert topics() == []
    assert "User:cy: ALLOW DESCRIBE was added." in post("/acls", **rule).text
    (row,) = admin.get("/api/acls").json()["rules"]
    assert row == {**rule, "principal": "User:cy", "host": "*"}
    assert topics() == ["seen"]
    assert post("/acls", **{**rule, "operation": "GUESS"}).status_code == 400
    assert post("/acls", **{**rule, "name": ""}).status_code == 400
    assert "was deleted" in post("/acls/delete", **row).text
    assert topics() == []


def test_without_an_authorizer_the_page_of_the_rules_says_so(
    console: RunningConsole, browser: httpx.Client
) -> None:
    assert console.api("/acls")["is_enabled"] is False
    assert "No authorizer is configured" in browser.get("/acls").text


def test_a_quota_is_set_and_removed(console: RunningConsole, browser: httpx.Client) -> None:
    fields = {"client-id": "shop", "key": "producer_byte_rate"}
    page = send(browser, "/quotas", "/quotas", **fields, value="1000000")
    assert "producer_byte_rate is 1000000 now." in page.text
    assert console.api("/quotas")["quotas"] == [
        {"entity": {"client-id": "shop"}, "values": {"producer_byte_rate": 1_000_000.0}}
    ]
    page = send(
        browser, "/quotas", "/quotas", user="<default>", key="request_percentage", value="x"
    )
    assert page.status_code == 400 and "A quota is a number" in page.text
    page = send(browser, "/quotas", "/quotas", **fields, value="")
    assert "producer_byte_rate was removed." in page.text
    assert console.api("/quotas")["quotas"] == []


def test_records_that_are_produced_read_or_searched_are_charged_to_the_quotas(
    console: RunningConsole, browser: httpx.Client
) -> None:
    console.log.create_topic("charged", 1, configs={"offset.mode": "dense"})
    form, download = "/topics/charged/produce", "/topics/charged/records/0/0/download"
    sent = send(browser, form, form, headers=f"name: {'h' * 1000}", partition="0")
    assert sent.status_code == 200
    assert browser.get(download).status_code == 200

    def limit(key: str, value: str) -> None:
        fields = {"client-id": "korvet-console", "key": key, "value": value}
        assert send(browser, "/quotas", "/quotas", **fields).status_code == 200

    limit("consumer_byte_rate", "1")
    records = "/topics/charged/records"
    pages = (
        records,
        f"{records}?value=absent",
        f"{records}/0/0",
        f"/api{records}",
        "/api/topics/charged/partitions/0/records",
        f"{download}?part=key",
    )
    for path in pages:
        with console.server.client() as client:
            client.delete(*client.keys(f"{console.namespace}:quota:*") or ["none"])
        assert browser.get(path).status_code == 200
        while (refused := browser.get(path)).status_code == 200:
            pass
        assert refused.status_code == 429 and "consumer_byte_rate is used up" in refused.text
    limit("consumer_byte_rate", "")
    limit("producer_byte_rate", "1")
    while (
        "producer_byte_rate"
        not in (sent := send(browser, form, form, value="v" * 1000, partition="0")).text
    ):
        pass
    assert sent.status_code == 429 and "producer_byte_rate is used up" in sent.text
    body = {"records": [{"value": "v" * 1000}]}
    while (called := httpx.post(f"{console.url}/api/topics/charged", json=body)).is_success:
        pass
    assert (called.status_code, called.json()["error_code"]) == (429, 42901)
    limit("producer_byte_rate", "")
    console.log.delete_topic("charged")


def test_open_transactions_are_first(console: RunningConsole) -> None:
    producers = []
    for name in ("a-done", "b-open"):
        made = Producer({"bootstrap.servers": console.bootstrap, "transactional.id": name})
        made.init_transactions(30)
        made.begin_transaction()
        made.produce("orders", b"x", partition=1)
        made.flush(30)
        producers.append(made)
    producers[0].commit_transaction(30)
    found = console.api("/transactions")
    assert [row["id"] for row in found["transactions"]] == ["b-open", "a-done"]
    first = found["transactions"][0]
    assert (found["open"], first["state"], first["partitions"]) == (1, "Ongoing", ["orders-1"])
    assert 0 <= first["open_ms"] < 60_000
    producers[1].abort_transaction(30)
    with pytest.raises(KafkaException):
        producers[1].commit_transaction(5)


def test_the_scripts_have_calls_and_latency(console: RunningConsole) -> None:
    Producer({"bootstrap.servers": console.bootstrap}).list_topics(timeout=30)
    rows = {row["name"]: row for row in console.api("/scripts")["scripts"]}
    assert rows["broker.register"]["calls"] > 0
    assert 0 < rows["broker.register"]["p50_ms"] <= rows["broker.register"]["p99_ms"]
    assert rows["log.append"]["writes"] and len(rows["log.append"]["sha1"]) == 40
    assert {row["name"] for row in console.api("/scripts", q="group.")["scripts"]} == {
        name for name in rows if name.startswith("group.")
    }
