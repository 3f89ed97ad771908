"""`group.read.mode=stream`: a Fetch reads through the Redis group of its client (XREADGROUP).

Rules
- A Fetch names no group. Its client id has to name the member: the one that this process has last
  seen with it. Without one, or with several, the Fetch reads by its offset, and the log says so
  once.
- Entries that were delivered to a reader and are not committed are delivered again, before new
  ones. A partition's new owner claims those of the owner before.
- The Redis group begins at the offset of its first Fetch. Later ones only move forward: committed
  records are acknowledged, and no seek delivers them again.
"""

from dataclasses import dataclass
from time import monotonic

import msgspec

from korvet.base import logfmt
from korvet.base.bounded import ByteBounded
from korvet.config.dynamic import ConfigTable, group_resource
from korvet.topics.node import Node
from korvet.topics.table import Topic

CLAIM_ALL, ALL_CLAIMED = b"0-0", b""
"""What log.group_read claims of the entries that others left pending: all, or none."""
MODE = "group.read.mode"
SILENCE_S = 60.0
"""Seconds without a request after which a member may be gone and its client id reused."""
COUNT = 500
"""Entries per delivery."""
MAX_KNOWN = 10_000
"""Claims, and client ids that were logged, which are kept: one more forgets all of them."""

logger = logfmt.get("groups.stream_reads")


class GroupMember(msgspec.Struct):
    """A member of a group, identified by its client id."""

    client_id: str
    group: str
    generation: int
    seen_at: float


class GroupMembers:
    """The members of groups by client id, as this process has seen them."""

    def __init__(self) -> None:
        self._by_client = ByteBounded[str, dict[tuple[str, str], GroupMember]](
            "stream group members", 16 << 20
        )
        self._claims = ByteBounded[tuple[str, int, str], tuple[tuple[str, int], bytes]](
            "claims of stream groups", 16 << 20
        )
        self._logged: set[int] = set()

    def note(self, client_id: str, group: str, member: str, generation: int) -> None:
        """Record that the client has just used this member id."""
        rows = self._by_client.get(client_id, {})
        rows[group, member] = GroupMember(client_id, group, generation, monotonic())
        self._by_client.put(client_id, rows)

    def forget(self, client_id: str, group: str, member: str) -> None:
        """Remove a member that has left."""
        rows = self._by_client.get(client_id, {})
        rows.pop((group, member), None)
        if not rows:
            self._by_client.pop(client_id)

    def find(self, client_id: str) -> GroupMember | None:
        """Return the client's only member, or None."""
        rows = self._by_client.get(client_id, {})
        limit = monotonic() - SILENCE_S
        for key in [key for key, row in rows.items() if row.seen_at < limit]:
            del rows[key]
        if not rows:
            self._by_client.pop(client_id)
            return None
        if len(rows) == 1:
            return next(iter(rows.values()))
        if hash(client_id) not in self._logged:
            if len(self._logged) >= MAX_KNOWN:
                self._logged.clear()
            self._logged.add(hash(client_id))
            logger.warning(
                "several members have one client id: their fetches read by offset",
                client_id=client_id,
            )
        return None

    def __bool__(self) -> bool:
        return bool(self._by_client)

    def claim(self, topic: Topic, partition: int, member: GroupMember) -> bytes:
        """Return up to where the member has claimed what others left pending."""
        row = self._claims.get((topic.id, partition, member.group))
        is_mine = row is not None and row[0] == (member.client_id, member.generation)
        return row[1] if row is not None and is_mine else CLAIM_ALL

    def set_claim(self, topic: Topic, partition: int, member: GroupMember, claimed: bytes) -> None:
        """Record up to where the member has claimed."""
        # Without a row the next delivery claims again what its member has pending.
        owner = member.client_id, member.generation
        self._claims.put((topic.id, partition, member.group), (owner, claimed))


@dataclass(eq=False, repr=False)
class StreamReads:
    """Delivers entries of partitions to the members of Redis groups."""

    node: Node
    configs: ConfigTable

    def __post_init__(self) -> None:
        self._members = GroupMembers()

    def is_stream_group(self, group: str) -> bool:
        """Return whether the group reads through the Redis group of its name."""
        configs = self.configs
        own = configs.explicit(group_resource(group)) if configs.has_groups else {}
        return (own.get(MODE) or self.node.settings().text(MODE)) == "stream"

    def note_member(self, client_id: str | None, group: str, member: str, generation: int) -> None:
        """Record a request of a group's member, if the group reads streams."""
        if self.is_stream_group(group):
            self._members.note(client_id or "", group, member, generation)

    def forget_member(self, client_id: str | None, group: str, member: str) -> None:
        """Remove a member that has left."""
        if self._members:
            self._members.forget(client_id or "", group, member)

    def find_member(self, client_id: str | None) -> GroupMember | None:
        """Return the member as which the client reads; None: it reads by offset."""
        if client_id is None or not self._members:
            return None
        return self._members.find(client_id)

    async def deliver(
        self, member: GroupMember, topic: Topic, partition: int, offset: int
    ) -> tuple[int, int] | None:
        """Return the first and last offset the member may read now; None: read by offset.

        (offset, -1) if there is nothing for it.
        """
        members = self._members
        while True:
            reply = await self.node.store.run(
                topic.partition(partition).group_read(
                    group=member.group,
                    consumer=member.client_id,
                    offset=offset,
                    count=COUNT,
                    claim=members.claim(topic, partition, member),
                )
            )
            if reply.error:
                return None
            members.set_claim(topic, partition, member, reply.claim)
            if reply.first >= 0 or reply.claim == ALL_CLAIMED:
                return max(offset, reply.first), reply.last
