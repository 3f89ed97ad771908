"""Check topics: offsets, entries, groups that hold records, and share groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from korvet.broker.ops.finding import Finding, times_as_offsets
from korvet.config.broker_settings import BROKER, DELIVERY_LIMIT
from korvet.config.dynamic import ALL_BROKERS, decode_configs, group_resource, select_valid
from korvet.config.group_settings import GROUP
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import STORED, Settings, with_stored
from korvet.groups.consumed import find_held
from korvet.groups.share_group import delivered_runs
from korvet.log import foreign_entries
from korvet.log.leader_epochs import parse_rows
from korvet.scripts.call import decode_group
from korvet.scripts.keys import Keys
from korvet.store.calls import AsyncCalls
from korvet.store.redis_py import InlineStore, run_inline
from korvet.store.sync_store import SyncStore
from korvet.topics.table import (
    VERSION_FIELD,
    Definition,
    decode_definition,
    encode_definition,
    read_topic,
)

MAX_RUNS = 100
"""Delivered runs that are checked of each partition of a share group."""
SHOWN = 3
"""Runs that are named of each partition."""


@dataclass
class Checked:
    """The Redis and the namespace that checks read."""

    store: SyncStore
    keys: Keys
    info: Mapping[str, str]
    """The server's INFO."""

    @cached_property
    def topics(self) -> Mapping[str, Definition]:
        """The topics with their stored definitions."""
        flat = self.store.command("HGETALL", self.keys.topics())
        return {
            name: decode_definition(raw)
            for name, raw in zip(map(bytes.decode, flat[::2]), flat[1::2], strict=True)
            if name != VERSION_FIELD
        }

    @cached_property
    def settings(self) -> Settings:
        """The settings that brokers stored, and those changed for all brokers."""
        settings = with_stored(
            Settings(), self.store.command("HMGET", self.keys.cluster(), *STORED)
        )
        changed = self.store.command("HGET", self.keys.configs(), ALL_BROKERS)
        if changed:
            valid = select_valid(decode_configs(ALL_BROKERS, changed), BROKER)
            settings = settings.with_dynamic(valid)
        return settings


def sizes(checked: Checked) -> dict[str, int]:
    """Return the bytes of each topic's records in Redis, by the counters of its logs."""
    found: dict[str, int] = {}
    for name in checked.topics:
        rows = _fields_of(checked, name, "bytes", "start_bytes")
        found[name] = sum(int(row[0] or 0) - int(row[1] or 0) for row in rows)
    return found


def _fields_of(checked: Checked, topic: str, *fields: str) -> list[Any]:
    """Return these fields of the log of each partition."""
    numbers = range(checked.topics[topic].partitions)
    logs = [checked.keys.partition(topic, number).log for number in numbers]
    return checked.store.commands([("HMGET", log, *fields) for log in logs])


def offsets(checked: Checked) -> Iterator[Finding]:
    """Say whether the lag that other tools show is a number of records."""
    topics = checked.topics
    count = sum(each.configs.get("offset.mode") == "time" for each in topics.values())
    if count:
        yield Finding("note", "offsets", times_as_offsets(f"{count} of {len(topics)} topics"))
    elif topics:
        yield Finding("ok", "offsets", "no topic has offsets that are times")


def unread(checked: Checked) -> Iterator[Finding]:
    """Yield the partitions with entries that no client reads.

    A `message.max.bytes` in a broker's file is not known here.
    """
    configs = TopicConfigs(Settings())
    places = {
        (name, definition.id, number): policy
        for name, definition in checked.topics.items()
        for policy in [configs.policy(name, definition.configs)]
        for number in range(definition.partitions)
    }
    store = cast(AsyncCalls, InlineStore(checked.store))
    refusing, others = run_inline(foreign_entries.find(store, checked.keys, places))
    yield from (Finding("bad", "entries", sentence) for sentence in refusing)
    yield from (Finding("note", "entries", sentence) for sentence in others)


def lost(checked: Checked) -> Iterator[Finding]:
    """Yield the partitions whose last records Redis has lost, while older ones are there."""
    for name in checked.topics:
        for number, (start, epochs) in enumerate(_fields_of(checked, name, "start", "epochs")):
            for row in parse_rows(epochs or b""):
                if row.known > row.ended >= int(start or 0):
                    yield Finding(
                        "bad",
                        "lost",
                        f"Redis lost the records of {name}-{number} from offset {row.ended} to "
                        f"{row.known - 1}, and leader epoch {row.epoch} began (docs: "
                        "Durability, What Redis can lose)",
                    )


def unconsumed(checked: Checked) -> Iterator[Finding]:
    """Yield the groups that hold records of topics with retention.consumed."""
    store = cast(AsyncCalls, InlineStore(checked.store))
    for name, definition in checked.topics.items():
        raw, configs = encode_definition(definition), TopicConfigs(Settings())
        topic = read_topic(checked.keys, name, raw, configs)
        if topic is None or not topic.policy.consumed_by:
            continue
        for number, consumed, records in run_inline(find_held(store, checked.keys, topic)):
            committed = "nothing" if consumed.offset < 0 else consumed.offset
            yield Finding(
                "note",
                "retention",
                f"group {consumed.group} holds {records} records of {name}-{number}: it has "
                f"committed {committed} (retention.consumed.max.ms sets a limit)",
            )


def unfinished(checked: Checked) -> Iterator[Finding]:
    """Yield the partitions with records that members of share groups do not finish.

    Their next delivery is the last one.
    """
    store, keys = checked.store, checked.keys
    for field in store.command("HKEYS", keys.groups()):
        if field.startswith(b":"):
            continue
        group = decode_group(field.decode())
        if store.command("HGET", keys.group(group).group, "type") != b"share":
            continue
        limit = _limit(checked, group)
        flat = store.command("HGETALL", keys.group(group).share_topics)
        for name, topic_id in zip(flat[::2], flat[1::2], strict=True):
            definition = checked.topics.get(name.decode())
            if definition is not None and definition.id == topic_id.decode():
                yield from _of_topic(checked, group, limit, name.decode(), definition)


def _of_topic(
    checked: Checked, group: str, limit: int, topic: str, definition: Definition
) -> Iterator[Finding]:
    for number in range(definition.partitions):
        partition = checked.keys.partition(topic, number, definition.id)
        reply = checked.store.run(partition.share_describe(group=group, most=MAX_RUNS))
        found = [
            f"{run.first}" if run.first == run.last else f"{run.first}-{run.last}"
            for run in delivered_runs(reply)
            if run.deliveries >= max(2, limit - 1)
        ]
        if found:
            shown = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
            yield Finding(
                "note",
                "queues",
                f"members of share group {group} do not finish {topic}-{number} at offset {shown}: "
                f"one more delivery of {limit} archives it; read the record and the member's log",
            )


def _limit(checked: Checked, group: str) -> int:
    """Return the group's own limit of deliveries, or the default."""
    resource = group_resource(group)
    raw = checked.store.command("HGET", checked.keys.configs(), resource)
    configs = decode_configs(resource, raw) if raw else {}
    return int(select_valid(configs, GROUP).get("share.delivery.count.limit", DELIVERY_LIMIT))
