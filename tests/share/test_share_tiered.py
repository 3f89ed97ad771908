"""Check share groups of topics whose records are in segments: members get each record once."""

import pytest

from tests.remote_log.test_remote_transactions import Writer
from tests.remote_log.test_tiered_log import Tier, tier
from tests.share.members import Member, configure, runs_of, values_of
from tests.support.exchanges import SHAPES

__all__ = ["tier"]

shapes = pytest.mark.parametrize(("form", "mode"), SHAPES)


async def drain(tier: Tier, group: str) -> list[bytes]:
    """Join a new group, accept all records, and return their values."""
    member = Member(tier.broker, group=group)
    found: list[bytes] = []
    row = await member.row(0, max_records=7)
    while row is not None:
        assert row.error_code == 0
        values = values_of(row)
        runs = runs_of(row)
        assert len(values) == sum(last - first + 1 for first, last, _ in runs)
        found += values.values()
        acks = {0: [(first, last, [1]) for first, last, _ in runs]}
        row = await member.row(acks=acks, max_records=7)
    return found


@shapes
async def test_records_in_segments_are_shared(tier: Tier, form: str, mode: str) -> None:
    await tier.fill(form, mode)
    await configure(tier.broker, "g", share_auto_offset_reset="earliest")
    await tier.move()
    assert await tier.in_redis() < 20
    assert await drain(tier, "g") == [value for _, value in tier.sent]


@shapes
async def test_transactions_in_segments_are_shared_as_the_group_says(
    tier: Tier, form: str, mode: str
) -> None:
    await tier.fill(form, mode)
    committed = [value for _, value in tier.sent]
    every = list(committed)
    for n in range(12):
        writer = Writer(tier, f"w{n % 3}")
        await writer.begin()
        values = [b"%d-%d" % (n, part) for part in range(3)]
        for part, value in enumerate(values):
            await writer.send(value * 9000, part)
        await writer.end(n % 3 != 1)
        every += [value * 9000 for value in values]
        committed += [value * 9000 for value in values if n % 3 != 1]
    await configure(tier.broker, "all", share_auto_offset_reset="earliest")
    await configure(
        tier.broker,
        "committed",
        share_auto_offset_reset="earliest",
        share_isolation_level="read_committed",
    )
    await tier.move()
    assert await drain(tier, "committed") == committed
    assert await drain(tier, "all") == every
