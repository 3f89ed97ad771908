"""Check clients that fetch in sessions: they open another if the broker has lost theirs."""

from typing import Any

import pytest

from korvet.fetch.sessions import FetchSession, FetchSessions
from korvet.testing import Broker
from tests.interop import lost_programs
from tests.interop.conftest import create_topic
from tests.interop.librdkafka import producer, send
from tests.interop.records import Record
from tests.interop.test_lost_records import process
from tests.support.programs import Build

pytestmark = pytest.mark.korvet_only


@pytest.mark.parametrize(
    "client",
    [
        pytest.param("Java", marks=pytest.mark.java),
        pytest.param("franz-go", marks=pytest.mark.interop),
    ],
)
def test_a_client_whose_session_is_lost_opens_another(
    build: Build, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, used, lost = FetchSessions.begin, dict[int, int](), list[int]()

    def noting(sessions: FetchSessions, *request: Any) -> FetchSession | None:
        while lost:
            for each in sessions._sessions.values():
                sessions._close(each)
            lost.pop()
        session = begin(sessions, *request)
        if session is not None:
            used[session.id] = session.epoch
        return session

    monkeypatch.setattr(FetchSessions, "begin", noting)
    with Broker() as broker:
        topic, sink = create_topic(broker.bootstrap_servers), producer(broker.bootstrap_servers)
        words = lost_programs.words(client, build)
        with process(*words, broker.bootstrap_servers, topic) as lines:
            for number in range(6):
                if number == 3:
                    lost.append(number)
                send(sink, topic, [Record(None, b"%d" % number)])
                assert next(lines) == str(number)
    assert len(used) == 2 and min(used.values()) >= 3
