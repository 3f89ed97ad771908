"""The topic table, read from Redis and cached while it is current.

Rules
- Redis decides: every change is a script on `korvet:topics`, which sets a `:version` that was never
  used before, even if a failover lost the last ones.
- A cached table is used for at most FRESH_S without a check; a message on the topics channel ends
  that at once. A name that is missing is looked up in Redis before a client gets
  UNKNOWN_TOPIC_OR_PARTITION.
- Scripts treat a definition as opaque bytes and compare it whole. A change names the bytes that
  were read; if they are no longer stored, the caller reads them again.
"""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, TypedDict

import msgspec

from korvet.base import logfmt
from korvet.config.durability import Durability, strictest
from korvet.config.setting import ConfigError
from korvet.config.topic_policy import REMOTE, TopicConfigs, TopicPolicy
from korvet.config.topic_settings import TOPIC
from korvet.scripts.keys import Keys, Partition
from korvet.store.calls import AsyncCalls

FRESH_S = 1.0
VERSION_FIELD = ":version"
LIVE, CREATING, DELETING = "live", "creating", "deleting"
LOG_DIRECTORY = "redis"
"""The only log directory, as Kafka's tools see it."""
log = logfmt.get("topics")


class Shape(TypedDict):
    """Arguments of the scripts that create a topic's logs."""

    format: str
    mode: str
    bits: int
    dedupe: str
    table: int


class Definition(msgspec.Struct, frozen=True):
    """A topic as stored in Redis. `configs`: explicit configs, and those fixed at creation.

    `state` and `planned` record a change in progress: see `stepwise`.
    """

    id: str
    partitions: int
    configs: dict[str, str]
    state: str = LIVE
    planned: int = 0

    @property
    def shape(self) -> Shape:
        """Layout, dedupe and table of a new log. offset.mode=bytes implies storage.format=batch."""
        mode = self.configs["offset.mode"]
        form = "batch" if mode == "bytes" else self.configs["storage.format"]
        window, max_ids = self.dedupe
        return {
            "format": form,
            "mode": mode,
            "bits": int(self.configs["offset.bits"]),
            "dedupe": f"{window}:{max_ids}" if window else "",
            "table": self.table,
        }

    @property
    def dedupe(self) -> tuple[int, int]:
        """Values of dedupe.window.ms and dedupe.max.ids. The logs have them too, for scripts."""
        window, max_ids = (
            int(self.configs.get(name) or TOPIC[name].default or 0)
            for name in ("dedupe.window.ms", "dedupe.max.ids")
        )
        return window, max_ids

    @property
    def table(self) -> int:
        """Values of table.enable, 1, and table.offsets.enable, 2. The logs have them too."""
        names = ("table.enable", "table.offsets.enable")
        return sum(self.configs.get(name) == "true" for name in names)

    @property
    def remote_id(self) -> str:
        """The topic's id if its own config says that it may have segments, else empty.

        A tombstone always has the config if the topic may have segments: see `stepwise.delete`.
        """
        return self.id if REMOTE in self.configs else ""

    @property
    def is_unfinished(self) -> bool:
        """True while a change of the topic is in progress."""
        return self.state != LIVE or self.planned > self.partitions


class Topic(msgspec.Struct, frozen=True):
    """A topic as a broker uses it. `raw` is its definition exactly as stored in Redis."""

    name: str
    id: str
    uuid: uuid.UUID
    partitions: int
    configs: dict[str, str]
    policy: TopicPolicy
    raw: bytes
    keys: Keys

    def partition(self, number: int) -> Partition:
        """Return one of the topic's partitions."""
        return self.keys.partition(self.name, number, self.id)

    @property
    def is_batch(self) -> bool:
        """True if an entry holds a batch (or a 0.7 message set), False if it holds one record."""
        return self.policy.storage_format == "batch" or self.is_bytes

    @property
    def is_bytes(self) -> bool:
        """True if offsets are byte positions: an entry holds 0.7 messages or a batch."""
        return self.policy.offset_mode == "bytes"

    def definition(self, **changes: Any) -> Definition:
        """Return the stored definition with these fields changed."""
        return msgspec.structs.replace(decode_definition(self.raw), **changes)


def encode_definition(definition: Definition) -> bytes:
    """Encode the definition as Redis stores it."""
    return msgspec.json.encode(definition, order="deterministic")


def decode_definition(raw: bytes) -> Definition:
    """Decode a definition that Redis stores."""
    return msgspec.json.decode(raw, type=Definition)


def read_topic(keys: Keys, name: str, raw: bytes, configs: TopicConfigs) -> Topic | None:
    """Build a topic from its stored definition.

    None if it is being created or deleted, or if the bytes are invalid, which is logged: another
    client must have written them.
    """
    try:
        definition = decode_definition(raw)
        if definition.state != LIVE:
            return None
        return Topic(
            name,
            definition.id,
            uuid.UUID(hex=definition.id),
            definition.partitions,
            definition.configs,
            configs.policy(name, definition.configs),
            raw,
            keys,
        )
    except (ConfigError, ValueError, RecursionError) as error:
        log.warning("invalid topic definition", topic=name, why=str(error))
        return None


class TopicTable:
    """Cache of the topics, current within the limits of the module's rules."""

    def __init__(self, store: AsyncCalls, keys: Keys, configs: TopicConfigs) -> None:
        self._store = store
        self._keys = keys
        self._configs = configs
        self._rows: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._version = b""
        self._fresh_until = 0.0
        self._drops = 0
        self._reading: asyncio.Task[None] | None = None
        self.strictest: Durability | None = None
        """What includes all that acks=-1 waits for on any topic."""
        self._views: dict[str, Topic] = {}
        self._views_by_id: dict[uuid.UUID, Topic] = {}

    def add_view(self, topic: Topic) -> None:
        """Add a topic that can be read and is not stored.

        It is found by its id, and by its name with `get_readable`. It is in no list of topics, and
        a stored topic of its name hides it.
        """
        self._views[topic.name] = topic
        self._views_by_id[topic.uuid] = topic

    def is_view(self, topic: Topic) -> bool:
        """Return whether the topic was added as a view."""
        return topic.uuid in self._views_by_id

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def cached_version(self) -> bytes:
        """Version of the table when it was last read."""
        return self._version

    def peek(self, name: str) -> Topic | None:
        """Return the topic if the table is fresh and has it; None means unknown: call `get`."""
        return self._rows.get(name) if monotonic() < self._fresh_until else None

    def peek_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with that id if the table is fresh and has it; None means unknown."""
        if monotonic() < self._fresh_until and (found := self._by_id.get(topic_id)) is not None:
            return found
        return self._views_by_id.get(topic_id)

    def last_known(self, name: str | None, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic as last read, however old: by name if one is given, else by id."""
        return self._rows.get(name) if name else self._by_id.get(topic_id)

    def find_colliding(self, name: str) -> Topic | None:
        """Return a cached topic whose name collides with this one."""
        if "." not in name and "_" not in name:
            return None
        return next((row for row in self if collide(row.name, name)), None)

    def is_current(self, topic: Topic) -> bool:
        """Return whether the table is fresh and holds exactly this topic object."""
        return monotonic() < self._fresh_until and self._rows.get(topic.name) is topic

    def invalidate(self) -> None:
        """Mark the cached table, and a read in progress, as outdated."""
        self._fresh_until = 0.0
        self._drops += 1

    async def get(self, name: str) -> Topic | None:
        """Return the topic, or None if Redis has none of that name."""
        found = self.peek(name)
        if found is None:
            await self.refresh()
            found = self._rows.get(name)
        return found

    async def get_readable(self, name: str) -> Topic | None:
        """Return the topic of that name or, if Redis has none, the view."""
        return await self.get(name) or self._views.get(name)

    async def get_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with that id, or None."""
        found = self.peek_id(topic_id)
        if found is None:
            await self.refresh()
            found = self._by_id.get(topic_id)
        return found

    async def all(self) -> list[Topic]:
        """Return every topic, sorted by name."""
        if monotonic() >= self._fresh_until:
            await self.refresh()
        return sorted(self._rows.values(), key=lambda topic: topic.name)

    async def count(self) -> int:
        """Return the number of topics."""
        if monotonic() >= self._fresh_until:
            await self.refresh()
        return len(self._rows)

    async def find_unfinished(self) -> dict[str, bytes]:
        """Return the definitions with a change in progress, by topic name."""
        flat = await self._store.command("HGETALL", self._keys.topics())
        found = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            with suppress(msgspec.MsgspecError):
                if field != VERSION_FIELD.encode() and decode_definition(raw).is_unfinished:
                    found[field.decode()] = raw
        return found

    async def version(self) -> int:
        """Return the table's version in Redis, which grows with each change."""
        return int(await self._store.command("HGET", self._keys.topics(), VERSION_FIELD) or 0)

    def through(self, store: AsyncCalls) -> "TopicTable":
        """Return another table of the same topics, which is read through this store."""
        return TopicTable(store, self._keys, self._configs)

    def use_configs(self, configs: TopicConfigs) -> None:
        """Resolve topics against these defaults from now on (a broker setting changed)."""
        self._configs = configs
        self._rows, self._by_id, self._version = {}, {}, b""
        self.invalidate()

    async def refresh(self) -> None:
        """Read the table as Redis has it after this call began.

        Concurrent callers share one read.
        """
        reading = self._reading
        if reading is not None:
            # That read may have begun before the change the caller knows of: one more read follows.
            await asyncio.wait([reading])
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        reading = self._reading
        try:
            await asyncio.shield(reading)
        finally:
            if self._reading is reading and reading.done():
                self._reading = None

    async def _read(self) -> None:
        began, drops = monotonic(), self._drops
        key = self._keys.topics()
        version = await self._store.command("HGET", key, VERSION_FIELD) or b"0"
        if version != self._version:
            flat = await self._store.command("HGETALL", key)
            self._take(flat)
        if drops == self._drops:
            self._fresh_until = began + FRESH_S

    def _take(self, flat: list[bytes]) -> None:
        rows: dict[str, Topic] = {}
        version = b"0"
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            name = field.decode()
            if name == VERSION_FIELD:
                version = raw
                continue
            old = self._rows.get(name)
            topic = (
                old if old and old.raw == raw else read_topic(self._keys, name, raw, self._configs)
            )
            if topic is not None:
                rows[name] = topic
        self._rows = rows
        self._by_id = {topic.uuid: topic for topic in rows.values()}
        self.strictest = strictest(topic.policy.acks_all for topic in rows.values())
        self._version = version


class PlainTable(TopicTable):
    """A table that reads without a task, for a process without concurrent readers."""

    async def refresh(self) -> None:
        """Read the table."""
        await self._read()


def collide(one: str, other: str) -> bool:
    """Return whether two names differ, but only in dots and underscores.

    Kafka's metric names do not distinguish the two characters, so Kafka never has both topics.
    """
    return (
        len(one) == len(other) and one != other and one.replace(".", "_") == other.replace(".", "_")
    )
