"""Consumer groups (KIP-848): settings, subscriptions, and the lists that scripts exchange."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from korvet.config.dynamic import ConfigTable, group_resource
from korvet.config.values import Settings
from korvet.name_pattern import compile_pattern
from korvet.topics.table import TopicTable

TopicRows = list[tuple[str, str, str]]
"""Kind, key and value of each topic row of lua/group/consumer_heartbeat.lua."""


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


TOO_LARGE = (
    "The group has the most members that it may have, or these exceed together "
    "group.subscription.max.topics, .partitions or .bytes."
)


def blank_field(**fields: str | None) -> str | None:
    """Return why a request is invalid that has one of these fields without text, else None."""
    for name, value in fields.items():
        if value is not None and not value.strip():
            return f"The {name.replace('_', ' ')} must not be empty."
    return None


def group_timeout_ms(configs: ConfigTable, settings: Settings, group_id: str, name: str) -> int:
    """Return a group's config of that name whose default is a broker's `group.<name>`."""
    resource = group_resource(group_id)
    own = configs.explicit(resource).get(name) if configs.raw(resource) else None
    return int(own) if own else settings.integer(f"group.{name}")


def encode_subscription(names: Iterable[bytes], patterns: Iterable[bytes] = ()) -> bytes:
    """Encode the names and patterns of a reply with `need_topics`, for the repeated call."""
    return pack_bytes((pack_bytes(names), pack_bytes(patterns)))


class TopicLookup:
    """The topics that the script of a heartbeat asks for, and the version of what they are from."""

    def __init__(
        self, topics: TopicTable, version: Callable[[], bytes], limits: GroupLimits
    ) -> None:
        self._topics = topics
        self._limits = limits
        self._read_version = version
        self.version = version()
        self.rows: TopicRows = []
        self.resolved = b""
        """The subscription whose topics are in `rows`, as the script compares it."""

    async def find(
        self,
        names: Sequence[bytes],
        regexes: Sequence[bytes] = (),
        may_describe: Callable[[str], bool] = lambda name: True,
    ) -> bool:
        """Find the topics that the names and patterns match, in a table read after this call.

        Returns False if they are more than a group may have.
        """
        # The group may have topics from another broker, whose table is newer than this one.
        await self._topics.refresh()
        # Read before the rows: these may be of a later version of the table, not of an earlier one.
        self.version = self._read_version()
        self.rows = await find_topics(self._topics, names, regexes, may_describe)
        self.resolved = encode_subscription(names, regexes)
        found = [int(value.rpartition(":")[2]) for kind, _, value in self.rows if kind == "t"]
        most = self._limits
        # A topic may match several patterns: a row for each.
        is_wide = len(found) > most.max_topics or len(self.rows) > 4 * most.max_topics
        return not is_wide and sum(found) <= most.max_partitions


async def find_topics(
    topics: TopicTable,
    subscribed: Iterable[bytes],
    regexes: Sequence[bytes] = (),
    may_describe: Callable[[str], bool] = lambda name: True,
) -> TopicRows:
    """Return the topics that the names and patterns match, in an order that all brokers share.

    A pattern matches topics only that the client may describe.
    """
    patterns = [(raw.decode(), compile_pattern(raw.decode())) for raw in regexes]
    names = {raw.decode() for raw in subscribed}
    rows: TopicRows = []
    for topic in await topics.all():
        matched = [text for text, pattern in patterns if pattern.matches(topic.name)]
        if matched and not may_describe(topic.name):
            matched = []
        if matched or topic.name in names:
            rows.append(("t", topic.name, f"{topic.id}:{topic.partitions}"))
            rows += (("r", text, topic.name) for text in matched)
    # The script compares them with the rows of the last heartbeat, which another broker may have
    # received: the tables of two brokers may have their topics in different orders.
    return sorted(rows)
