"""Move a share group to positions in topics, or show where it would move."""

from korvet.bounded import gather_bounded
from korvet.cli import table_output
from korvet.cli.admin_client import CommandLog
from korvet.cli.topic_positions import check_group_name
from korvet.config.broker_config import StartError
from korvet.errors import ErrorCode
from korvet.groups.share_offsets import ShareOffsets, list_partitions
from korvet.log.position import Position
from korvet.topics.table import Topic

COLUMNS = ("topic", "partition", "start", "new_start", "records")
_ALL = "*"


async def reset(
    log: CommandLog, name: str, positions: dict[str, Position], *, dry_run: bool
) -> list[table_output.Row]:
    """Move the group in these topics; `*`: in all of its other topics.

    Return a row of each partition: its start offset, the new one, and the records from there on.
    """
    check_group_name(name)
    offsets = ShareOffsets(log.store, log.keys, log.table, log.coordinator)
    topics = await _topics(log, offsets, name, positions)
    places = list_partitions(topics)

    async def find(place: tuple[Topic, int]) -> int:
        topic, number = place
        position = positions.get(topic.name, positions.get(_ALL))
        assert position is not None
        return await log.find_offset(topic.name, number, position)

    found = await gather_bounded(find, places)
    counts = await log.store.run_many(
        log.keys.partition(topic.name, number, topic.id).lag(offset=offset)
        for (topic, number), offset in zip(places, found, strict=True)
    )
    before = await offsets.describe(name, places)
    if not dry_run:
        moves = [(*place, offset) for place, offset in zip(places, found, strict=True)]
        error, errors = await offsets.alter(name, moves)
        _check(name, error)
        for (topic, number), failed in errors.items():
            _check(f"{topic}-{number}", failed)
    return [
        (topic.name, number, old.start if old.start >= 0 else None, offset, count.records)
        for (topic, number), old, offset, count in zip(places, before, found, counts, strict=True)
    ]


async def _topics(
    log: CommandLog, offsets: ShareOffsets, name: str, positions: dict[str, Position]
) -> list[Topic]:
    """Return the topics to move in, which exist."""
    error, _, own = await offsets.topics_of(name)
    _check(name, error)
    found = {topic.name: topic for topic in own} if _ALL in positions else {}
    for topic in positions:
        if topic != _ALL:
            found[topic] = await log.find_topic(topic)
    if not found:
        raise StartError(f"Share group {name!r} has read no topic: name one with --topic.")
    return list(found.values())


def _check(name: str, error: ErrorCode) -> None:
    """Raise StartError unless there is no error."""
    if error is ErrorCode.NON_EMPTY_GROUP:
        raise StartError(f"Share group {name!r} has members: stop them first.")
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise StartError(f"There is no share group {name!r}, or it is a group of another type.")
    if error:
        raise StartError(f"{name!r} cannot be moved: {error.name}.")
