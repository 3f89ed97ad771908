"""Check that a produced record is stored once per korvet-dedupe-id while dedupe.window.ms lasts."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.broker.background.tasks import BackgroundTasks
from korvet.config.setting import ConfigError
from korvet.config.topic_policy import Pattern, TopicConfigs
from korvet.config.values import Settings
from korvet.log.append_parts import PART_RECORDS
from korvet.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.admin.test_incremental_alter_configs import DELETE, SET, TOPIC, change
from tests.support.connected_broker import Broker
from tests.support.exchanges import fetch, packed, produce, rows_in

WINDOW = "dedupe.window.ms"
FOREVER = "3600000"


async def send(broker: Broker, *ids: str | None, number: int = 0, **how: Any) -> tuple[int, int]:
    """Produce records with these ids; return error and base offset."""
    made = [
        (n, 1000, b"k", b"v", [] if id is None else [("korvet-dedupe-id", id.encode())])
        for n, id in enumerate(ids)
    ]
    answer = await produce(broker, packed(made, 13, **how), number=number)
    return answer.error_code, answer.base_offset


async def create(broker: Broker, **configs: str) -> None:
    await broker.create(offset_mode="dense", **configs)


async def stored(broker: Broker, number: int = 0) -> int:
    """Return how many records the partition has."""
    return int((await fetch(broker, 0, number=number)).high_watermark)


async def test_a_second_batch_with_the_id_gets_the_first_ones_offset(broker: Broker) -> None:
    await create(broker, dedupe_window_ms=FOREVER)
    for _ in range(3):
        assert await send(broker, "a") == (E.NONE, 0)
        assert await send(broker, "b", "c") == (E.NONE, 1)
    assert await send(broker, "c", "d") == (E.NONE, 2)
    assert await send(broker, "a", "e") == (E.NONE, -1)
    assert await send(broker, "a", number=1) == (E.NONE, 0)  # partitions know their own ids
    headers = [row[4] for row in rows_in((await fetch(broker, 0)).records)]
    assert headers == [[("korvet-dedupe-id", id.encode())] for id in "abcde"]


async def test_a_producer_continues_after_batches_that_were_left_out(broker: Broker) -> None:
    await create(broker, dedupe_window_ms=FOREVER)
    await send(broker, "a")
    for sequence, ids, base in (
        (0, ["a"], 0),
        (1, ["a", "b"], 0),
        (3, ["c", "a"], -1),
        (5, ["d"], 3),
    ):
        for _ in range(2):
            assert await send(broker, *ids, producer=(9, 0, sequence)) == (E.NONE, base)
    assert await stored(broker) == 4


async def test_a_topic_without_the_config_stores_all(broker: Broker) -> None:
    await create(broker)
    assert [await send(broker, "a") for _ in range(2)] == [(E.NONE, 0), (E.NONE, 1)]


async def test_a_large_batch_is_left_out_part_by_part(broker: Broker) -> None:
    await create(broker, dedupe_window_ms=FOREVER)
    ids = [str(n) for n in range(PART_RECORDS + 10)]
    assert [await send(broker, *ids) for _ in range(2)] == [(E.NONE, 0), (E.NONE, 0)]
    assert await send(broker, "new", *ids) == (E.NONE, -1)
    assert await stored(broker) == len(ids) + 1


async def test_an_id_that_is_too_long_rejects_the_batch(broker: Broker) -> None:
    await create(broker, dedupe_window_ms=FOREVER)
    made = [(0, 1000, b"k", b"v", [("korvet-dedupe-id", b"a" * 129)])]
    answer = await produce(broker, packed(made, 13))
    assert answer.error_code == E.INVALID_RECORD
    assert "at most 128 bytes" in answer.error_message
    assert await stored(broker) == 0


REASON = "dedupe.window.ms needs storage.format=record"


async def test_layout_batch_is_refused_when_a_topic_is_created_or_altered(broker: Broker) -> None:
    for configs in ({"storage_format": "batch"}, {"offset_mode": "bytes"}):
        with pytest.raises(AssertionError, match=REASON):
            await broker.create(dedupe_window_ms="1", **configs)
    await broker.create(storage_format="batch")
    (answer,) = await change(broker, (TOPIC, "t", [(WINDOW, SET, "1")]))
    assert answer.error_code == E.INVALID_CONFIG
    assert REASON in answer.error_message


async def test_a_pattern_cannot_have_the_config() -> None:
    with pytest.raises(ConfigError, match=r"dedupe.window.ms is a config of each topic"):
        TopicConfigs(Settings(), [Pattern("*", {WINDOW: "1"})])


async def test_a_changed_config_counts_in_every_partition(broker: Broker) -> None:
    await create(broker)
    for edits, bases in (
        ([(WINDOW, SET, FOREVER)], [0, 0]),
        ([("retention.ms", SET, "5")], [0, 0]),
        ([(WINDOW, DELETE, None)], [1, 2]),
        ([(WINDOW, SET, FOREVER)], [3, 3]),
    ):
        (answer,) = await change(broker, (TOPIC, "t", edits))
        assert answer.error_code == E.NONE
        for number in range(2):
            found = [(await send(broker, "a", number=number))[1] for _ in range(2)]
            assert found == bases
    topics = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
    await broker.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False))
    assert [(await send(broker, "a", number=2))[1] for _ in range(2)] == [0, 0]


async def test_a_repeated_change_reaches_logs_that_the_first_one_did_not(broker: Broker) -> None:
    await create(broker, dedupe_window_ms=FOREVER)
    topic = await broker.services.topics.get("t")
    assert topic is not None
    await broker.services.store.run(topic.partition(1).set_dedupe(window=0))
    assert [(await send(broker, "a", number=1))[1] for _ in range(2)] == [0, 1]
    await change(broker, (TOPIC, "t", [(WINDOW, SET, FOREVER)]))
    assert [(await send(broker, "a", number=1))[1] for _ in range(2)] == [2, 2]


async def test_ids_of_an_idle_topic_are_removed(broker: Broker) -> None:
    await create(broker, dedupe_window_ms="1")
    topic = await broker.services.topics.get("t")
    assert topic is not None
    partition, store = topic.partition(0), broker.services.store
    await send(broker, "a")
    await store.command("HSET", partition.log, "dedupe", "1:10:0")  # since 1970
    await BackgroundTasks(broker.services).retention.expire_producers()
    assert await store.command("EXISTS", partition.dedupe, partition.dedupe_old) == 0
