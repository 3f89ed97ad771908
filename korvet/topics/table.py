"""The table of topics: read from Redis, kept by each broker for as long as it is the newest.

Rules
- Redis decides: every change is a script on `korvet:topics`, and gives it a `:version` it never
  had, even if it lost the last ones.
- A cached table is used without asking for at most `FRESH_S`; a ring on the topics channel ends
  that at once. A name that is not in it is looked up again before anybody hears that it is unknown.
- A definition is JSON that scripts treat as opaque bytes and compare whole: whoever changes a topic
  names the bytes it read, and reads again when they are no longer the ones.
"""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypedDict

import msgspec

from korvet import logfmt
from korvet.config.setting import ConfigError
from korvet.config.topic_policy import TopicConfigs, TopicPolicy
from korvet.keys import Keys

FRESH_S = 1.0
VERSION_FIELD = ":version"

LIVE, CREATING, DELETING = "live", "creating", "deleting"

MAX_NAME = 249
LOG_DIRECTORY = "redis"
"""The one place where partitions lie, as Kafka's tools are told it."""
log = logfmt.get("topics")
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Shape(TypedDict):
    """How a topic's logs are laid out: what scripts ask for when they open one."""

    format: str
    mode: str
    bits: int


class Definition(msgspec.Struct, frozen=True):
    """A topic as Redis has it. `configs` holds what was asked for and what is fixed at creation.

    `state` and `planned` tell of changes under way on a cluster: see `topic_steps`.
    """

    id: str
    partitions: int
    configs: dict[str, str]
    state: str = LIVE
    planned: int = 0

    @property
    def shape(self) -> Shape:
        """Fixed at creation. Byte positions exist only over whole batches."""
        mode = self.configs["offset.mode"]
        form = "batch" if mode == "bytes" else self.configs["storage.format"]
        return {"format": form, "mode": mode, "bits": int(self.configs["offset.bits"])}

    @property
    def is_unfinished(self) -> bool:
        """Whether somebody began a change of the topic and has not finished it."""
        return self.state != LIVE or self.planned > self.partitions


class Topic(msgspec.Struct, frozen=True):
    """A topic as a broker uses it. `raw` is the definition's very bytes in Redis."""

    name: str
    id: str
    uuid: uuid.UUID
    partitions: int
    configs: dict[str, str]
    policy: TopicPolicy
    raw: bytes

    @property
    def is_batch(self) -> bool:
        """Whether an entry holds a producer batch rather than a record."""
        return self.policy.storage_format == "batch" or self.is_bytes

    @property
    def is_bytes(self) -> bool:
        """Whether an offset is a byte position, and an entry some 0.7 messages or a batch."""
        return self.policy.offset_mode == "bytes"

    def definition(self, **changes: Any) -> Definition:
        """What Redis would have if these fields were others."""
        return msgspec.structs.replace(decode_definition(self.raw), **changes)


class Reader(Protocol):
    """What the table needs of a store."""

    async def command(self, *command: Any) -> Any: ...


def check_topic_name(name: str, *, reserved: bool = False) -> str | None:
    """None for a name a topic may have, else the sentence that says why not (seed 002).

    With `reserved` a name may begin with `__`.
    """
    if not name:
        return "A topic name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be called {name!r}."
    if len(name) > MAX_NAME:
        return f"A topic name has at most {MAX_NAME} characters, not {len(name)}."
    if not _LEGAL.issuperset(name):
        return f"A topic name holds letters, digits, '.', '_' and '-' only, not {name!r}."
    if name.startswith("__") and not reserved:
        return (
            "Names that begin with '__' are kept for internal topics, unless the broker setting "
            "reserved.topic.names.enable is true."
        )
    return None


def _is_alike(other: str, name: str, same: str) -> bool:
    return len(other) == len(name) and other != name and other.replace(".", "_") == same


def encode_definition(definition: Definition) -> bytes:
    """The definition as the bytes Redis keeps."""
    return msgspec.json.encode(definition, order="deterministic")


def decode_definition(raw: bytes) -> Definition:
    """The definition that Redis keeps as these bytes."""
    return msgspec.json.decode(raw, type=Definition)


def read_topic(name: str, raw: bytes, configs: TopicConfigs) -> Topic | None:
    """The topic these bytes define; None while it is being made or deleted, or if they make no
    sense here: then somebody else put them there, and the log says so."""
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
        )
    except (msgspec.MsgspecError, ConfigError, ValueError) as error:
        log.warning("a topic's definition makes no sense here", topic=name, why=str(error))
        return None


class TopicTable:
    """The topics, as new as the rules above promise."""

    def __init__(self, store: Reader, keys: Keys, configs: TopicConfigs) -> None:
        self._store = store
        self._keys = keys
        self._configs = configs
        self._rows: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._version = b""
        self._fresh_until = 0.0
        self._drops = 0
        self._reading: asyncio.Task[None] | None = None

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def cached_version(self) -> bytes:
        """The version of the table in Redis when it was last read."""
        return self._version

    def peek(self, name: str) -> Topic | None:
        """The topic, if the table is fresh and has it. None says nothing: ask `get`."""
        return self._rows.get(name) if monotonic() < self._fresh_until else None

    def peek_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The same by id."""
        return self._by_id.get(topic_id) if monotonic() < self._fresh_until else None

    def last_known(self, name: str | None, topic_id: uuid.UUID) -> Topic | None:
        """The topic as it was when the table was last read, however long ago: by name if it has
        one, else by id."""
        return self._rows.get(name) if name else self._by_id.get(topic_id)

    def find_colliding(self, name: str) -> Topic | None:
        """Another topic, when the table was last read, whose name has a dot where this one has an
        underscore: Kafka's metrics could not tell them apart, so it has never two of them."""
        if "." not in name and "_" not in name:
            return None
        same = name.replace(".", "_")
        rows = self._rows.values()
        return next((row for row in rows if _is_alike(row.name, name, same)), None)

    def is_current(self, topic: Topic) -> bool:
        """Whether the table is fresh and has this very definition."""
        return monotonic() < self._fresh_until and self._rows.get(topic.name) is topic

    def invalidate(self) -> None:
        """Nothing cached is believed any more, and nothing of a read that has begun."""
        self._fresh_until = 0.0
        self._drops += 1

    async def get(self, name: str) -> Topic | None:
        """The topic, or None when Redis has none of that name."""
        found = self.peek(name)
        if found is None:
            await self.refresh()
            found = self._rows.get(name)
        return found

    async def get_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with that id, or None."""
        found = self.peek_id(topic_id)
        if found is None:
            await self.refresh()
            found = self._by_id.get(topic_id)
        return found

    async def all(self) -> list[Topic]:
        """Every topic, by name."""
        if monotonic() >= self._fresh_until:
            await self.refresh()
        return sorted(self._rows.values(), key=lambda topic: topic.name)

    async def find_unfinished(self) -> dict[str, bytes]:
        """The definitions of topics somebody began to make, grow or delete and has not finished."""
        flat = await self._store.command("HGETALL", self._keys.topics())
        found = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            with suppress(msgspec.MsgspecError):
                if field != VERSION_FIELD.encode() and decode_definition(raw).is_unfinished:
                    found[field.decode()] = raw
        return found

    async def version(self) -> int:
        """A number that grows with each change of the table."""
        return int(await self._store.command("HGET", self._keys.topics(), VERSION_FIELD) or 0)

    def use_configs(self, configs: TopicConfigs) -> None:
        """From now on topics are resolved against these defaults (a broker setting changed)."""
        self._configs = configs
        self._rows, self._by_id, self._version = {}, {}, b""
        self.invalidate()

    async def refresh(self) -> None:
        """The table is as Redis had it after this call began. Callers share one read."""
        reading = self._reading
        if reading is not None:
            # That read may have begun before the change the caller knows of: one more follows.
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
            topic = old if old and old.raw == raw else read_topic(name, raw, self._configs)
            if topic is not None:
                rows[name] = topic
        self._rows = rows
        self._by_id = {topic.uuid: topic for topic in rows.values()}
        self._version = version
