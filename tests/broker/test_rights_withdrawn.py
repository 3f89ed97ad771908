"""Check requests that wait: a right that is taken meanwhile is asked for again before they end."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.fetch import sessions
from korvet.scripts.keys import Keys
from korvet.security.acl import Operation, ResourceType
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from korvet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from korvet.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic
from korvet.wire.messages.share_fetch import ShareFetchRequest
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from korvet.wire.schema import Message
from tests.broker.test_authorization import Secured, allow, fetch, produce, secured

__all__ = ["secured"]
TOPIC_RULE = allow(Operation.READ, ResourceType.TOPIC, "a")
GROUP_RULE = allow(Operation.READ, ResourceType.GROUP, "g")
WAIT_MS = 600_000


async def waiting(
    broker: Secured, request: Message, version: int | None, channel: str
) -> asyncio.Task[Any]:
    """Send alice's request; return once it waits for a message on the channel."""
    task = asyncio.create_task(broker.ask(request, version))
    async with asyncio.timeout(60):
        while not (broker.services.notifier._subscriptions.get(channel) or task.done()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not task.done()
    return task


def joining(member: str = "") -> JoinGroupRequest:
    """Return a request to join the group."""
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=WAIT_MS,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )


def syncing(member: str, generation: int, *given: str) -> SyncGroupRequest:
    """Return a request for the member's assignment; the leader gives one to each member."""
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        assignments=[SyncGroupRequestAssignment(member_id=each, assignment=b"a") for each in given],
    )


def keys_of(broker: Secured) -> Keys:
    return broker.services.keys


@pytest.mark.parametrize("taken", [True, False])
async def test_a_fetch_that_waits_delivers_no_records_of_a_topic_it_may_no_longer_read(
    secured: Secured, taken: bool
) -> None:
    await secured.grant(TOPIC_RULE)
    request = replace(fetch("a"), max_wait_ms=WAIT_MS, min_bytes=1)
    channel = keys_of(secured).partition("a", 0).stream
    task = await waiting(secured, request, 12, channel)
    if taken:
        await secured.services.authorizer.delete([TOPIC_RULE])
    assert (await secured.ask(produce("a"), 9, "root")).responses[0].partition_responses
    async with asyncio.timeout(60):
        (row,) = (await task).responses[0].partitions
    assert row.error_code == (ErrorCode.TOPIC_AUTHORIZATION_FAILED if taken else ErrorCode.NONE)
    assert bool(row.records) == (not taken)


@pytest.mark.parametrize("taken", ["", "topic", "group"])
async def test_a_share_fetch_that_waits_acquires_no_records_without_its_rights(
    secured: Secured, taken: str
) -> None:
    await secured.grant(TOPIC_RULE, GROUP_RULE)
    topic = await secured.services.topics.get("a")
    assert topic is not None
    place = AcknowledgePartition(partition_index=0, acknowledgement_batches=[])
    request = ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_records=9,
        batch_size=9,
        topics=[AcknowledgeTopic(topic_id=topic.uuid, partitions=[place])],
    )
    names = keys_of(secured).partition("a", 0)
    task = await waiting(secured, request, None, names.stream)
    if taken:
        rule = TOPIC_RULE if taken == "topic" else GROUP_RULE
        await secured.services.authorizer.delete([rule])
    assert (await secured.ask(produce("a"), 9, "root")).responses[0].partition_responses
    async with asyncio.timeout(60):
        (row,) = (await task).responses[0].partitions
    expected = {
        "": ErrorCode.NONE,
        "topic": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "group": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    assert row.error_code == expected[taken]
    assert bool(row.acquired_records) == bool(row.records) == (not taken)


@pytest.mark.parametrize("taken", [True, False])
async def test_a_join_that_waits_ends_with_a_denial_if_the_group_may_no_longer_be_read(
    secured: Secured, taken: bool
) -> None:
    await secured.grant(GROUP_RULE)
    names = keys_of(secured).group("g")
    task = await waiting(secured, joining(), 3, names.group)
    if taken:
        await secured.services.authorizer.delete([GROUP_RULE])
    # The end of the wait: the member is removed.
    (member,) = await secured.services.store.command("HKEYS", names.members)
    identity = MemberIdentity(member_id=member.decode())
    left = await secured.ask(LeaveGroupRequest(group_id="g", members=[identity]), 4, "root")
    assert left.members[0].error_code == 0
    async with asyncio.timeout(60):
        error = (await task).error_code
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert error == (refused if taken else ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("taken", [True, False])
async def test_a_sync_that_waits_returns_no_assignment_of_a_group_that_may_no_longer_be_read(
    secured: Secured, taken: bool
) -> None:
    settings = secured.services.settings.with_dynamic({"group.initial.rebalance.delay.ms": "0"})
    secured.services.dynamic_config.settings = settings
    await secured.grant(GROUP_RULE)
    names = keys_of(secured).group("g")
    leader = (await secured.ask(joining(), 3, "root")).member_id
    task = await waiting(secured, joining(), 3, names.group)
    async with asyncio.timeout(60):
        generation = (await secured.ask(joining(leader), 3, "root")).generation_id
        follower = (await task).member_id
    task = await waiting(secured, syncing(follower, generation), 3, names.group)
    if taken:
        await secured.services.authorizer.delete([GROUP_RULE])
    given = syncing(leader, generation, leader, follower)
    assert (await secured.ask(given, 3, "root")).error_code == 0
    async with asyncio.timeout(60):
        answer = await task
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.error_code == (refused if taken else ErrorCode.NONE)
    assert answer.assignment == (b"" if taken else b"a")


@pytest.mark.parametrize("small", [0, 100], ids=["large session", "small session"])
async def test_a_fetch_session_has_an_error_for_a_topic_it_may_no_longer_read(
    secured: Secured, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SMALL", small)
    await secured.grant(TOPIC_RULE)
    answer = await secured.ask(replace(fetch("a"), session_epoch=0), 12)
    session_id, found = answer.session_id, []
    for epoch in range(1, 6):
        if epoch == 2:
            await secured.services.authorizer.delete([TOPIC_RULE])
        elif epoch == 4:
            await secured.grant(TOPIC_RULE)
        following = replace(fetch(), session_id=session_id, session_epoch=epoch)
        answer = await secured.ask(following, 12)
        found.append([row.error_code for topic in answer.responses for row in topic.partitions])
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found == [[], [denied], [denied], [ErrorCode.NONE], []]
