"""Changing the table of topics: what to call, decided before anything is sent.

Used by the handlers and the command line alike; the scripts have the last word.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from korvet.config.topic_policy import TopicConfigs, validate_all
from korvet.errors import ErrorCode
from korvet.keys import Keys, decode_group
from korvet.scripts import topic as scripts
from korvet.topics import stepwise
from korvet.topics.table import (
    VERSION_FIELD,
    Definition,
    Topic,
    check_topic_name,
    encode_definition,
)

MAX_PARTITIONS = 10_000
AT_ONCE, GROUPS_AT_ONCE = 1_000, 5_000
"""What is more than so many partitions, or groups to forget a topic, is done in steps, as on a
cluster: in one script call it is a third of a second or more in which Redis does nothing else."""
_CHANGED = "The topic changed meanwhile: try again."


class Refused(Exception):
    """A change is not possible: Kafka's error code and a sentence for a person."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class Store(stepwise.Store, Protocol):
    """What a change needs of a store."""

    @property
    def is_cluster(self) -> bool: ...


def plan_topic(
    name: str,
    partitions: int,
    configs: Mapping[str, str | None],
    defaults: TopicConfigs,
) -> Definition:
    """The definition of a new topic, or Refused. Nothing is written yet."""
    reason = check_topic_name(name, reserved=defaults.reserved_names)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if not 0 < partitions <= MAX_PARTITIONS:
        raise _wrong_count(partitions)
    reason = validate_all(configs)
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    explicit = {name: value for name, value in configs.items() if value is not None}
    return Definition(uuid.uuid4().hex, partitions, defaults.pinned(name, explicit))


def refuse_colliding(other: Topic | None, name: str) -> None:
    """Refused where there is another topic that is called so but for dots and underscores."""
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


async def create_topic(store: Store, keys: Keys, name: str, definition: Definition) -> ErrorCode:
    """The topic exists. TOPIC_ALREADY_EXISTS: there was one of that name."""
    if store.is_cluster or definition.partitions > AT_ONCE:
        return await stepwise.create(store, keys, name, definition)
    reply = await store.run(
        scripts.create(
            keys,
            definition.partitions,
            topic=name,
            definition=encode_definition(definition),
            topic_id=definition.id,
            **definition.shape,
        )
    )
    return ErrorCode(reply.error)


def check_assignment(brokers: Sequence[int], live: Collection[int]) -> None:
    """Refused unless a partition could lie with these brokers."""
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
    store: Store, keys: Keys, topic: Topic, partitions: int, *, validate_only: bool = False
) -> bool:
    """The topic has so many partitions. False: it changed meanwhile, read it and decide again."""
    if partitions > MAX_PARTITIONS:
        raise _wrong_count(partitions)
    if validate_only:
        return True
    if store.is_cluster or partitions - topic.partitions > AT_ONCE:
        return await stepwise.grow(store, keys, topic, partitions) == ErrorCode.NONE
    definition = topic.definition(partitions=partitions)
    reply = await store.run(
        scripts.add_partitions(
            keys,
            range(topic.partitions, partitions),
            topic=topic.name,
            expected=topic.raw,
            definition=encode_definition(definition),
            topic_id=topic.id,
            **definition.shape,
        )
    )
    return bool(reply.error == ErrorCode.NONE)


async def delete_topic(store: Store, keys: Keys, topic: Topic) -> ErrorCode:
    """The topic is gone with all that hangs on it. UNKNOWN_TOPIC_OR_PARTITION: it was already."""
    groups = 0 if store.is_cluster else int(await store.command("HLEN", keys.groups()))
    if store.is_cluster or topic.partitions > AT_ONCE or groups > GROUPS_AT_ONCE:
        error = await stepwise.delete(store, keys, topic)
        if error == ErrorCode.CONCURRENT_TRANSACTIONS:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, _CHANGED)
        return error
    while True:
        flat = await store.command("HGETALL", keys.groups())
        registry = dict(zip(flat[::2], flat[1::2], strict=True))
        version = registry.pop(VERSION_FIELD.encode(), b"")
        reply = await store.run(
            scripts.delete(
                keys,
                [decode_group(group.decode()) for group in registry],
                topic=topic.name,
                expected=topic.raw,
                registry_version=version,
                partitions=topic.partitions,
            )
        )
        if reply.error != ErrorCode.CONCURRENT_TRANSACTIONS:
            return ErrorCode(reply.error)
        raw = await store.command("HGET", keys.topics(), topic.name)
        if raw is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if raw != topic.raw:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, _CHANGED)
