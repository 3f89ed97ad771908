"""Check the members of Redis groups, as one broker process sees them."""

import pytest

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.groups import stream_reads
from korvet.groups.stream_reads import SILENCE_S, GroupMember, GroupMembers
from korvet.scripts.keys import Keys
from korvet.topics.lifecycle import plan_topic
from korvet.topics.table import encode_definition, read_topic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets, as a list of one time."""
    now = [1000.0]
    monkeypatch.setattr(stream_reads, "monotonic", lambda: now[0])
    return now


def test_an_expired_member_is_not_found_by_its_client_id(
    clock: list[float],
) -> None:
    members = GroupMembers()
    members.note("app", "group", "member", 3)
    clock[0] += SILENCE_S - 1
    found = members.find("app")
    assert found is not None and found.group == "group"
    members.note("app", "group", "member", 3)
    clock[0] += SILENCE_S - 1
    assert members.find("app") is not None
    clock[0] += 2
    assert members.find("app") is None


def test_of_several_members_with_one_client_id_only_the_live_ones_count(
    clock: list[float],
) -> None:
    members = GroupMembers()
    members.note("app", "old", "m1", 1)
    clock[0] += SILENCE_S / 2
    members.note("app", "new", "m2", 1)
    assert members.find("app") is None
    clock[0] += SILENCE_S / 2 + 1
    found = members.find("app")
    assert found is not None and found.group == "new"
    members.forget("app", "new", "m2")
    assert members.find("app") is None


def test_clients_that_are_gone_leave_nothing_behind(clock: list[float]) -> None:
    members = GroupMembers()
    for n in range(100):
        members.note(f"client-{n}", "group", f"member-{n}", 1)
        members.forget(f"client-{n}", "group", f"member-{n}")
    assert not members._by_client


def test_logged_clients_are_bounded(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reads, "MAX_KNOWN", 3)
    configs = TopicConfigs(Settings())
    topic = read_topic(Keys(), "t", encode_definition(plan_topic("t", 1, {}, configs)), configs)
    assert topic is not None
    members = GroupMembers()
    for n in range(10):
        for member in ("one", "two"):
            members.note(f"client-{n}", "group", member, 1)
        assert members.find(f"client-{n}") is None
        row = GroupMember(f"client-{n}", f"group-{n}", 1, clock[0])
        members.set_claim(topic, 0, row, b"1-0")
        assert members.claim(topic, 0, row) == b"1-0"
    assert len(members._logged) <= 3
