"""Changing the table of topics: what to call, decided before anything is sent.

Used by the handlers and the command line alike; the scripts have the last word.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from korvet.errors import ErrorCode
from korvet.keys import Keys, decode_group
from korvet.scripts import topic as scripts
from korvet.scripts.call import Call
from korvet.scripts.topic import TopicReply
from korvet.topic_config import TopicConfigs, validate_all
from korvet.topics import VERSION_FIELD, Definition, Topic, encode_definition, refusal_of

MAX_PARTITIONS = 10_000


class Refused(Exception):
    """A change is not possible: Kafka's error code and a sentence for a person."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class Store(Protocol):
    """What a change needs of a store."""

    async def run(self, call: Call[Any]) -> Any: ...
    async def command(self, *command: Any) -> Any: ...


def plan_topic(
    name: str,
    partitions: int,
    configs: Mapping[str, str | None],
    defaults: TopicConfigs,
    *,
    internal: bool = False,
) -> Definition:
    """The definition of a new topic, or Refused. Nothing is written yet."""
    reason = refusal_of(name, internal=internal)
    if reason:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if not 0 < partitions <= MAX_PARTITIONS:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic has from 1 to {MAX_PARTITIONS} partitions, not {partitions}.",
        )
    reason = validate_all(configs)
    if reason:
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    explicit = {name: value for name, value in configs.items() if value is not None}
    return Definition(uuid.uuid4().hex, partitions, defaults.pinned(name, explicit))


def creation(keys: Keys, name: str, definition: Definition) -> Call[TopicReply]:
    """The call that makes the topic exist."""
    configs = definition.configs
    return scripts.create(
        keys,
        definition.partitions,
        topic=name,
        definition=encode_definition(definition),
        topic_id=definition.id,
        format="batch" if configs["offset.mode"] == "bytes" else configs["storage.format"],
        mode=configs["offset.mode"],
        bits=int(configs["offset.bits"]),
    )


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


async def grow_topic(
    store: Store, keys: Keys, topic: Topic, partitions: int, *, validate_only: bool = False
) -> bool:
    """The topic has so many partitions. False: it changed meanwhile, read it and decide again."""
    if partitions > MAX_PARTITIONS:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic has from 1 to {MAX_PARTITIONS} partitions, not {partitions}.",
        )
    if validate_only:
        return True
    configs = topic.configs
    reply = await store.run(
        scripts.grow(
            keys,
            range(topic.partitions, partitions),
            topic=topic.name,
            expected=topic.raw,
            definition=encode_definition(topic.definition(partitions=partitions)),
            topic_id=topic.id,
            format=configs["storage.format"],
            mode=configs["offset.mode"],
            bits=int(configs["offset.bits"]),
        )
    )
    return bool(reply.error == ErrorCode.NONE)


async def delete_topic(store: Store, keys: Keys, topic: Topic) -> ErrorCode:
    """The topic is gone with all that hangs on it. UNKNOWN_TOPIC_OR_PARTITION: it was already."""
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
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "The topic changed meanwhile: try again.")
