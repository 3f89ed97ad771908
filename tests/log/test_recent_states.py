"""Check the states of logs that fetches from segments share for some milliseconds."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from korvet.log import recent_states
from korvet.log.recent_states import FRESH_S, MAX_STATES, RENEW_S, RecentStates
from korvet.scripts.keys import Keys
from korvet.store.errors import StoreUnavailable

TOPIC: Any = SimpleNamespace(id="a" * 32, name="t", partition=partial(Keys().partition, "t"))


def fields(start: int, topic_id: str = TOPIC.id, local: int = 90) -> list[bytes | None]:
    return [topic_id.encode(), b"100", b"%d" % start, b"0", *[None] * 5, b"%d" % local, None, None]


class Commands:
    """A store whose replies the test sets, and a clock that it moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: list[asyncio.Future[Any]] = []
        self.now = 100.0
        self.is_away = False
        monkeypatch.setattr(recent_states, "monotonic", lambda: self.now)

    def submit_command(self, *command: Any) -> "asyncio.Future[Any]":
        if self.is_away:
            raise StoreUnavailable("away")
        assert command[0] == "HMGET" and command[2:] == recent_states.STATE
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    async def run(self, call: Any) -> None:
        """Run no script."""


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(monkeypatch)


async def read(states: RecentStates, commands: Commands, partition: int, start: int) -> None:
    reading = asyncio.create_task(states.read(TOPIC, partition))
    await asyncio.sleep(0)
    commands.replies[-1].set_result(fields(start))
    await reading


async def test_a_state_is_fresh_for_a_time_after_its_command(commands: Commands) -> None:
    states = RecentStates(commands)
    assert states.fresh(TOPIC, 0) is None
    reading = asyncio.create_task(states.read(TOPIC, 0))
    await asyncio.sleep(0)
    commands.now += FRESH_S / 4
    commands.replies[-1].set_result(fields(5))
    assert await reading == fields(5)
    found = states.fresh(TOPIC, 0)
    assert found is not None
    assert (found.start, found.end, found.last_stable, found.local_start) == (5, 100, 100, 90)
    commands.now += 0.8 * FRESH_S
    assert states.fresh(TOPIC, 0) is None, "the time begins with the command, not with the reply"


async def test_states_in_use_are_read_again_together(commands: Commands) -> None:
    states = RecentStates(commands)
    for partition in range(3):
        await read(states, commands, partition, 5)
    commands.now += RENEW_S
    assert states.fresh(TOPIC, 0) and states.fresh(TOPIC, 2) and states.fresh(TOPIC, 0)
    await asyncio.sleep(0)
    assert len(commands.replies) == 5
    for reply in commands.replies[3:]:
        reply.set_result(fields(7))
    await asyncio.sleep(0)
    commands.now += RENEW_S
    found = states.fresh(TOPIC, 2)
    assert found is not None and found.start == 7
    assert states.fresh(TOPIC, 1) is None


async def test_an_older_reply_replaces_no_newer_state(commands: Commands) -> None:
    states = RecentStates(commands)
    await read(states, commands, 0, 5)
    commands.now += RENEW_S
    assert states.fresh(TOPIC, 0)
    await asyncio.sleep(0)
    commands.now += RENEW_S / 2
    late = commands.replies[-1]
    await read(states, commands, 0, 9)
    late.set_result(fields(7))
    await asyncio.sleep(0)
    found = states.fresh(TOPIC, 0)
    assert found is not None and found.start == 9


@pytest.mark.parametrize("reply", [fields(5, "b" * 32), [None] * 12])
async def test_the_state_of_another_topic_is_not_kept(
    commands: Commands, reply: list[bytes | None]
) -> None:
    states = RecentStates(commands)
    await read(states, commands, 0, 5)
    reading = asyncio.create_task(states.read(TOPIC, 0))
    await asyncio.sleep(0)
    commands.replies[-1].set_result(reply)
    await reading
    assert states.fresh(TOPIC, 0) is None


async def test_a_store_that_is_away_lets_states_end(commands: Commands) -> None:
    states = RecentStates(commands)
    await read(states, commands, 0, 5)
    commands.now += RENEW_S
    commands.is_away = True
    assert states.fresh(TOPIC, 0)
    await asyncio.sleep(0)
    commands.is_away = False
    assert states.fresh(TOPIC, 0)
    await asyncio.sleep(0)
    commands.replies[-1].set_exception(StoreUnavailable("away"))
    await asyncio.sleep(0)
    commands.now += RENEW_S
    assert states.fresh(TOPIC, 0) is None


async def test_few_states_are_kept(commands: Commands) -> None:
    states = RecentStates(commands)
    for partition in range(MAX_STATES + 5):
        await read(states, commands, partition, 5)
    assert len(states._states) == MAX_STATES
    assert states.fresh(TOPIC, 0) is None and states.fresh(TOPIC, MAX_STATES + 4)
