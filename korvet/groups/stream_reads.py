"""`group.read.mode=stream`: a Fetch reads through the Redis group of its client, as seed 001 does.

Rules
- A Fetch names no group. Its client does: the member that was heard of under that client id,
  through this process. Where that is nobody or several, the Fetch is answered by its offset
  alone, and the log says so once.
- What a reader was given and has not committed comes again before anything new does. A partition's
  new owner takes over what the one before left.
- The group begins at the first Fetch's offset. Later ones go forward only: what was committed is
  acknowledged, and no seeking brings it back.
"""

from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from korvet import logfmt
from korvet.config.dynamic import group_resource
from korvet.scripts import log
from korvet.topics.table import Topic

if TYPE_CHECKING:
    from korvet.context import Context

MODE = "group.read.mode"
SILENCE_S = 60.0
COUNT = 500

logger = logfmt.get("streaming")


class Reader(msgspec.Struct):
    """A member of a group, as its client id stands for it."""

    group: str
    generation: int
    heard: float


class Readers:
    """Who reads, by client id, as far as this process has seen it."""

    def __init__(self) -> None:
        self._by_client: dict[str, dict[tuple[str, str], Reader]] = {}
        self._claims: dict[tuple[str, int, str], tuple[tuple[str, int], bytes]] = {}
        self._told: set[str] = set()

    def note(self, client_id: str, group: str, member: str, generation: int) -> None:
        """The client is that member now."""
        rows = self._by_client.setdefault(client_id, {})
        rows[group, member] = Reader(group, generation, monotonic())

    def forget(self, client_id: str, group: str, member: str) -> None:
        """The client is that member no more."""
        rows = self._by_client.get(client_id, {})
        rows.pop((group, member), None)
        if not rows:
            self._by_client.pop(client_id, None)

    def reader(self, client_id: str) -> Reader | None:
        """The one member the client can be, or None."""
        rows = self._by_client.get(client_id, {})
        limit = monotonic() - SILENCE_S
        for who in [who for who, row in rows.items() if row.heard < limit]:
            del rows[who]  # it died, and somebody else may have its client id by now
        if not rows:
            self._by_client.pop(client_id, None)
            return None
        if len(rows) == 1:
            return next(iter(rows.values()))
        if client_id not in self._told:
            self._told.add(client_id)
            logger.warning(
                "several members have one client id: their fetches go by offset",
                client_id=client_id,
            )
        return None

    def __bool__(self) -> bool:
        return bool(self._by_client)

    def claim(self, topic: Topic, partition: int, client_id: str, reader: Reader) -> bytes:
        """How much of what others left pending the reader has claimed, for log.group_read."""
        owner, done = self._claims.get((topic.id, partition, reader.group), (None, b""))
        return done if owner == (client_id, reader.generation) else log.CLAIM_ALL

    def claimed(
        self, topic: Topic, partition: int, client_id: str, reader: Reader, done: bytes
    ) -> None:
        """log.group_read has answered: so much is the reader's now."""
        owner = client_id, reader.generation
        self._claims[topic.id, partition, reader.group] = owner, done


def readers(context: "Context") -> Readers:
    """Return the readers of this process."""
    return context.services.stream_readers


def reads_streams(context: "Context", group: str) -> bool:
    """Whether the group reads through Redis's group of its name."""
    table = context.services.configs
    own = table.explicit(group_resource(group)) if table.has_groups else {}
    return (own.get(MODE) or context.settings.text(MODE)) == "stream"


def note_reader(context: "Context", group: str, member: str, generation: int) -> None:
    """A member was heard of."""
    if reads_streams(context, group):
        readers(context).note(context.client_id or "", group, member, generation)


async def delivered(
    context: "Context", topic: Topic, partition: int, offset: int
) -> tuple[int, int] | None:
    """First and last offset of what the client may read now; None: whatever it asks for.

    (offset, -1) when there is nothing for it.
    """
    if context.client_id is None or not context.services.stream_readers:
        return None
    reader = readers(context).reader(context.client_id)
    if reader is None:
        return None
    known = readers(context)
    while True:
        reply = await context.store.run(
            log.group_read(
                context.keys,
                topic.name,
                partition,
                group=reader.group,
                consumer=context.client_id,
                topic_id=topic.id,
                offset=offset,
                count=COUNT,
                claim=known.claim(topic, partition, context.client_id, reader),
            )
        )
        if reply.error:
            return None
        known.claimed(topic, partition, context.client_id, reader, reply.claim)
        if reply.first >= 0 or reply.claim == log.ALL_CLAIMED:
            return max(offset, reply.first), reply.last
