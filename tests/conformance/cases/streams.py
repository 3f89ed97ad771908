"""Streams groups: their members, topologies, and the requests of groups of other types."""

from typing import Any

from korvet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from korvet.wire.messages.delete_groups import DeleteGroupsRequest
from korvet.wire.messages.describe_groups import DescribeGroupsRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from korvet.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from tests.conformance.asking import ABSENT, COMPACTED, PRODUCED, TOPIC, Ask, case
from tests.conformance.cases.offsets import committing, fetching
from tests.conformance.cases.shares import beating as sharing

BEAT = 0
"""API version of the requests that prepare a case."""
ME = "m" * 22


def info(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """Return the definition of a repartition or changelog topic."""
    rows = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=rows)


def reading(*sources: str, **changes: Any) -> Subtopology:
    """Return a subtopology."""
    fields: dict[str, Any] = {
        "subtopology_id": "0",
        "source_topics": list(sources),
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return Subtopology(**{**fields, **changes})


def together(*sources: int, repartition: tuple[int, ...] = ()) -> CopartitionGroup:
    """Return a copartition group."""
    return CopartitionGroup(
        source_topics=list(sources),
        source_topic_regex=[],
        repartition_source_topics=list(repartition),
    )


def beating(
    ask: Ask, epoch: int = 0, *subtopologies: Subtopology, **changes: Any
) -> StreamsGroupHeartbeatRequest:
    """Return a heartbeat of a streams group's member."""
    fields: dict[str, Any] = {
        "group_id": ask.group,
        "member_id": ME,
        "member_epoch": epoch,
        "endpoint_information_epoch": 0,
    }
    if epoch == 0:
        topology = Topology(epoch=0, subtopologies=list(subtopologies) or [reading(TOPIC)])
        fields |= {
            "rebalance_timeout_ms": 30_000,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": "p",
            "topology": topology,
        }
    return StreamsGroupHeartbeatRequest(**{**fields, **changes})


def compared(answer: Any) -> Any:
    """Return the parts of a response that do not depend on delays; status 5 does."""
    statuses = [(row.status_code, row.status_detail) for row in answer.status or ()]
    return [
        answer.error_code,
        answer.member_epoch > 0,
        sorted(row for row in statuses if row[0] != 5),
        answer.active_tasks is None,
    ]


@case("StreamsGroupHeartbeat")
async def streams_members_that_cannot_be(ask: Ask) -> Any:
    topology = Topology(epoch=0, subtopologies=[reading(TOPIC)])
    tasks = [TaskIds(subtopology_id="0", partitions=[0])]
    offsets = [TaskOffset(subtopology_id="0", partition=0, offset=1)]
    return [
        (await ask(beating(ask, epoch, **changes))).error_code
        for epoch, changes in (
            (0, {"member_id": ""}),
            (0, {"member_id": " "}),
            (0, {"group_id": ""}),
            (0, {"rack_id": ""}),
            (0, {"topology": None}),
            (0, {"rebalance_timeout_ms": -1}),
            (0, {"active_tasks": None}),
            (0, {"standby_tasks": tasks}),
            (0, {"instance_id": "i"}),
            (0, {"task_offsets": offsets}),
            (0, {"task_end_offsets": offsets}),
            (1, {"topology": topology}),
            (1, {"active_tasks": tasks}),
            (-2, {}),
            (-3, {}),
        )
    ]


@case("StreamsGroupHeartbeat")
async def topologies_that_cannot_be(ask: Ask) -> Any:
    return [
        (await ask(beating(ask, 0, *subs, group_id=f"{ask.group}-{number}"))).error_code
        for number, subs in enumerate(
            (
                [reading(TOPIC, source_topic_regex=["a.*"])],
                [reading(TOPIC, state_changelog_topics=[info("changelog", 3)])],
                [reading("no name")],
                [reading("__consumer_offsets")],
                [reading(TOPIC, repartition_sink_topics=["__transaction_state"])],
                [reading()],
                [reading(repartition_source_topics=[info("never-written")])],
            )
        )
    ]


@case("StreamsGroupHeartbeat")
async def unknown_streams_members(ask: Ask) -> Any:
    first = [await ask(beating(ask, epoch)) for epoch in (1, -1)]
    assert (await ask(beating(ask))).error_code == 0
    other = [await ask(beating(ask, epoch, member_id="n" * 22)) for epoch in (1, -1)]
    last = await ask(beating(ask, 99))
    return [answer.error_code for answer in (*first, *other, last)]


@case("StreamsGroupHeartbeat")
async def a_streams_member_that_comes_and_goes(ask: Ask) -> Any:
    more = {"client_tags": [KeyValue(key="zone", value="a")], "rack_id": "here"}
    return [
        compared(await ask(beating(ask, **more))),
        compared(await ask(beating(ask, user_endpoint=Endpoint(host="h", port=7)))),
        compared(await ask(beating(ask, 0, reading(COMPACTED)))),
        compared(await ask(beating(ask, -1))),
        compared(await ask(beating(ask, -1))),
        compared(await ask(beating(ask))),
    ]


@case("StreamsGroupHeartbeat")
async def a_static_streams_member_that_joins_again(ask: Ask) -> Any:
    other, who = "n" * 22, {"instance_id": "i"}
    epoch = (await ask(beating(ask, **who))).member_epoch
    rows = [
        await ask(beating(ask, **who, member_id=other)),
        await ask(beating(ask, epoch, **who, member_id=other)),
        await ask(beating(ask, epoch, instance_id="j")),
        await ask(beating(ask, -2, instance_id="j")),
        await ask(beating(ask, -2, **who)),
        await ask(beating(ask, **who, member_id=other)),
        await ask(beating(ask, epoch, **who)),
        await ask(beating(ask, -2, **who, member_id=other)),
        await ask(beating(ask, **who, member_id=other)),
        await ask(beating(ask, -1, **who, member_id=other)),
    ]
    return [(row.error_code, row.member_epoch > 0) for row in rows]


@case("StreamsGroupHeartbeat")
async def topics_that_a_topology_lacks(ask: Ask) -> Any:
    name = f"{ask.group}-internal"
    fixed = info(f"{name}-fixed", 5)
    return [
        compared(await ask(beating(ask, 0, *subs, group_id=f"{ask.group}-{number}")))
        for number, subs in enumerate(
            (
                [reading(TOPIC, ABSENT)],
                [reading(TOPIC, PRODUCED, copartition_groups=[together(0, 1)])],
                [
                    reading(
                        TOPIC,
                        repartition_source_topics=[fixed],
                        copartition_groups=[together(0, repartition=(0,))],
                    )
                ],
                [reading(PRODUCED, state_changelog_topics=[info(TOPIC)])],
            )
        )
    ]


@case("StreamsGroupHeartbeat")
async def an_application_that_shuts_down(ask: Ask) -> Any:
    epoch = (await ask(beating(ask))).member_epoch
    return [
        compared(await ask(beating(ask, epoch, shutdown_application=True))),
        compared(await ask(beating(ask, member_id="n" * 22))),
    ]


@case("StreamsGroupHeartbeat")
async def streams_members_of_groups_of_other_types(ask: Ask) -> Any:
    await ask.stable(group_id=f"{ask.group}-classic")
    await ask(await committing(ask, group_id=f"{ask.group}-simple"), 8)
    shared = sharing(ask, group_id=f"{ask.group}-share")
    assert (await ask(shared, 1)).error_code == 0
    return [
        (await ask(beating(ask, group_id=f"{ask.group}-{kind}"))).error_code
        for kind in ("classic", "simple", "share")
    ]


@case("StreamsGroupDescribe")
async def streams_groups_described(ask: Ask) -> Any:
    epoch = (await ask(beating(ask), BEAT)).member_epoch
    assert epoch > 0
    await ask(beating(ask, group_id=f"{ask.group}-gone"), BEAT)
    await ask(beating(ask, -1, group_id=f"{ask.group}-gone"), BEAT)
    await ask(beating(ask, 0, reading(ABSENT), group_id=f"{ask.group}-lacks"), BEAT)
    await ask.stable(group_id=f"{ask.group}-classic")
    wanted = [
        "",
        "nobody",
        ask.group,
        f"{ask.group}-gone",
        f"{ask.group}-lacks",
        f"{ask.group}-classic",
    ]
    answer = await ask(
        StreamsGroupDescribeRequest(group_ids=wanted, include_authorized_operations=False)
    )
    return [
        [
            row.error_code,
            row.group_id,
            "Assigning" if row.group_state == "Stable" else row.group_state,
            row.topology,
            [member.process_id for member in row.members],
        ]
        for row in sorted(answer.groups, key=lambda row: str(row.group_id))
    ]


@case("StreamsGroupDescribe")
async def streams_groups_in_other_requests(ask: Ask) -> Any:
    joined = await ask(beating(ask), BEAT)
    listed = await ask(ListGroupsRequest(states_filter=[], types_filter=["streams"]), 5)
    described = ConsumerGroupDescribeRequest(
        group_ids=[ask.group], include_authorized_operations=False
    )
    known = [(row.group_id, row.protocol_type, row.group_type) for row in listed.groups]
    classic = DescribeGroupsRequest(groups=[ask.group])
    fetch = await fetching(ask, member_id=ME, member_epoch=99)
    return [
        [row for row in known if row[0] == ask.group],
        (await ask(DeleteGroupsRequest(groups_names=[ask.group]), 2)).results,
        (await ask(described, 0)).groups[0].error_code,
        (await ask(classic, 6)).groups[0].error_code,
        (await ask(fetch, 9)).groups[0].error_code,
        (await ask(await committing(ask, member_id=ME, generation_id_or_member_epoch=99), 9)),
        (await ask(await committing(ask, member_id=ME, generation_id_or_member_epoch=1), 8)),
        joined.error_code,
    ]
