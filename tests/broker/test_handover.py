"""Check the requests that move a client to another broker, and those that are still served."""

from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from korvet import apis
from korvet.base.errors import ErrorCode
from korvet.broker import interceptors, server
from korvet.broker.interceptors import (
    MEMBERS,
    MOVED,
    PAUSE_MS,
    Handover,
    ReadOnly,
    has_others,
)
from korvet.broker.network.open_connections import ClientConnection, OpenConnections
from korvet.security.session import Session
from korvet.wire.schema import encode
from tests.support.connected_broker import Broker, broker
from tests.support.raw_client import batch, to_fetch, to_produce

__all__ = ["broker"]


ROWS = {row.name: row for row in apis.TABLE}


def open_ones(broker: Broker) -> OpenConnections:
    """Return the open connections of a broker: one, which has produced nothing."""
    made = OpenConnections(lambda: broker.services.settings)
    made.add(cast(ClientConnection, Mock(session_id=0)))
    return made


def test_the_names_are_those_of_apis() -> None:
    others = {name for name in {*MOVED, *MEMBERS} if name not in ROWS}
    assert all(name.startswith("Share") for name in others), "share groups may not be served yet"


@pytest.mark.parametrize("name", sorted(MOVED.keys() & ROWS))
async def test_a_moved_request_gets_a_response_in_every_version(name: str) -> None:
    row = ROWS[name]
    request: Any = to_produce("t", batch([b"v"])) if name == "Produce" else None
    request = to_fetch("t") if name == "Fetch" else request
    answer = Handover(None).response(row, request)
    assert answer is not None
    response = await answer
    assert response is not None
    for version in range(row.versions[0], row.versions[1] + 1):
        assert encode(response, version)


async def test_each_partition_has_the_error_and_the_response_none() -> None:
    moved = Handover(None)
    fetched: Any = await moved.response(ROWS["Fetch"], to_fetch("t", partitions=2))  # type: ignore[misc]
    assert fetched.error_code == ErrorCode.NONE
    codes = [row.error_code for row in fetched.responses[0].partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    produced: Any = await moved.response(ROWS["Produce"], to_produce("t", batch([b"v"])))  # type: ignore[misc]
    (row,) = produced.responses[0].partition_responses
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_producer_without_acknowledgements_and_a_commit_are_served() -> None:
    moved = Handover(None)
    assert moved.response(ROWS["Produce"], to_produce("t", batch([b"v"]), acks=0)) is None
    for name in ("OffsetCommit", "LeaveGroup", "Metadata", "FindCoordinator"):
        assert moved.response(ROWS[name], None) is None


def test_only_producers_that_may_not_repeat_are_served_for_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved, session = Handover(None), Session("127.0.0.1")
    plain, old = to_produce("t", batch([b"v"])), to_produce("t", b"x" * 40)
    for request in (plain, old):
        assert moved.pause_ms(request, session) == PAUSE_MS
        assert moved.response(ROWS["Produce"], request) is None
    for request in (
        to_produce("t", batch([b"v"], producer=(7, 0, 0))),
        to_produce("t", batch([b"v"]), acks=0),
        msgspec.structs.replace(plain, transactional_id="t"),
    ):
        assert moved.pause_ms(request, session) == 0
    monkeypatch.setattr(interceptors, "SERVED_S", 0.0)
    assert moved.pause_ms(plain, Session("127.0.0.1")) == 0
    answer = moved.response(ROWS["Produce"], to_produce("t", batch([b"w"])))
    assert answer is not None
    answer.close()  # type: ignore[attr-defined]


async def test_an_earlier_interceptor_still_answers() -> None:
    answer = Handover(ReadOnly()).response(ROWS["DeleteTopics"], None)
    assert answer is not None
    answer.close()  # type: ignore[attr-defined]


async def test_a_broker_that_left_names_only_the_others(broker: Broker) -> None:
    await broker.second()
    registration = broker.services.registration
    assert has_others(registration)
    await registration.leave()
    assert [each.id for each in registration.brokers] == [8]
    assert has_others(registration)


async def test_the_only_broker_hands_nothing_over(broker: Broker) -> None:
    await broker.services.registration.leave()
    assert not has_others(broker.services.registration)
    await server.move_clients(broker.services, open_ones(broker))
    assert broker.services.interceptor is None


async def test_the_handover_ends_once_no_request_was_moved_lately(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.second()
    monkeypatch.setattr(server, "SETTLE_S", 0.0)
    for name in ("QUIET_S", "HEARTBEAT_S", "CHECK_S"):
        monkeypatch.setattr(interceptors, name, 0.0)
    await broker.services.registration.leave()
    broker.services.metrics.answered("Heartbeat", "NONE", 0.001)
    await server.move_clients(broker.services, open_ones(broker))
    assert isinstance(broker.services.interceptor, Handover)
