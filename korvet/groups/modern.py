"""Modern groups, whose partitions the broker assigns: of the types consumer, share and streams.

Limits, settings, the lists that scripts exchange, and the heartbeat of a member: its script is
called until it has the topics that it asks for.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from korvet.base.errors import ErrorCode
from korvet.base.name_pattern import compile_pattern
from korvet.config.dynamic import ConfigTable, group_resource
from korvet.config.values import Settings
from korvet.groups.assignment import encode_assignment
from korvet.groups.coordinator import GroupCoordinator
from korvet.groups.share_group import ShareGroupConfig
from korvet.scripts.call import Call
from korvet.scripts.calls.group import (
    ConsumerHeartbeatReply,
    ShareHeartbeatReply,
    StreamsHeartbeatReply,
)
from korvet.store.calls import IS_INLINE
from korvet.topics.table import TopicTable
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

JOIN, LEAVE_STATIC = 0, -2
"""Member epochs with a special meaning."""
TopicRows = list[tuple[str, str, str]]
"""Kind, key and value of each topic row of lua/group/consumer_heartbeat.lua."""
H = TypeVar("H", ConsumerHeartbeatReply, ShareHeartbeatReply, StreamsHeartbeatReply)


def pack(items: Iterable[str]) -> bytes:
    """Pack a list of strings as lua/lib/pack.lua does."""
    return pack_bytes(item.encode("utf-8", "surrogateescape") for item in items)


def pack_bytes(items: Iterable[bytes]) -> bytes:
    """Pack a list of byte strings as lua/lib/pack.lua does."""
    return b"".join(b"%d:%s" % (len(item), item) for item in items)


def unpack(packed: bytes) -> list[str]:
    """Unpack a list of strings."""
    return [item.decode("utf-8", "surrogateescape") for item in unpack_bytes(packed)]


def unpack_bytes(packed: bytes) -> list[bytes]:
    """Unpack a list of byte strings."""
    found, at = [], 0
    while at < len(packed):
        colon = packed.index(b":", at)
        end = colon + 1 + int(packed[at:colon])
        found.append(packed[colon + 1 : end])
        at = end
    return found


class GroupLimits(msgspec.Struct, frozen=True):
    """The limits of a group whose partitions the broker assigns: scripts work on all of it."""

    max_topics: int
    max_partitions: int
    max_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> "GroupLimits":
        """Return the limits that the settings have."""
        return cls(
            settings.integer("group.subscription.max.topics"),
            settings.integer("group.subscription.max.partitions"),
            settings.integer("group.subscription.max.bytes"),
        )

    def refusal(
        self, names: Sequence[str] | None, partitions: int, *words: str | None
    ) -> str | None:
        """Return why a heartbeat alone exceeds the limits, None if it does not."""
        if len(names or ()) > self.max_topics:
            return f"More than group.subscription.max.topics={self.max_topics} topic names."
        if partitions > self.max_partitions:
            limit = f"group.subscription.max.partitions={self.max_partitions}"
            return f"The list of owned partitions has more than {limit}."
        if sum(map(len, names or ())) + sum(len(word or "") for word in words) > self.max_bytes:
            return f"Ids and names have more than group.subscription.max.bytes={self.max_bytes}."
        return None


_TOO_LARGE = (
    "The group has the most members that it may have, or these exceed together "
    "group.subscription.max.topics, .partitions or .bytes."
)


def reason_of(error: int) -> str | None:
    """Return why a script refused a heartbeat, None for the error's own sentence."""
    return _TOO_LARGE if error == ErrorCode.GROUP_MAX_SIZE_REACHED else None


def blank_field(**fields: str | None) -> str | None:
    """Return why a request is invalid that has one of these fields without text, else None."""
    for name, value in fields.items():
        if value is not None and not value.strip():
            return f"The {name.replace('_', ' ')} must not be empty."
    return None


def invalid_epoch(epoch: int, instance_id: str | None) -> str | None:
    """Return why the epoch of a member that may be static is invalid, None if it is not."""
    if epoch < LEAVE_STATIC:
        return f"Invalid member epoch {epoch}."
    if epoch == LEAVE_STATIC and instance_id is None:
        return "Member epoch -2 requires an instance id: it is for static members."
    return None


def group_timeout_ms(configs: ConfigTable, settings: Settings, group_id: str, name: str) -> int:
    """Return a group's config of that name whose default is a broker's `group.<name>`."""
    resource = group_resource(group_id)
    own = configs.explicit(resource).get(name) if configs.raw(resource) else None
    return int(own) if own else settings.integer(f"group.{name}")


def encode_subscription(names: Iterable[bytes], patterns: Iterable[bytes] = ()) -> bytes:
    """Encode the names and patterns of a reply with `need_topics`, for the repeated call."""
    return pack_bytes((pack_bytes(names), pack_bytes(patterns)))


@dataclass(eq=False, repr=False)
class Heartbeat:
    """The script calls of one heartbeat, with the topics that the script asks for."""

    groups: GroupCoordinator
    topics: TopicTable
    limits: GroupLimits
    read_version: Callable[[], bytes]
    """Returns the version of what `rows` are from."""
    may_describe: Callable[[str], bool] = lambda name: True
    version: bytes = field(default=b"", init=False)
    rows: TopicRows = field(default_factory=list, init=False)
    resolved: bytes = field(default=b"", init=False)
    """The subscription whose topics are in `rows`, as the script compares it."""

    async def run(
        self,
        request: Any,
        make: Callable[[int], Call[H]],
        *,
        only_renews: bool,
        prepare: Callable[[H], Awaitable[object]] | None = None,
    ) -> H:
        """Call the script until it has decided. One that only renews a session joins a batch.

        `prepare` is called before the topics are looked up that a reply asks for.
        """
        batched = only_renews and not IS_INLINE.get()
        async with self.groups.heartbeats.next_batch() if batched else nullcontext():
            await self.topics.count()  # reads the table again if it is old
            self.version = self.read_version()
            while True:
                reply = await self.groups.run(
                    request.group_id, make, creates=request.member_epoch == JOIN
                )
                asks = reply.need_topics or getattr(reply, "missing", None)
                if reply.error or not asks:
                    return reply
                if prepare is not None:
                    await prepare(reply)
                if not await self._find(reply):
                    return msgspec.structs.replace(reply, error=ErrorCode.GROUP_MAX_SIZE_REACHED)

    async def run_consumer(
        self,
        request: ConsumerGroupHeartbeatRequest,
        settings: Settings,
        client: tuple[str, str],
        session_ms: int,
        prepare: Callable[[ConsumerHeartbeatReply], Awaitable[object]] | None = None,
    ) -> ConsumerHeartbeatReply:
        """Run the heartbeat of a consumer group's member; `client` is its id and its host."""

        def make(is_registered: int) -> Call[ConsumerHeartbeatReply]:
            return self.groups.node.keys.group(request.group_id).consumer_heartbeat(
                member=request.member_id,
                epoch=request.member_epoch,
                instance=request.instance_id or "",
                rack=request.rack_id or "",
                client_id=client[0],
                client_host=client[1],
                session_ms=session_ms,
                rebalance_ms=request.rebalance_timeout_ms,
                assignor=request.server_assignor or "",
                max_size=settings.integer("group.consumer.max.size"),
                max_bytes=self.limits.max_bytes,
                max_topics=self.limits.max_topics,
                is_registered=is_registered,
                subscription_mask=(request.subscribed_topic_names is not None)
                + 2 * (request.subscribed_topic_regex is not None),
                names=pack(sorted(request.subscribed_topic_names or ())),
                regex=request.subscribed_topic_regex or "",
                has_owned=int(request.topic_partitions is not None),
                owned=encode_assignment(
                    (row.topic_id.hex, row.partitions) for row in request.topic_partitions or ()
                ),
                topics_version=self.version,
                resolved=self.resolved,
                rows=self.rows,
            )

        # A request that only renews the session may wait for a batch.
        only_renews = (
            request.member_epoch > 0
            and request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
        )
        return await self.run(request, make, only_renews=only_renews, prepare=prepare)

    async def run_share(
        self,
        request: ShareGroupHeartbeatRequest,
        settings: Settings,
        client: tuple[str, str],
        config: ShareGroupConfig,
    ) -> ShareHeartbeatReply:
        """Run the heartbeat of a share group's member; `client` is its id and its host."""
        names = request.subscribed_topic_names

        def make(is_registered: int) -> Call[ShareHeartbeatReply]:
            return self.groups.node.keys.group(request.group_id).share_heartbeat(
                member=request.member_id,
                epoch=request.member_epoch,
                rack=request.rack_id or "",
                client_id=client[0],
                client_host=client[1],
                session_ms=config.session_timeout_ms,
                interval_ms=config.assignment_interval_ms,
                max_size=settings.integer("group.share.max.size"),
                max_bytes=self.limits.max_bytes,
                max_topics=self.limits.max_topics,
                is_registered=is_registered,
                has_names=int(names is not None),
                names=pack(sorted(set(names or ()))),
                topics_version=self.version,
                resolved=self.resolved,
                rows=self.rows,
            )

        only_renews = request.member_epoch > 0 and names is None
        return await self.run(request, make, only_renews=only_renews)

    async def _find(self, reply: H) -> bool:
        """Find the topics that the reply's names and patterns match, in a table read after it.

        A pattern matches topics only that the client may describe. Returns False if the topics are
        more than a group may have.
        """
        # The group may have topics from another broker, whose table is newer than this one.
        await self.topics.refresh()
        # Read before the rows: these may be of a later version of the table, not of an earlier one.
        self.version = self.read_version()
        regexes = reply.regexes if isinstance(reply, ConsumerHeartbeatReply) else []
        patterns = [(raw.decode(), compile_pattern(raw.decode())) for raw in regexes]
        names = {raw.decode() for raw in reply.names}
        rows: TopicRows = []
        total = topics = 0
        for topic in await self.topics.all():
            matched = [text for text, pattern in patterns if pattern.matches(topic.name)]
            if matched and not self.may_describe(topic.name):
                matched = []
            if matched or topic.name in names:
                rows.append(("t", topic.name, f"{topic.id}:{topic.partitions}"))
                rows += (("r", text, topic.name) for text in matched)
                topics, total = topics + 1, total + topic.partitions
        # The script compares them with the rows of the last heartbeat, which another broker may
        # have received: the tables of two brokers may have their topics in different orders.
        self.rows = sorted(rows)
        # A reply with missing internal topics has no names: the script asks for them again.
        self.resolved = encode_subscription(reply.names, regexes) if reply.need_topics else b""
        limits = self.limits
        # A topic may match several patterns: a row for each.
        is_wide = topics > limits.max_topics or len(rows) > 4 * limits.max_topics
        return not is_wide and total <= limits.max_partitions
