"""Check that a topic whose tiering is switched off keeps its segments, or deletes them if
configured."""

from time import time
from typing import Any

import pytest

from korvet.admin import alter_configs
from korvet.base.errors import ErrorCode
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.remote_log.test_tiered_log import Tier, tier
from tests.support.exchanges import fetch

__all__ = ["tier"]
OFF = {"remote.storage.enable": "false"}
DELETING = {**OFF, "remote.log.delete.on.disable": "true"}


async def alter(tier: Tier, configs: dict[str, str], validate_only: bool = False) -> Any:
    rows = [
        AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = (await tier.broker.ask(request)).responses[0]
    await tier.broker.services.topics.refresh()
    return answer


async def test_a_topic_with_segments_stays_tiered(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    refused = await alter(tier, OFF)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "remote.log.delete.on.disable=true" in refused.error_message
    assert await tier.read() == tier.sent


async def test_a_topic_without_segments_may_stop_to_be_tiered(tier: Tier) -> None:
    await tier.fill()
    assert (await alter(tier, OFF)).error_code == 0
    await tier.manager().run_once()
    assert tier.objects() == []
    assert await tier.read() == tier.sent


async def test_delete_on_disable_removes_segments_at_once_and_objects_later(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    local = (await tier.offset(-4)).offset
    assert (await alter(tier, DELETING, validate_only=True)).error_code == 0
    assert (await tier.offset(-2)).offset == 0
    assert (await alter(tier, DELETING)).error_code == 0
    assert [(await tier.offset(each)).offset for each in (-2, -4, -5, -6)] == [local, local, -1, -1]
    assert (await fetch(tier.broker, 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await tier.read(local) == tier.sent[local:]
    await tier.manager().run_once()
    assert tier.objects() == []


async def test_a_topic_that_is_tiered_again_is_copied_from_its_start(tier: Tier) -> None:
    await tier.fill(local_retention_bytes="400000")
    await tier.move()
    local = (await tier.offset(-4)).offset
    await alter(tier, DELETING)
    on = {"remote.storage.enable": "true", "segment.bytes": "50000", "local.retention.bytes": "1"}
    assert (await alter(tier, on)).error_code == 0
    await tier.move()
    assert (await tier.offset(-2)).offset == local < (await tier.offset(-4)).offset
    assert await tier.read(local) == tier.sent[local:]


async def test_a_reader_finds_the_segments_of_a_topic_that_is_tiered_again(
    tier: Tier, caplog: pytest.LogCaptureFixture
) -> None:
    await tier.fill(local_retention_bytes="400000")
    await tier.move()
    local = (await tier.offset(-4)).offset
    assert await tier.read(local) == tier.sent[local:]
    topic = await tier.broker.services.topics.get("t")
    reader = tier.broker.services.tiered.reader
    assert topic is not None and reader is not None
    known = await reader._known.find(topic, 0, local)
    assert known is not None and known.row.first <= local
    await alter(tier, DELETING)
    await tier.manager().run_once()
    await alter(tier, {"remote.storage.enable": "true", "local.retention.bytes": "1"})
    await tier.move()
    assert known.name not in [str(each) for each in tier.objects()]
    assert (await tier.offset(-4)).offset > local
    assert await tier.read(local) == tier.sent[local:]
    assert "remote read failed" not in caplog.text


async def test_a_topic_can_become_compacted_only_without_its_segments(tier: Tier) -> None:
    await tier.fill()
    await tier.move()
    compact = {"cleanup.policy": "compact"}
    assert (await alter(tier, {**OFF, **compact})).error_code == ErrorCode.INVALID_CONFIG
    local = (await tier.offset(-4)).offset
    assert (await alter(tier, {**DELETING, **compact})).error_code == 0
    assert (await tier.offset(-2)).offset == local


async def test_the_background_task_completes_a_change_after_a_crash(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tier.fill()
    await tier.move()

    async def crash(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(alter_configs, "drop_segments", crash)
        with pytest.raises(RuntimeError):
            await alter(tier, DELETING)
    await tier.broker.services.topics.refresh()
    assert (await tier.offset(-2)).offset == 0
    await tier.manager().run_once()
    assert (await tier.offset(-2)).offset == (await tier.offset(-4)).offset > 0
    assert tier.objects() == []


async def test_segments_of_a_topic_without_cleanup_stay(tier: Tier) -> None:
    await tier.fill(cleanup_policy="", retention_ms="1", local_retention_ms="1")
    await tier.move()
    assert len(tier.objects()) >= 2
    await tier.manager().run_once()
    assert (await tier.offset(-2)).offset == 0
    assert await tier.read() == tier.sent
    assert all(1000 <= sent < time() * 1000 - 1000 for sent, _ in tier.sent)
