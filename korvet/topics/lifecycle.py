"""Create, grow and delete topics: check names, choose the script calls before any is sent.

Used by the handlers and the command line. The scripts check every condition again.
"""

import string
import uuid
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress

from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.base.synced_files import IDENT
from korvet.config.durability import Durability
from korvet.config.topic_policy import TopicConfigs, validate_all
from korvet.config.values import STORED_URL
from korvet.scripts.call import Signal
from korvet.scripts.keys import Keys, Partition
from korvet.store.calls import AsyncCalls
from korvet.store.errors import CommandFailed, StoreError, StoreUnavailable
from korvet.topics import stepwise
from korvet.topics.table import Definition, Topic, encode_definition

MAX_PARTITIONS = 10_000
AT_ONCE, GROUPS_AT_ONCE, COMMITS_AT_ONCE = 250, 500, 25_000
"""Numbers of partitions, of groups whose offsets are deleted, and of these offsets, above which a
change runs in steps, as on a cluster. One script call would block Redis for longer than 50 ms.
"""
_CHANGED = "The topic changed meanwhile: try again."
MAX_NAME = 249
KAFKAS_INTERNAL = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Names that tools look for in any cluster: their absence is no mistake of an application."""
_LEGAL = frozenset(string.ascii_letters + string.digits + "._-")


def check_topic_name(name: str, *, reserved: bool = False) -> str | None:
    """Return why a topic cannot have this name, or None if it can.

    `reserved`: the name may begin with `__`.
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
            "Names that begin with '__' are reserved for internal topics unless the broker setting "
            "reserved.topic.names.enable is true."
        )
    return None


class Refused(Exception):
    """A change was refused: Kafka's error code and a sentence for the user."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


def invalid_request(reason: str) -> Refused:
    """Return the refusal of a request that is invalid, whatever is stored."""
    return Refused(ErrorCode.INVALID_REQUEST, reason)


def unknown_topic(name: str) -> Refused:
    """Return the refusal of a request for a topic that does not exist."""
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def plan_topic(
    name: str, partitions: int, configs: Mapping[str, str | None], defaults: TopicConfigs
) -> Definition:
    """Return the definition of a new topic without writing it. Raises Refused."""
    reason = check_topic_name(name, reserved=defaults.reserved_names)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if not 0 < partitions <= MAX_PARTITIONS:
        raise _wrong_count(partitions)
    reason = validate_all(configs)
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    explicit = {name: value for name, value in configs.items() if value is not None}
    reason = defaults.find_conflict(name, explicit)
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    return Definition(uuid.uuid4().hex, partitions, defaults.pinned(name, explicit))


async def syncing_of(store: AsyncCalls) -> tuple[str, bool]:
    """Return appendfsync, empty if it cannot be read, and whether the server is embedded."""
    found: dict[str, str] = {}
    for name in ("appendfsync", "syslog-ident"):
        with suppress(CommandFailed):
            row = await store.command("CONFIG", "GET", name)
            found[name] = bytes(row[1]).decode() if row else ""
    return found.get("appendfsync", ""), found.get("syslog-ident") == IDENT


async def refuse_not_durable(store: AsyncCalls, configs: Mapping[str, str]) -> None:
    """Raise Refused if a server of Redis cannot keep the `durability` that the configs name.

    Without the right to read settings (CONFIG GET) appendfsync=no is not noticed here: the
    appends then fail.
    """
    wanted = Durability.parse(configs.get("durability", "memory"))
    if not wanted.replicas and not wanted.fsync:
        return
    syncing = await syncing_of(store)
    for address, info in (await store.info("default")).values():
        reason = wanted.why_not_kept(info, *syncing)
        if reason:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"Redis{f' at {address}' if address else ''} cannot keep durability={wanted}: "
                f"{reason}.",
            )


def refuse_above(max_topics: int, topics: int) -> None:
    """Raise Refused if there are `max_topics` topics, unless that is 0."""
    if 0 < max_topics <= topics:
        raise Refused(
            ErrorCode.POLICY_VIOLATION, f"There are max.topics={max_topics} topics already."
        )


def refuse_colliding(other: Topic | None, name: str) -> None:
    """Raise Refused if the name differs from another topic's only in dots and underscores."""
    if other is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other.name}",
        )


def _wrong_count(partitions: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_PARTITIONS if partitions < 1 else ErrorCode.POLICY_VIOLATION,
        f"A topic has from 1 to {MAX_PARTITIONS} partitions, not {partitions}.",
    )


async def create_topic(
    store: AsyncCalls, keys: Keys, name: str, definition: Definition
) -> ErrorCode:
    """Create the topic. Returns TOPIC_ALREADY_EXISTS if the name is taken. Raises Refused."""
    await refuse_not_durable(store, definition.configs)
    await _refuse_occupied(store, keys, name, definition, range(definition.partitions))
    if store.is_cluster or definition.partitions > AT_ONCE:
        return await stepwise.create(store, keys, name, definition)
    reply = await store.run(
        keys.topic_create(
            keys.logs(name, range(definition.partitions)),
            topic=name,
            definition=encode_definition(definition),
            topic_id=definition.id,
            **definition.shape,
            epoch=await stepwise.leader_epoch(store, keys),
        )
    )
    return ErrorCode(reply.error)


async def _refuse_occupied(
    store: AsyncCalls, keys: Keys, name: str, definition: Definition, numbers: range
) -> None:
    """Raise Refused if another program's keys are where the partitions' records or state will be.

    A stream is no obstacle in layout `record` with ids of time: its entries are the first records.
    """
    takes_entries = (definition.shape["format"], definition.shape["mode"]) == ("record", "time")
    for some in chunks(numbers, 1 if store.is_cluster else AT_ONCE):
        places = [keys.partition(name, number) for number in some]
        both = [key for partition in places for key in (partition.stream, partition.log)]
        found = (
            await _obstacle(store, places, takes_entries)
            if await store.command("EXISTS", *both)
            else ""
        )
        if found and (numbers.start or not await store.command("HEXISTS", keys.topics(), name)):
            raise invalid_request(f"Redis has {found}")


async def _obstacle(store: AsyncCalls, places: Sequence[Partition], takes_entries: bool) -> str:
    """Return which key of another program is where a partition will be; empty without one."""
    for partition in places:
        lengths = []
        for command, key in (("XLEN", partition.stream), ("HLEN", partition.log)):
            try:
                lengths.append(await store.command(command, key))
            except CommandFailed:
                return f"a key {key} of another type: delete or rename it."
        length, state = lengths
        if length and not state and not takes_entries:
            return (
                f"a stream {partition.stream} with {length} entries: delete or rename it, or create"
                " the topic with storage.format=record and offset.mode=time, which makes them "
                "its first records."
            )
    return ""


def check_assignment(brokers: Sequence[int], live: Collection[int]) -> None:
    """Raise Refused unless the replica list names live brokers, each once."""
    problem = None
    if not brokers:
        problem = "The assignment includes an empty replica list."
    for broker in brokers:
        if brokers.count(broker) > 1:
            problem = f"The assignment includes broker {broker} more than once."
        elif broker not in live:
            problem = f"The assignment includes broker {broker}, which is not live."
    if problem:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


async def add_partitions(
    store: AsyncCalls, keys: Keys, topic: Topic, partitions: int, *, validate_only: bool = False
) -> bool:
    """Grow the topic to that many partitions.

    Returns False if the topic changed meanwhile: the caller reads it and decides again.
    """
    if partitions > MAX_PARTITIONS:
        raise _wrong_count(partitions)
    if validate_only:
        return True
    added = range(topic.partitions, partitions)
    await _refuse_occupied(store, keys, topic.name, topic.definition(), added)
    if store.is_cluster or partitions - topic.partitions > AT_ONCE:
        return await stepwise.grow(store, keys, topic, partitions) == ErrorCode.NONE
    definition = topic.definition(partitions=partitions)
    reply = await store.run(
        keys.topic_add_partitions(
            keys.logs(topic.name, added),
            topic=topic.name,
            expected=topic.raw,
            definition=encode_definition(definition),
            topic_id=topic.id,
            **definition.shape,
            epoch=await stepwise.leader_epoch(store, keys),
        )
    )
    return bool(reply.error == ErrorCode.NONE)


async def delete_topic(store: AsyncCalls, keys: Keys, topic: Topic) -> ErrorCode:
    """Delete the topic, its logs and its committed offsets.

    Returns UNKNOWN_TOPIC_OR_PARTITION if it was already deleted.
    """
    remote_id = await _find_remote_id(store, keys, topic)
    groups = 0 if store.is_cluster else int(await store.command("HLEN", keys.groups()))
    is_large = topic.partitions > AT_ONCE or groups > GROUPS_AT_ONCE
    if store.is_cluster or is_large or topic.partitions * groups > COMMITS_AT_ONCE:
        error = await stepwise.delete(store, keys, topic, has_segments=bool(remote_id))
        if error == Signal.TOPIC_CHANGED:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, _CHANGED)
        return ErrorCode(error)
    while True:
        version, registered = await stepwise.registered_groups(store, keys)
        reply = await store.run(
            keys.topic_delete(
                *keys.topic_parts(topic.name, topic.partitions, registered),
                topic=topic.name,
                expected=topic.raw,
                registry_version=version,
                remote_id=remote_id,
                partitions=topic.partitions,
            )
        )
        if reply.error != Signal.TOPIC_CHANGED:
            return ErrorCode(reply.error)
        raw = await store.command("HGET", keys.topics(), topic.name)
        if raw is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if raw != topic.raw:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, _CHANGED)


async def _find_remote_id(store: AsyncCalls, keys: Keys, topic: Topic) -> str:
    """Return the topic's id if it may have segments in a remote store, else empty."""
    if topic.policy.remote_storage or topic.definition().remote_id:
        return topic.id
    if await store.command("HGET", keys.cluster(), STORED_URL) is None:
        return ""
    # It may have had the brokers' default: each copy begins with this lease.
    for number in range(topic.partitions):
        if await store.command("HEXISTS", topic.partition(number).log, "copy_lease"):
            return topic.id
    return ""


async def outcome(work: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """Await the work; return NONE, or the error and message of what refused it.

    Redis being unavailable is a retriable error.
    """
    try:
        await work
    except Refused as refused:
        return refused.error, refused.reason
    except StoreError as error:
        return store_failure(error), str(error)
    return ErrorCode.NONE, None


def store_failure(error: StoreError) -> ErrorCode:
    """Return the error code for a failure of Redis."""
    if isinstance(error, StoreUnavailable):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR
