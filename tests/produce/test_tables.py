"""Check table.enable: Redis has the newest value of each key when a client has the response."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.background.tasks import BackgroundTasks
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.topics.table import Topic
from tests.admin.test_incremental_alter_configs import DELETE, SET, TOPIC, change
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce

ENABLE = "table.enable"
LARGE = bytes(5000)


async def send(broker: Broker, *pairs: tuple[bytes | None, bytes | None], number: int = 0) -> None:
    """Produce records."""
    made: Any = [(n, 1000, key, value, []) for n, (key, value) in enumerate(pairs)]
    assert (await produce(broker, packed(made, 13), number=number)).error_code == E.NONE


async def topic_of(broker: Broker) -> Topic:
    topic = await broker.services.topics.get("t")
    assert topic is not None
    return topic


async def table(broker: Broker, number: int = 0) -> dict[bytes, bytes]:
    """Return a partition's table."""
    key = (await topic_of(broker)).partition(number).table
    flat = await broker.services.store.command("HGETALL", key)
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def test_a_produced_value_is_in_the_table_as_it_was_sent(broker: Broker) -> None:
    await broker.create(table_enable="true")
    await send(broker, (b"a", b"1"), (b"b", LARGE), (None, b"x"))
    await send(broker, (b"a", None), (b"c", b"3"), number=1)
    assert await table(broker) == {b"a": b"1", b"b": LARGE}
    assert await table(broker, 1) == {b"c": b"3"}


@pytest.mark.parametrize("configs", [{"storage_format": "batch"}, {"offset_mode": "bytes"}])
async def test_a_table_needs_the_layout_record(broker: Broker, configs: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"table.enable needs storage.format=record"):
        await broker.create(table_enable="true", **configs)
    await broker.create(**configs)
    (answer,) = await change(broker, (TOPIC, "t", [(ENABLE, SET, "true")]))
    assert answer.error_code == E.INVALID_CONFIG


def test_values_of_a_table_are_not_compressed_at_rest() -> None:
    configs = TopicConfigs(Settings())
    assert configs.policy("t", {}).storage_compression == "lz4"
    assert configs.policy("t", {ENABLE: "true"}).storage_compression == "none"


async def test_a_table_that_is_enabled_later_is_filled_in_the_background(broker: Broker) -> None:
    await broker.create()
    tasks = BackgroundTasks(broker.services).retention
    await send(broker, (b"a", b"1"), (b"b", LARGE), (b"c", b"3"))
    for edit in ((ENABLE, SET, "true"), (ENABLE, SET, "true")):
        (answer,) = await change(broker, (TOPIC, "t", [edit]))
        assert answer.error_code == E.NONE
    await send(broker, (b"c", b"4"))
    assert await table(broker) == {b"c": b"4"}
    await tasks.fill_tables()
    assert await table(broker) == {b"a": b"1", b"b": LARGE, b"c": b"4"}
    key = (await topic_of(broker)).partition(0).stream
    await broker.services.store.command("XADD", key, "*", "key", "d", "value", "5")
    await tasks.fill_tables()
    assert (await table(broker))[b"d"] == b"5"
    await change(broker, (TOPIC, "t", [(ENABLE, DELETE, None)]))
    assert await table(broker) == {}
    await send(broker, (b"a", b"6"))
    assert await table(broker) == {}
