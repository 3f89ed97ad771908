"""Check streams groups at a broker: internal topics, configs, statuses, other requests."""

from typing import Any

import pytest

from korvet.admin.auto_create import NO_CONFIGS
from korvet.base.errors import ErrorCode
from korvet.security.quotas import CLIENT_ID, MUTATIONS, resource_of
from korvet.security.session import Session
from korvet.topics.lifecycle import Refused
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from korvet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from korvet.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
)
from korvet.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from tests.conformance.cases.streams import info, reading, together
from tests.groups.test_share_groups import alter
from tests.support.connected_broker import Broker

COUNTING = (
    reading("t", repartition_sink_topics=["app-r"]),
    reading(
        subtopology_id="1",
        repartition_source_topics=[info("app-r", retention_ms="-1")],
        state_changelog_topics=[info("app-c", cleanup_policy="compact")],
    ),
)
TOPIC = 2
AT_ONCE = ("streams.initial.rebalance.delay.ms", "0")
EVERY_TIME = ("streams.assignment.interval.ms", "0")


async def beat(
    broker: Broker,
    member: str,
    epoch: int,
    *subs: Subtopology,
    session: Session | None = None,
    **more: Any,
) -> StreamsGroupHeartbeatResponse:
    fields: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    if epoch == 0:
        topology = Topology(epoch=0, subtopologies=list(subs) or [reading("t")])
        fields |= {"rebalance_timeout_ms": 60_000, "process_id": member, "topology": topology}
    elif "active_tasks" not in more:
        fields = {}
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        **{"endpoint_information_epoch": 0, **fields, **more},
    )
    answer: StreamsGroupHeartbeatResponse = await broker.ask(request, session=session)
    return answer


def tasks(rows: Any) -> dict[str, list[int]] | None:
    return None if rows is None else {row.subtopology_id: row.partitions for row in rows}


@pytest.fixture(autouse=True)
async def topic(broker: Broker) -> None:
    """Create the topic `t` of two partitions."""
    await broker.create("t", 2)


async def described(broker: Broker) -> DescribedGroup:
    request = StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (group,) = (await broker.ask(request)).groups
    found: DescribedGroup = group
    return found


async def test_internal_topics_are_created_before_the_first_response(broker: Broker) -> None:
    assert await alter(broker, AT_ONCE) == 0
    answer = await beat(broker, "m", 0, *COUNTING)
    assert answer.status is None
    assert tasks(answer.active_tasks) == {"0": [0, 1], "1": [0, 1]}
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
        for name, key in (("app-r", "retention.ms"), ("app-c", "cleanup.policy"))
    ]
    found = (await broker.ask(DescribeConfigsRequest(resources=resources))).results
    assert [row.configs[0].value for row in found] == ["-1", "compact"]
    group = await described(broker)
    assert group.topology is not None and group.topology.subtopologies is not None
    (changelog,) = group.topology.subtopologies[1].state_changelog_topics
    assert (changelog.name, changelog.partitions) == ("app-c", 2)
    assert group.authorized_operations > 0


async def test_a_topic_that_cannot_be_created_is_named_with_the_reason(broker: Broker) -> None:
    wrong = info("app-c", cleanup_policy="nonsense")
    answer = await beat(broker, "m", 0, reading("t", state_changelog_topics=[wrong]))
    (_, status) = answer.status or []
    assert status.status_code == 3
    assert status.status_detail.startswith(
        "Internal topics are missing: app-c; Creation failed: app-c (cleanup.policy must be "
    )
    again = await beat(broker, "m", answer.member_epoch)
    assert [row.status_code for row in again.status or []] == [5, 3]


async def test_standby_tasks_follow_the_groups_config(broker: Broker) -> None:
    assert await alter(broker, AT_ONCE, EVERY_TIME) == 0
    store = reading("t", state_changelog_topics=[info("app-c")])
    first = await beat(broker, "m1", 0, store)
    second = await beat(broker, "m2", 0, store)
    less = await beat(broker, "m1", first.member_epoch, active_tasks=[], standby_tasks=[],
                      warmup_tasks=[])  # fmt: skip
    assert tasks(less.standby_tasks) in (None, {})
    assert await alter(broker, ("streams.num.standby.replicas", "1")) == 0
    held = []
    for member, epoch in (("m1", less.member_epoch), ("m2", second.member_epoch)):
        answer = await beat(broker, member, epoch)
        held.append((tasks(answer.active_tasks), tasks(answer.standby_tasks)))
    standby = sorted(number for _, rows in held for number in (rows or {}).get("0", []))
    assert standby == [0, 1]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG),
        ("streams.num.standby.replicas", "2", ErrorCode.NONE),
        ("streams.session.timeout.ms", "44999", ErrorCode.INVALID_CONFIG),
        ("streams.session.timeout.ms", "60000", ErrorCode.NONE),
        ("streams.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        ("streams.heartbeat.interval.ms", "6000", ErrorCode.NONE),
        ("streams.initial.rebalance.delay.ms", "-1", ErrorCode.INVALID_CONFIG),
        ("streams.nonsense", "1", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_configs_have_the_bounds_of_the_broker(
    broker: Broker, name: str, value: str, error: ErrorCode
) -> None:
    assert await alter(broker, (name, value)) == error


async def test_user_endpoints_have_the_partitions_of_their_tasks(broker: Broker) -> None:
    assert await alter(broker, AT_ONCE) == 0
    answer = await beat(broker, "m", 0, user_endpoint=Endpoint(host="::1", port=65_535))
    (row,) = answer.partitions_by_user_endpoint or []
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("::1", 65_535)
    assert [(each.topic, each.partitions) for each in row.active_partitions] == [("t", [0, 1])]
    (member,) = (await described(broker)).members
    assert member.user_endpoint is not None and member.user_endpoint.port == 65_535
    epoch = answer.endpoint_information_epoch
    same = await beat(broker, "m", answer.member_epoch, endpoint_information_epoch=epoch)
    assert same.partitions_by_user_endpoint is None


async def test_an_index_beyond_the_topics_is_no_topology(broker: Broker) -> None:
    for group in (together(1), together(-1), together(0, repartition=(0,))):
        sub = reading("t", copartition_groups=[group])
        assert (await beat(broker, "m", 0, sub)).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    twice = (reading("t"), reading("t"))
    assert (await beat(broker, "m", 0, *twice)).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert isinstance(together(0), CopartitionGroup)


async def test_offsets_of_topics_that_tasks_read_are_not_deleted(broker: Broker) -> None:
    await alter(broker, AT_ONCE)
    answer = await beat(broker, "m", 0)
    rows = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=rows)]
    )
    delete = DeleteGroupsRequest(groups_names=["g"])

    async def outcome() -> tuple[int, int, int]:
        found = await broker.ask(request)
        errors = [row.error_code for topic in found.topics for row in topic.partitions]
        group = (await broker.ask(delete)).results[0].error_code
        return found.error_code, (errors or [-1])[0], group

    assert await outcome() == (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NON_EMPTY_GROUP)
    left = await beat(broker, "m", -1)
    assert (left.error_code, left.member_epoch, answer.error_code) == (0, -1, 0)
    assert await outcome() == (0, 0, 0)
    assert (await described(broker)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_internal_topics_are_not_created_without_the_right_to(broker: Broker) -> None:
    missing = [("app-r", 2, NO_CONFIGS), ("app-c", 2, NO_CONFIGS)]
    create, topics = broker.services.auto_creator.create_internal, broker.services.topics
    charged: list[int] = []

    async def charge(partitions: int) -> None:
        charged.append(partitions)
        if len(charged) == 1:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "Try again.")

    said = await create(missing, lambda name: name == "app-r", charge)
    assert said == "Unauthorized to CREATE on topics app-c."
    said = await create(missing, lambda name: True, charge)
    assert said == "Creation failed: app-r, app-c (Try again.)."
    assert await topics.get("app-r") is None, "all of them, or none"
    assert await create(missing, lambda name: True, charge) == ""
    assert await create(missing, lambda name: True, charge) == "", "another broker did it"
    found = await topics.get("app-c")
    assert found is not None and found.partitions == 2
    many = [("app-m", 10000, NO_CONFIGS), ("app-n", 1, NO_CONFIGS)]
    said = await create(many, lambda name: True, charge)
    assert "10000 new partitions at once, not 10001" in said
    assert charged == [4, 4, 4]


async def test_a_member_over_the_mutation_rate_does_not_wait(broker: Broker) -> None:
    services, session = broker.services, Session("127.0.0.1")
    await services.config_admin.alter_quotas(resource_of({CLIENT_ID: "test"}), {MUTATIONS: "0.01"})
    await services.quotas.charge_mutation(session, "test", 1, strict=True)
    answer = await beat(broker, "m", 0, *COUNTING, session=session)
    (_, status) = answer.status or []
    assert "The quota controller_mutation_rate is used up" in status.status_detail
    assert session.mutation_ms == 0, "its next heartbeat would be late"


async def test_a_topology_description_is_not_stored_as_in_a_kafka_without_plugin(
    broker: Broker,
) -> None:
    joined = await beat(broker, "m1", 0)
    assert (joined.acceptable_recovery_lag, joined.topology_description_required) == (-1, False)
    for asked, status in ((False, 0), (True, 1)):
        request = StreamsGroupDescribeRequest(
            group_ids=["g"],
            include_authorized_operations=False,
            include_topology_description=asked,
        )
        group = (await broker.ask(request)).groups[0]
        assert (group.topology_description, group.assignor_name) == (None, "sticky")
        assert group.topology_description_status == status
