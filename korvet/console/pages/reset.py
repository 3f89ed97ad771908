"""Move a group to another position in a topic: a preview, then the commit of what it showed.

A share group has no commits: its start offset moves, and all records from there become available
again, those that it has finished too.
"""

import msgspec

from korvet.base.errors import ErrorCode
from korvet.console.described_group import committed, read_queue
from korvet.console.pages.actions import Done
from korvet.console.pages.group import described, group_id
from korvet.console.pages.records import offsets_at, parse_offsets
from korvet.console.pages.topic import find_topic
from korvet.console.visit import PageError, Visit, check_row
from korvet.groups.description import TopicPartition
from korvet.security.acl import Operation, ResourceType
from korvet.topics.table import Topic
from korvet.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from korvet.wire.messages.delete_groups import DeleteGroupsRequest

MAX_PARTITIONS = 1_000
"""Max partitions of one reset."""
UNCOUNTED = -1
OffsetAndLag = tuple[int, int]
"""A group's offset in a partition, and its lag from there or UNCOUNTED."""
NONE: OffsetAndLag = (-1, UNCOUNTED)


class ResetRow(msgspec.Struct, frozen=True):
    """The change of a partition. `lag` counts records."""

    partition: int
    committed: int
    """The committed offset, or the start offset of a share group; -1 for none."""
    offset: int
    """The offset after the reset."""
    lag: int
    new_lag: int


class ResetPage(msgspec.Struct, frozen=True):
    """A preview of a reset."""

    group: str
    type: str
    topic: str
    to: str
    members: int
    """A group with members cannot be reset."""
    rows: list[ResetRow]
    """Empty without a topic and a position."""
    skipped: int
    """Records that the group will not read."""
    repeated: int
    """Records that it will read again."""
    topics: list[str]
    """Topics that the group has read."""
    offsets: str
    """`partition:offset,...`: what the reset commits."""


async def load(visit: Visit) -> ResetPage:
    """Return the preview of the reset of the query: `id`, `topic` and `to`."""
    return await _load(visit, previews=True)


async def load_form(visit: Visit) -> ResetPage:
    """Return the page without a preview, for a query that was refused."""
    return await _load(visit, previews=False)


async def _load(visit: Visit, *, previews: bool) -> ResetPage:
    name = group_id(visit)
    found = await described(visit, name)
    positions = await (_starts if found.type == "share" else _commits)(visit, name)
    topic_name, to = visit.query("topic"), visit.query("to")
    rows = []
    if previews and topic_name and to:
        topic = await topic_of(visit, topic_name)
        before = {number: offset for (at, number), offset in positions.items() if at == topic_name}
        rows = await _preview(visit, topic, to, before)
    moved = [row.lag - row.new_lag for row in rows if row.committed >= 0]
    return ResetPage(
        group=name,
        type=found.type,
        topic=topic_name,
        to=to,
        members=len(found.members),
        rows=rows,
        skipped=sum(number for number in moved if number > 0),
        repeated=-sum(number for number in moved if number < 0),
        topics=sorted(
            at
            for at in {at for at, _ in positions}
            if visit.may(Operation.DESCRIBE, ResourceType.TOPIC, at)
        ),
        offsets=",".join(f"{row.partition}:{row.offset}" for row in rows),
    )


async def _commits(visit: Visit, name: str) -> dict[TopicPartition, OffsetAndLag]:
    """Return the committed offsets."""
    found = await committed(visit, name)
    return {partition: (commit.offset, UNCOUNTED) for partition, commit in found.items()}


async def _starts(visit: Visit, name: str) -> dict[TopicPartition, OffsetAndLag]:
    """Return the start offsets of a share group, with its lag from there."""
    rows, _ = await read_queue(visit, name)
    return {(row.topic, row.partition): (row.start, row.lag) for row in rows if row.start >= 0}


async def topic_of(visit: Visit, name: str) -> Topic:
    """Return the topic, if the user may read it and it is not too large. Raises PageError."""
    topic = await find_topic(visit, Operation.READ, name)
    if topic.partitions > MAX_PARTITIONS:
        raise PageError(
            400, f"{name} has more than {MAX_PARTITIONS} partitions: use `korvet groups reset`."
        )
    return topic


async def _preview(
    visit: Visit, topic: Topic, to: str, before: dict[int, OffsetAndLag]
) -> list[ResetRow]:
    numbers = range(topic.partitions)
    offsets = await offsets_at(visit, topic, to, numbers)
    old_offsets = [before.get(number, NONE) for number in numbers]
    old = await _lags(visit, topic, [max(offset, 0) for offset, _ in old_offsets])
    new = await _lags(visit, topic, list(offsets.values()))
    return [
        ResetRow(
            number, offset, offsets[number], old[number] if lag == UNCOUNTED else lag, new[number]
        )
        for number, (offset, lag) in zip(numbers, old_offsets, strict=True)
    ]


async def _lags(visit: Visit, topic: Topic, offsets: list[int]) -> list[int]:
    replies = await visit.services.store.run_many(
        topic.partition(number).lag(offset=offset) for number, offset in enumerate(offsets)
    )
    return [max(0, reply.records) for reply in replies]


async def reset(visit: Visit) -> Done:
    """Commit the offsets that the preview showed."""
    name, topic_name = visit.form.get("id", ""), visit.form.get("topic", "")
    visit.require(Operation.READ, ResourceType.GROUP, name)
    topic = await topic_of(visit, topic_name)
    pairs = parse_offsets("offsets", visit.form.get("offsets", ""))
    offsets = {(topic.name, number): offset for number, offset in pairs.items()}
    if not name or any(offset < 0 for offset in offsets.values()):
        raise PageError(400, "A reset needs a group, and offsets of 0 or above.")
    if (await described(visit, name)).type == "share":
        await _move(visit, name, topic, offsets)
    else:
        await visit.log.commit(name, offsets)
    return Done("/group", f"Group {name} was reset in {topic.name}.", {"id": name})


async def _move(visit: Visit, name: str, topic: Topic, offsets: dict[TopicPartition, int]) -> None:
    """Move the start offsets of a share group. Raises PageError."""
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        for (_, number), offset in offsets.items()
    ]
    row = AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=partitions)
    answer = await visit.call(AlterShareGroupOffsetsRequest(group_id=name, topics=[row]))
    if answer.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise PageError(400, f"Group {name} has members: stop them first. (NON_EMPTY_GROUP)")
    check_row(answer)
    for part in answer.responses[0].partitions:
        check_row(part)


async def delete(visit: Visit) -> Done:
    """Delete a group without members."""
    name = visit.form.get("id", "")
    answer = await visit.call(DeleteGroupsRequest(groups_names=[name]))
    check_row(answer.results[0])
    return Done("/groups", f"Group {name} was deleted.")
