"""Check share groups at a broker: members, configs, offsets, and leftovers of a deletion."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.broker.background.tasks import BackgroundTasks
from korvet.config.setting import reset_duration_ms
from korvet.groups.share_group import share_group_config
from korvet.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.delete_topics import DeleteTopicsRequest
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from korvet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from korvet.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.conformance.cases.shares import dropping, looking, moving
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce, rows

GROUP = 32
LOCK: dict[str, int] = {
    "most": 100,
    "exact": 0,
    "lock_ms": 30_000,
    "delivery_limit": 5,
    "max_locks": 2000,
}


async def beat(
    broker: Broker, member: str, epoch: int, *topics: str, group: str = "g", **more: Any
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=list(topics) or None,
        **more,
    )
    answer: ShareGroupHeartbeatResponse = await broker.ask(request)
    return answer


async def append(broker: Broker, count: int) -> list[int]:
    """Append batches of one record to partition 0 of `t`; return their offsets."""
    return [
        (await produce(broker, packed(rows(b"v"), 13), version=13)).base_offset
        for _ in range(count)
    ]


async def alter(broker: Broker, *configs: tuple[str, str | None], group: str = "g") -> int:
    rows = [
        AlterableConfig(name=name, config_operation=int(value is None), value=value)
        for name, value in configs
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=rows)
    answer = await broker.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
    return int(answer.responses[0].error_code)


async def offsets(broker: Broker, *partitions: int, group: str = "g") -> list[tuple[Any, ...]]:
    answer = await broker.ask(looking(group, *partitions))
    return [
        (topic.topic_name, row.partition_index, row.start_offset, row.lag)
        for topic in answer.groups[0].topics
        for row in topic.partitions
    ]


async def acquire(broker: Broker, first: int, last: int, group: str = "g") -> None:
    """Acquire all records of partition 0 as a member."""
    topic = await broker.services.topics.get("t")
    assert topic is not None
    call = broker.services.keys.partition("t", 0, topic.id).share_acquire(
        [(first, last)], group=group, member="m", start=first, read_from=first, read_to=last, **LOCK
    )
    reply = await broker.services.store.run(call)
    assert (reply.error, reply.runs) == (0, [first, last, 1])


async def test_members_share_partitions_and_are_described(broker: Broker) -> None:
    await broker.create("t", 2)
    one = await beat(broker, "m1", 0, "t", rack_id="here")
    assert (one.error_code, one.member_epoch, one.heartbeat_interval_ms) == (0, 1, 500)
    assert one.assignment is not None
    assert [row.partitions for row in one.assignment.topic_partitions] == [[0, 1]]
    for name in ("m2", "m3", "m4"):
        answer = await beat(broker, name, 0, "t")
        assert answer.error_code == 0
    described = await broker.ask(
        ShareGroupDescribeRequest(group_ids=["g"] * 12, include_authorized_operations=True)
    )
    assert [row.error_code for row in described.groups] == [0] * 10 + [42] * 2
    group = described.groups[0]
    assert (group.group_state, group.assignor_name) == ("Stable", "simple")
    assert [row.member_id for row in group.members] == ["m1", "m2", "m3", "m4"]
    assert group.members[0].rack_id == "here"


async def test_the_groups_own_configs_are_in_effect_for_its_members(broker: Broker) -> None:
    await broker.create("t")
    wanted = (
        ("share.heartbeat.interval.ms", "7000"),
        ("share.auto.offset.reset", "by_duration:PT1H30M"),
        ("share.isolation.level", "read_committed"),
        ("share.retry.backoff.ms", "200"),
        ("share.delivery.count.limit", "10"),
    )
    assert await alter(broker, *wanted) == 0

    def config(group: str) -> Any:
        return share_group_config(broker.services.configs, broker.services.settings, group)

    own, other = config("g"), config("other")
    assert own.auto_offset_reset == "by_duration:PT1H30M"
    assert reset_duration_ms(own.auto_offset_reset) == 5_400_000
    assert (own.read_committed, own.retry_backoff_ms, own.delivery_count_limit) == (True, 200, 10)
    assert other.start_position() == "latest"
    assert (other.read_committed, other.retry_backoff_ms, other.delivery_count_limit) == (
        False,
        0,
        5,
    )
    assert (other.heartbeat_interval_ms, other.record_lock_duration_ms) == (5000, 30_000)
    assert config("g") is own, "an equal result is kept"
    await beat(broker, "m", 0, "t")
    assert own.heartbeat_interval_ms == 7000


BAD = [
    ("share.auto.offset.reset", "none"),
    ("share.auto.offset.reset", "by_duration:1h"),
    ("share.auto.offset.reset", "by_duration:-PT1H"),
    ("share.auto.offset.reset", "by_duration:PT"),
    ("share.isolation.level", "read_everything"),
    ("share.heartbeat.interval.ms", "4999"),
    ("share.session.timeout.ms", "60001"),
    ("share.record.lock.duration.ms", "14999"),
    ("share.record.lock.duration.ms", "60001"),
    ("share.delivery.count.limit", "1"),
    ("share.delivery.count.limit", "11"),
    ("share.partition.max.record.locks", "99"),
    ("share.partition.max.record.locks", "4001"),
    ("share.assignment.interval.ms", "15001"),
    ("share.renew.acknowledge.enable", "yes"),
    ("share.retry.backoff.ms", "-1"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value}" for name, value in BAD])
async def test_configs_out_of_range_are_refused(broker: Broker, name: str, value: str) -> None:
    assert await alter(broker, (name, value)) == ErrorCode.INVALID_CONFIG
    assert await alter(broker, (name, None)) == 0


async def test_a_session_timeout_is_longer_than_the_heartbeat_interval(broker: Broker) -> None:
    settings = {"group.share.min.session.timeout.ms": "1000"}
    rows = [
        AlterableConfig(name=name, config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=rows)
    answer = await broker.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
    assert answer.responses[0].error_code == 0
    name = "share.session.timeout.ms"
    assert await alter(broker, (name, "5000")) == ErrorCode.INVALID_CONFIG
    assert await alter(broker, (name, "5001")) == 0
    interval = "share.heartbeat.interval.ms"
    assert await alter(broker, (interval, "6000")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("mode", ["dense", "time"])
async def test_the_lag_counts_records_that_are_not_finished(broker: Broker, mode: str) -> None:
    await broker.create("t", 1, offset_mode=mode)
    placed = await append(broker, 10)
    assert await offsets(broker) == []
    answer: AlterShareGroupOffsetsResponse = await broker.ask(moving("g", (0, placed[4])))
    assert answer.error_code == 0
    assert await offsets(broker) == [("t", 0, placed[4], 6)]
    assert await offsets(broker, 0, 5) == [("t", 0, placed[4], 6), ("t", 5, -1, -1)]
    if mode == "dense":
        await acquire(broker, 4, 9)
        assert await offsets(broker) == [("t", 0, 4, 6)], "acquired records are not finished"


async def test_the_metrics_have_what_is_left_and_what_is_finished(broker: Broker) -> None:
    await broker.create("t", 1, offset_mode="dense")
    await append(broker, 10)
    await beat(broker, "m", 0, "t")
    services = broker.services
    gauges = BackgroundTasks(services).group_gauges
    services.metrics.scraped()
    await gauges.update()
    assert (gauges.members(), gauges.lag()) == ({("g",): 1}, {}), "the member has not read yet"
    await acquire(broker, 0, 5)
    await gauges.update()
    assert gauges.lag() == {("g", "t", "0"): 10}
    rows = services.metrics.share_records.family().samples
    assert {row.labels: row.value for row in rows} == {
        ("g", "t", "0", "available"): 0,
        ("g", "t", "0", "acquired"): 6,
        ("g", "t", "0", "dead_letter"): 0,
    }
    finished = services.metrics.share_finished.family().samples
    assert {row.labels[-1] for row in finished} == {"accepted", "archived"}


async def test_a_deleted_group_leaves_no_state_in_any_partition(broker: Broker) -> None:
    await broker.create("t", 2, offset_mode="dense")
    await append(broker, 5)
    member = await beat(broker, "m", 0, "t")
    await acquire(broker, 0, 4)
    services = broker.services

    async def delete() -> int:
        answer = await broker.ask(DeleteGroupsRequest(groups_names=["g"]))
        return int(answer.results[0].error_code)

    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(broker, "m", -1)
    assert await delete() == ErrorCode.NONE
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND
    k = services.keys.partition("t", 0)
    assert await services.store.command("EXISTS", k.share, k.share_runs) == 0
    assert await services.groups.registry.list_all() == []
    assert member.member_epoch == 1


async def test_offsets_of_a_deleted_topic_are_removed(broker: Broker) -> None:
    for name in ("t", "u"):
        await broker.create(name, 1)
        await broker.ask(moving("g", (0, 0), topic=name))
    assert {row[0] for row in await offsets(broker)} == {"t", "u"}
    await broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert {row[0] for row in await offsets(broker)} == {"u"}
    await broker.create("t", 1)
    assert {row[0] for row in await offsets(broker)} == {"u"}, "another topic of that name"
    answer = await broker.ask(dropping("g", "t", "u"))
    assert [row.error_code for row in answer.responses] == [3, 0]
    assert await offsets(broker) == []
