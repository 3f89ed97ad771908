"""Check that brokers append denied requests and failed authentications to `audit.topic`."""

import asyncio
import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import confluent_kafka
import pytest

from korvet.broker.background import audit_writer
from korvet.config.values import Settings
from korvet.security import audit as module
from korvet.security.acl import Operation, ResourceType
from korvet.security.audit import Audit, Decision
from korvet.security.session import Principal, Session
from korvet.store.errors import StoreUnavailable
from korvet.testing import Broker
from korvet.topics.lifecycle import delete_topic
from tests.support.connected_broker import Broker as Connected
from tests.support.connected_broker import broker as connected

__all__ = ["connected"]

PATIENCE_S = 20
USERS = {"alice": "s3cret", "root": "toor"}
SETTINGS = {
    "audit.topic": "audit",
    "audit.topic.allowed": "true",
    "authorizer.class.name": "korvet",
    "super.users": "User:root",
    "auto.create.topics.enable": "false",
    "connection.failed.authentication.delay.ms": "10",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 1}, settings=SETTINGS, users=USERS) as running:
        yield running


def client(broker: Broker, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "client.id": f"{user}-app",
        "logger": _Silent(),
    }


class _Silent:
    def log(self, *_: object) -> None:
        """Drop the client's log lines."""


def events(broker: Broker, wanted: int) -> list[dict[str, Any]]:
    """Return `wanted` events of other users, read from the audit topic as root."""
    consumer = confluent_kafka.Consumer(
        {**client(broker, "root", USERS["root"]), "group.id": "auditor"}
    )
    consumer.assign([confluent_kafka.TopicPartition("audit", 0, 0)])
    found: list[dict[str, Any]] = []
    deadline = monotonic() + PATIENCE_S
    while len(found) < wanted and monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            event = json.loads(message.value() or b"{}")
            if event["principal"] != "User:root" and event["client_id"] != "root-app":
                found.append(event)
    consumer.close()
    return found


def test_a_client_reads_denied_requests_and_failed_authentications(broker: Broker) -> None:
    denied = confluent_kafka.Producer(client(broker, "alice", USERS["alice"]))
    denied.produce("orders", b"payload of alice")
    denied.flush(0.5)
    wrong = confluent_kafka.Producer(client(broker, "alice", "not her password"))
    wrong.poll(0.3)
    found = events(broker, 3)
    allowed, request, failed = (
        next(row for row in found if row["event"] == kind and row["allowed"] is outcome)
        for kind, outcome in (
            ("authentication", True),
            ("authorization", False),
            ("authentication", False),
        )
    )
    common = {"listener": "SASL_PLAINTEXT", "address": "127.0.0.1", "client_id": "alice-app"}
    assert all(common.items() <= row.items() for row in (allowed, request, failed))
    assert request["principal"] == allowed["principal"] == failed["principal"] == "User:alice"
    resource = (request["operation"], request["resource_type"], request["resource"])
    assert (request["api"], *resource) == ("Metadata", "DESCRIBE", "TOPIC", "orders")
    assert (failed["mechanism"], failed["reason"]) == ("SCRAM-SHA-256", "wrong password")
    text = json.dumps(found)
    assert not any(secret in text for secret in ("payload", "not her password", "s3cret"))


def decision(name: str, *, allowed: bool = False) -> Decision:
    session = Session("10.0.0.1", Principal("User", "alice"))
    return Decision(session, "app", 1, Operation.READ, ResourceType.TOPIC, name, allowed)


def test_events_that_the_queue_has_no_room_for_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED_BYTES", 1000)
    audit = Audit(Settings({"audit.topic": "audit"}), {1: "Fetch"})
    assert audit.queue is not None
    for number in range(10):
        audit.record(decision(f"t{number}"))
    audit.record(decision("t", allowed=True))
    kept = len(audit.queue)
    assert (kept + audit.queue.dropped, 2 <= kept <= 4) == (10, True)
    audit.queue.remove(kept)
    audit.record(decision("later"))
    assert json.loads(audit.queue.first(9)[0])["resource"] == "later"


async def test_an_append_that_fails_is_repeated_and_a_deleted_topic_created_again(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_writer, "RETRY_S", 0.01)
    monkeypatch.setattr(audit_writer, "LINGER_S", 0.0)
    services = connected.services
    audit = Audit(Settings({"audit.topic": "audit"}), {})
    assert audit.queue is not None
    send, failures = services.produce.produce, [StoreUnavailable("no Redis"), None]

    def fails_once(*given: Any) -> Any:
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        return send(*given)

    monkeypatch.setattr(services.produce, "produce", fails_once)
    audit.record(decision("first"))
    audit.queue.dropped += 3
    appends = audit_writer.AuditWriter(
        audit.queue,
        "audit",
        7,
        services.topics,
        services.auto_creator,
        services.produce,
        services.metrics,
    )
    writer = asyncio.create_task(appends.run())
    for _ in range(1000):
        if not len(audit.queue):
            break
        await asyncio.sleep(0.01)
    topic = await services.topics.get("audit")
    assert topic is not None
    await delete_topic(services.store, services.keys, topic)
    audit.record(decision("last"))
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    again = await services.topics.get("audit")
    assert again is not None and again.id != topic.id
    assert "audit append failed" in caplog.text and "audit events dropped" in caplog.text
    stored = await services.store.command("XLEN", services.keys.partition("audit", 0).stream)
    assert stored == 1
