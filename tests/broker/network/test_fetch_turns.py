"""Check that one connection has a turn in each event-loop iteration, first come, first served."""

import asyncio
from collections.abc import Callable
from typing import Any

from korvet.broker.network.open_connections import FetchTurns


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
