"""Check the limits that connections share: number, creation rate, memory, and turns of fetches."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from korvet.broker.network.open_connections import FetchTurns, OpenConnections
from korvet.config.setting import ConfigError
from korvet.config.values import Settings


def limited(**settings: str) -> OpenConnections:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return OpenConnections(lambda: Settings(given))


def admitted(connections: OpenConnections, *hosts: str) -> list[str]:
    """Return the hosts whose connection is admitted, in order."""
    return [host for host in hosts if not connections.admit(host)]


def test_connections_above_the_limit_are_refused_until_one_leaves() -> None:
    connections = limited(max_connections="2")
    assert admitted(connections, "a", "b", "c") == ["a", "b"]
    connections.leave("a")
    assert admitted(connections, "c", "d") == ["c"]


def test_an_address_has_its_limit_or_that_of_all() -> None:
    connections = limited(
        max_connections_per_ip="1", max_connections_per_ip_overrides="b:2,::1:0, c:3"
    )
    hosts = ["a", "a", "b", "b", "b", "::1", "c", "c", "c", "c"]
    assert admitted(connections, *hosts) == ["a", "b", "b", "c", "c", "c"]
    connections.leave("a")
    assert admitted(connections, "a", "a") == ["a"]


def test_a_user_has_a_limit_or_that_of_all() -> None:
    connections = limited(max_connections_per_user="1", max_connections_per_user_overrides="bob:2")
    users = ["alice", "alice", "bob", "bob", "bob"]
    assert [user for user in users if connections.admit_user(user)] == ["alice", "bob", "bob"]
    connections.leave_user("alice")
    assert connections.admit_user("alice") and not connections.admit_user("alice")


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:-1", "a:b"])
def test_an_override_is_an_address_and_a_number(text: str) -> None:
    with pytest.raises(ConfigError, match="a comma-separated list of ADDRESS:NUMBER"):
        limited(max_connections_per_ip_overrides=text)


async def test_connections_above_the_creation_rate_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now, raising=False)
    connections = limited(max_connection_creation_rate="4")
    waits = [connections.wait_s() for _ in range(7)]
    assert waits == [0, 0, 0, 0, 0, 0.25, 0.5]
    now += 10
    assert connections.wait_s() == 0


class Regulated:
    """A connection that counts how often its reading is regulated."""

    closed: Any = None
    times = 0

    def regulate(self) -> None:
        self.times += 1

    def look(self, now: float, patience: float) -> None: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...


def test_connections_are_regulated_when_memory_is_full_and_when_there_is_room_again() -> None:
    connections, one = limited(queued_max_request_bytes="100"), Regulated()
    connections.add(one)
    seen = []
    for nbytes in (60, 40, 30, -50, -20, -60):
        connections.count_requests(nbytes)
        seen.append((connections.full, one.times))
    assert seen == [(False, 0), (True, 1), (True, 1), (True, 1), (False, 2), (False, 2)]


def test_no_limit_means_no_count() -> None:
    connections, one = limited(), Regulated()
    connections.add(one)
    connections.count_requests(1 << 40)
    assert (connections.full, one.times) == (False, 0)


class Client:
    """A connection with pending fetches; notes the iteration in which each had its turn."""

    def __init__(
        self, turns: FetchTurns, name: str, fetches: int, done: list[tuple[int, str]]
    ) -> None:
        self.turns, self.name, self.fetches, self.done = turns, name, fetches, done
        self.before: Callable[[], None] = lambda: None

    def continue_requests(self) -> None:
        self.before()
        while self.fetches and self.turns.take(self):
            self.fetches -= 1
            self.done.append((Iterations.now, self.name))


class Iterations:
    """A counter of the event loop's iterations."""

    now = 0

    @classmethod
    async def run(cls, count: int) -> None:
        for _ in range(count):
            cls.now += 1
            await asyncio.sleep(0)


async def test_connections_have_one_turn_in_an_iteration_one_after_another() -> None:
    turns, done = FetchTurns(), list[tuple[int, str]]()
    clients = [
        Client(turns, name, fetches, done) for name, fetches in (("a", 4), ("b", 2), ("c", 3))
    ]
    for each in clients:
        each.continue_requests()
    await Iterations.run(12)
    assert [name for _, name in done] == list("aabcabcac")
    assert len({iteration for iteration, _ in done}) == len(done)


async def test_a_connection_that_is_called_without_a_fetch_gives_its_turn_to_the_next() -> None:
    turns, done = FetchTurns(), list[tuple[int, str]]()
    clients = [Client(turns, name, 2, done) for name in "abc"]
    for each in clients:
        each.continue_requests()
    clients[1].fetches = 0
    await Iterations.run(8)
    assert [name for _, name in done] == list("aacc")


async def test_a_connection_that_requests_two_turns_is_in_the_queue_once() -> None:
    turns, done = FetchTurns(), list[tuple[int, str]]()
    clients = [Client(turns, name, 2, done) for name in "ab"]
    for _ in range(3):
        for each in clients:
            each.continue_requests()
    await Iterations.run(8)
    assert [name for _, name in done] == list("aabb")


async def test_a_connection_that_fails_keeps_no_other_waiting() -> None:
    turns, done = FetchTurns(), list[tuple[int, str]]()
    clients = [Client(turns, name, 2, done) for name in "abc"]
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise OSError("broken")

    clients[1].before = fail
    for each in clients:
        each.continue_requests() if each is not clients[1] else turns.take(each)
    await Iterations.run(12)
    assert [name for _, name in done] == list("aacc") and failures
    asyncio.get_running_loop().set_exception_handler(None)
