"""Consume as a member of a group over HTTP, in the shapes of Confluent's REST proxy (v2)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from urllib.parse import quote
from uuid import uuid4

import msgspec

from korvet.console.consumers import IDLE_S, MAX_INSTANCES, Instance
from korvet.console.pages.topic import find_topic
from korvet.console.record_json import MAX_READ_BYTES, READ_BYTES, ReadRecord, row_of
from korvet.console.visit import CLIENT_ID, PageError, Visit, bytes_of
from korvet.library.consuming import AsyncConsumer
from korvet.library.following import Reading
from korvet.log.position import EARLIEST, LATEST
from korvet.security.acl import Operation, ResourceType
from korvet.security.quotas import CONSUMER_BYTES

MAX_NAME = 200
TIMEOUT_MS, MAX_TIMEOUT_MS = 1000, 20_000
"""How long a read waits for the first record, by default and at most."""
NO_INSTANCE, EXISTS, BAD_CONFIG = 40403, 40902, 42204


class NewConsumer(msgspec.Struct, frozen=True):
    """An instance of a consumer to create."""

    name: str = ""
    format: str = "binary"
    auto_offset_reset: str = msgspec.field(default=LATEST, name="auto.offset.reset")
    auto_commit_enable: bool = msgspec.field(default=True, name="auto.commit.enable")


class CreatedConsumer(msgspec.Struct, frozen=True):
    """The id of an instance, and the URL of its calls."""

    instance_id: str
    base_uri: str


class Subscription(msgspec.Struct, frozen=True):
    """The topics that an instance reads."""

    topics: list[str]


class PartitionOf(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    topic: str
    partition: int


class Assignment(msgspec.Struct, frozen=True):
    """The partitions that an instance reads."""

    partitions: list[PartitionOf]


class OffsetOf(PartitionOf, frozen=True):
    """The offset of the last record of a partition that is done."""

    offset: int


class DoneOffsets(msgspec.Struct, frozen=True):
    """The last records that are done: the group continues after them."""

    offsets: list[OffsetOf]


async def create(visit: Visit, body: NewConsumer) -> CreatedConsumer:
    """Create an instance, which joins the group when it has subscribed."""
    group, instances = visit.path["group"], visit.console.consumers.instances
    visit.require(Operation.READ, ResourceType.GROUP, group)
    name = body.name or f"rest-consumer-{uuid4()}"
    if body.format not in ("json", "binary"):
        raise PageError(422, f"format must be json or binary, not {body.format!r}.", BAD_CONFIG)
    if body.auto_offset_reset not in (EARLIEST, LATEST):
        sentence = "auto.offset.reset must be earliest or latest."
        raise PageError(422, sentence, BAD_CONFIG)
    if not group or len(group) + len(name) > MAX_NAME or "/" in name:
        sentence = f"Group and name have at most {MAX_NAME} characters, and a name no slash."
        raise PageError(422, sentence, BAD_CONFIG)
    if (group, name) in instances:
        raise PageError(409, f"Group {group!r} has an instance {name!r}.", EXISTS)
    if len(instances) >= MAX_INSTANCES:
        raise PageError(503, f"{MAX_INSTANCES} instances are open: delete one, or try again later.")
    instances[group, name] = Instance(
        visit.user,
        binary=body.format == "binary",
        commits=body.auto_commit_enable,
        reset=body.auto_offset_reset,
    )
    path = f"/api/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
    return CreatedConsumer(name, f"{str(visit.request.base_url).rstrip('/')}{path}")


@asynccontextmanager
async def _used(visit: Visit) -> AsyncIterator[Instance]:
    """Yield the instance of the path, which serves one call at a time. Raises PageError."""
    group, name = visit.path["group"], visit.path["instance"]
    visit.require(Operation.READ, ResourceType.GROUP, group)
    found = visit.console.consumers.instances.get((group, name))
    if found is None or found.user != visit.user:
        raise PageError(404, f"Consumer instance {name!r} not found: create it.", NO_INSTANCE)
    found.used_at = monotonic()
    async with found.lock:
        yield found
    found.used_at = monotonic()


async def delete(visit: Visit, _: None) -> None:
    """End an instance, which leaves its group."""
    async with _used(visit) as instance:
        visit.console.consumers.instances.pop((visit.path["group"], visit.path["instance"]), None)
        await instance.commit_read()
        await instance.leave()


async def subscribe(visit: Visit, body: Subscription) -> None:
    """Join the group with these topics."""
    async with _used(visit) as instance:
        if not body.topics:
            raise PageError(422, "The request has no topics.", BAD_CONFIG)
        for name in body.topics:
            await find_topic(visit, Operation.READ, name)
        await instance.leave()
        instance.topics = body.topics
        reading = Reading(instance.reset, committed=True, idle_s=0)
        group = visit.path["group"]
        rebalance_ms = int(IDLE_S * 1000)
        consumer = AsyncConsumer(visit.log, group, body.topics, reading, rebalance_ms)
        consumer.client = CLIENT_ID, f"/{visit.host}"
        instance.consumer = consumer
        await consumer.heartbeat()


async def unsubscribe(visit: Visit, _: None) -> None:
    """Leave the group."""
    async with _used(visit) as instance:
        await instance.commit_read()
        await instance.leave()


async def subscription(visit: Visit, _: None) -> Subscription:
    """Return the topics."""
    async with _used(visit) as instance:
        return Subscription(list(instance.topics))


async def assignments(visit: Visit, _: None) -> Assignment:
    """Return the partitions."""
    async with _used(visit) as instance:
        found = [] if instance.consumer is None else instance.consumer.assignment
        return Assignment([PartitionOf(*each) for each in found])


async def records(visit: Visit, _: None) -> list[ReadRecord]:
    """Return the next records of the group."""
    timeout_ms = visit.number("timeout", TIMEOUT_MS, MAX_TIMEOUT_MS)
    max_bytes = visit.number("max_bytes", READ_BYTES, MAX_READ_BYTES)
    await visit.charge(CONSUMER_BYTES, 0)
    async with _used(visit) as instance:
        if instance.consumer is None:
            raise PageError(409, "The instance has not subscribed to topics.", 40901)
        for name in instance.topics:
            visit.require(Operation.READ, ResourceType.TOPIC, name)
        try:
            found = await instance.take(timeout_ms / 1000, max_bytes)
            await visit.charge(CONSUMER_BYTES, sum(map(bytes_of, found)))
            rows = [row_of(record, binary=instance.binary) for record in found]
        except BaseException:
            await instance.consumer.rewind()
            raise
        if await visit.request.is_disconnected():
            await instance.consumer.rewind()
        else:
            instance.is_delivered = True
        return rows


async def commit(visit: Visit, body: DoneOffsets | None) -> None:
    """Commit what was returned, or the offsets of the body."""
    async with _used(visit) as instance:
        if instance.consumer is None:
            raise PageError(409, "The instance has not subscribed to topics.", 40901)
        offsets = None
        if body is None and not instance.is_delivered:
            raise PageError(409, "The last read failed: read the records again.", 40901)
        if body is not None:
            offsets = {(each.topic, each.partition): each.offset + 1 for each in body.offsets}
            if not offsets.keys() <= set(instance.consumer.assignment):
                raise PageError(409, "The instance does not read these partitions.", 40901)
        await instance.consumer.commit(offsets)
