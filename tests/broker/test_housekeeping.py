"""Background duties: an error in one is that one's alone."""

from typing import Any

import anyio
import pytest

from korvet.broker import housekeeping
from korvet.broker.housekeeping import Housekeeping
from korvet.compaction import Compaction
from tests.handlers.conftest import Broker, broker

__all__ = ["broker"]


async def test_a_compaction_that_fails_leaves_the_other_partitions_theirs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.create("t", partitions=3, cleanup_policy="compact")
    seen: list[int] = []

    async def run(self: Any) -> None:
        seen.append(self._partition)
        if self._partition == 0:
            raise ValueError("what nobody thought of")

    monkeypatch.setattr(Compaction, "run", run)
    await Housekeeping(broker.node).compact_all()
    assert seen == [0, 1, 2]
    assert "a compaction failed" in caplog.text


async def test_a_duty_that_fails_begins_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "AGAIN_S", 0)
    again = anyio.Event()
    tries: list[int] = []

    async def compact(self: Any) -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ValueError("what nobody thought of")
        again.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(Housekeeping, "_compact", compact)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Housekeeping(broker.node).run)
            await again.wait()
            tasks.cancel_scope.cancel()
    assert tries == [0, 1, 2]
    assert "a duty failed" in caplog.text
