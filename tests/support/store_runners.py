"""Fixtures: the runners of a script's scenarios, so that one test runs on each of them."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

import pytest

from korvet.scripts.call import Arg, Call, Reply
from korvet.store.sync_store import SyncStore
from korvet.testing import LuaRunner, fake_redis
from tests.support.redis_servers import TestServer, kinds

R = TypeVar("R", bound=Reply)


class Runner(Protocol):
    """The methods that LuaRunner and the stores have in common."""

    def run(self, call: Call[R]) -> R: ...

    def run_many(self, calls: list[Call[R]]) -> list[R]: ...

    def command(self, *command: Arg) -> object: ...

    def now_ms(self) -> int: ...


class StoreRunner(SyncStore):
    """A bundled script on a fake or real server, with the server's own clock."""

    def now_ms(self) -> int:
        """Return the server's time, which the scripts read."""
        seconds, micros = self.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


@pytest.fixture
def lua() -> LuaRunner:
    """A LuaRunner alone, for scenarios that move its clock."""
    return LuaRunner()


@pytest.fixture(params=["lua", pytest.param("fakeredis", marks=pytest.mark.slow), *kinds()])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Each runner in turn, on an empty Redis: LuaRunner, fakeredis, every real server there is."""
    if request.param == "lua":
        yield LuaRunner()
        return
    if request.param == "fakeredis":
        yield StoreRunner(fake_redis())
        return
    running: TestServer = request.getfixturevalue(f"{request.param}_server")
    with running.client() as client:
        client.flushall()
        yield StoreRunner(client)
