"""Who reads through a Redis group, as one broker process sees it."""

import pytest

from korvet.groups import stream_reads
from korvet.groups.stream_reads import SILENCE_S, Readers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in one place."""
    now = [1000.0]
    monkeypatch.setattr(stream_reads, "monotonic", lambda: now[0])
    return now


def test_a_member_that_was_not_heard_of_for_long_is_not_taken_for_who_has_its_client_id(
    clock: list[float],
) -> None:
    readers = Readers()
    readers.note("app", "group", "member", 3)
    clock[0] += SILENCE_S - 1
    found = readers.reader("app")
    assert found is not None and found.group == "group"
    readers.note("app", "group", "member", 3)
    clock[0] += SILENCE_S - 1
    assert readers.reader("app") is not None
    clock[0] += 2
    assert readers.reader("app") is None


def test_of_several_members_with_one_client_id_only_the_live_ones_count(
    clock: list[float],
) -> None:
    readers = Readers()
    readers.note("app", "old", "m1", 1)
    clock[0] += SILENCE_S / 2
    readers.note("app", "new", "m2", 1)
    assert readers.reader("app") is None
    clock[0] += SILENCE_S / 2 + 1
    found = readers.reader("app")
    assert found is not None and found.group == "new"
    readers.forget("app", "new", "m2")
    assert readers.reader("app") is None


def test_clients_that_are_gone_leave_nothing_behind(clock: list[float]) -> None:
    readers = Readers()
    for n in range(100):
        readers.note(f"client-{n}", "group", f"member-{n}", 1)
        readers.forget(f"client-{n}", "group", f"member-{n}")
    assert not readers._by_client
