"""Check scheduled records after a restore: they wait again, with due times, ids and order."""

from collections.abc import AsyncIterator
from time import time

import pytest

from korvet.broker.background.tasks import BackgroundTasks
from korvet.cli.restore import _print
from korvet.remote_log.recovery import scheduled
from korvet.remote_log.recovery.report import ScheduledLoss
from korvet.remote_log.recovery.restore import Restore, load_snapshot
from korvet.scripts.calls.partition import ScheduleListReply
from korvet.wire.records import Record
from tests.remote_log.recovery.test_restore import fresh, lost, restored, task
from tests.remote_log.test_tiered_log import Tier
from tests.support.exchanges import fetch, markers_in, packed, produce, rows_in

__all__ = ["fresh", "lost"]
pytestmark = pytest.mark.anyio
HOUR_MS = 3_600_000


@pytest.fixture(params=["record", "batch"])
async def waiting(request: pytest.FixtureRequest, lost: Tier) -> AsyncIterator[Tier]:
    """A cluster with records that are due in the past, soon and later, one with an id."""
    await lost.broker.create(
        "t",
        partitions=2,
        storage_format=request.param,
        offset_mode="dense",
        delivery_schedule_enable="true",
    )
    later = int(time() * 1000) + HOUR_MS
    for due, name in ((later, b"later"), (1000, b"past"), (1000, b"past, second"), (later, b"")):
        headers = [("korvet-deliver-at", b"%d" % due)]
        headers += [("korvet-schedule-id", b"\xff:id")] * (name == b"later")
        made: list[Record] = [(0, 0, b"k", name, headers)]
        assert (await produce(lost.broker, packed(made, 13), name="t", number=1)).error_code == 0
    await task(lost).write()
    yield lost


async def listed(tier: Tier) -> ScheduleListReply:
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    call = services.keys.partition("t", 1, topic.id).schedule_list(most=10)
    return await services.store.run(call)


async def deliver(tier: Tier) -> None:
    delivery = BackgroundTasks(tier.broker.services).scheduled
    for _ in range(5):
        await delivery.run_once()


async def test_restored_scheduled_records_wait_and_are_appended_when_due(
    waiting: Tier, fresh: Tier
) -> None:
    report = await restored(fresh)
    assert (report.scheduled, report.scheduled_lost) == (4, [])
    before, after = await listed(waiting), await listed(fresh)
    assert (after.records, after.size) == (before.records, before.size) == (4, before.size)
    # Without the numbers, which restart.
    assert [after.rows[at : at + 5][1:] for at in range(0, len(after.rows), 5)] == [
        before.rows[at : at + 5][1:] for at in range(0, len(before.rows), 5)
    ]
    await deliver(fresh)
    services = fresh.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    call = services.keys.partition("t", 1, topic.id).schedule_cancel(id=b"\xff:id")
    assert (await services.store.run(call)).cancelled == 1
    assert (await listed(fresh)).records == 1
    start = (await fetch(fresh.broker, 0, name="t", number=1)).log_start_offset
    answer = await fetch(fresh.broker, start, name="t", number=1)
    hidden = markers_in(answer.records)
    found = [row[3] for row in rows_in(answer.records) if row[0] not in hidden]
    assert found == [b"past", b"past, second"]


async def test_too_many_for_a_snapshot_are_named_as_lost(
    waiting: Tier,
    fresh: Tier,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scheduled, "MAX_BYTES", (await listed(waiting)).size - 1)
    await task(waiting).write()
    report = await restored(fresh)
    assert (report.scheduled, report.scheduled_lost) == (0, [ScheduledLoss("t", 1, 4)])
    assert (await listed(fresh)).records == 0
    _print(report)
    assert "lost: 4 scheduled records of t-1, too many for a snapshot" in capsys.readouterr().out


async def test_a_broker_over_a_bucket_appends_none(waiting: Tier, fresh: Tier) -> None:
    services = fresh.broker.services
    assert services.tiered.segments is not None
    snapshot = await load_snapshot(services.tiered.segments, None)
    restore = Restore(
        services.store,
        services.keys,
        services.tiered.segments,
        snapshot,
        None,
        only_segments=True,
    )
    assert (await restore.run()).scheduled == 0
    await services.topics.refresh()
    assert (await listed(fresh)).records == 0
