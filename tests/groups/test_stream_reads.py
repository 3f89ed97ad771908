"""Who reads through a Redis group, as one broker process sees it."""

import pytest

from korvet.groups import stream_reads
from korvet.groups.stream_reads import SILENCE_S, GroupMembers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in one place."""
    now = [1000.0]
    monkeypatch.setattr(stream_reads, "monotonic", lambda: now[0])
    return now


def test_a_member_that_was_not_heard_of_for_long_is_not_taken_for_who_has_its_client_id(
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
