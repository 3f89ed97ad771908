"""Findings of `korvet doctor` about topics: offsets, groups that hold records, and queues."""

from collections.abc import Iterator, Mapping

from korvet.cli import offset_note
from korvet.cli.doctor_queues import find_poison
from korvet.cli.finding import Finding
from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.groups.consumed import (
    EVERY,
    commit_fields,
    held_records,
    held_since_ms,
    lowest,
    share_starts,
    start_calls,
)
from korvet.keys import Keys
from korvet.log import unread_entries
from korvet.scripts.call import decode_group
from korvet.store.sync_store import SyncStore
from korvet.topics.table import VERSION_FIELD, Definition, decode_definition


def findings(store: SyncStore, keys: Keys) -> Iterator[Finding]:
    """Check the topics of a namespace."""
    topics = dict(_topics(store, keys))
    yield from _offsets(topics)
    yield from _unread(store, keys, topics)
    yield from _held(store, keys, topics)
    for sentence in find_poison(store, keys, topics):
        yield Finding("note", "queues", sentence)


def _topics(store: SyncStore, keys: Keys) -> Iterator[tuple[str, Definition]]:
    """Yield the topics with their stored definitions."""
    flat = store.command("HGETALL", keys.topics())
    for name, raw in zip(map(bytes.decode, flat[::2]), flat[1::2], strict=True):
        if name != VERSION_FIELD:
            yield name, decode_definition(raw)


def sizes(store: SyncStore, keys: Keys) -> dict[str, int]:
    """Return the bytes of each topic's records in Redis, by the counters of its logs."""
    found: dict[str, int] = {}
    for name, definition in _topics(store, keys):
        logs = [keys.partition(name, number).log for number in range(definition.partitions)]
        rows = store.commands([("HMGET", each, "bytes", "start_bytes") for each in logs])
        found[name] = sum(int(row[0] or 0) - int(row[1] or 0) for row in rows)
    return found


def _offsets(topics: Mapping[str, Definition]) -> Iterator[Finding]:
    """Say whether the lag that other tools show is a number of records."""
    count = sum(each.configs.get("offset.mode") == "time" for each in topics.values())
    if count:
        yield Finding("note", "offsets", offset_note.of(f"{count} of {len(topics)} topics"))
    elif topics:
        yield Finding("ok", "offsets", "no topic has offsets that are times")


def _unread(store: SyncStore, keys: Keys, topics: Mapping[str, Definition]) -> Iterator[Finding]:
    """Yield the partitions with entries that no client reads.

    A `message.max.bytes` in a broker's file is not known here.
    """
    places = [
        (name, definition.id, number)
        for name, definition in topics.items()
        for number in range(definition.partitions)
    ]
    states = store.commands([unread_entries.state_command(keys, place) for place in places])
    calls = unread_entries.count_calls(keys, places, states)
    replies = store.run_many(calls.values())
    for sentence in unread_entries.without_ids(calls, replies):
        yield Finding("bad", "entries", sentence)
    found = unread_entries.without_offset(calls, replies)
    configs = TopicConfigs(Settings())
    policies = {name: configs.policy(name, each.configs) for name, each in topics.items()}
    for sentence in found + unread_entries.too_large(places, states, policies):
        yield Finding("note", "entries", sentence)


def _held(store: SyncStore, keys: Keys, topics: Mapping[str, Definition]) -> Iterator[Finding]:
    """Yield the groups that hold records of topics with retention.consumed."""
    for name, definition in topics.items():
        names = definition.configs.get("retention.consumed", "")
        if not names:
            continue
        groups = [each.strip() for each in names.split(",")]
        every = EVERY in groups
        if every:
            fields = store.command("HKEYS", keys.groups())
            groups = [decode_group(each.decode()) for each in fields if each[:1] != b":"]
        wanted = commit_fields(keys, name, definition.partitions)
        commits = {
            each: store.command("HMGET", keys.group_offsets(each), *wanted) for each in groups
        }
        count = definition.partitions
        states = [store.command("HKEYS", keys.partition(name, each).share) for each in range(count)]
        calls = start_calls(keys, name, definition.id, states, commits)
        starts = share_starts(list(calls), [store.run(call) for call in calls.values()], count)
        found = lowest(commits, definition.id, count, every=every, starts=starts)
        cutoff_ms = held_since_ms(int(definition.configs.get("retention.consumed.max.ms", "-1")))
        for number, each in enumerate(found):
            partition = keys.partition(name, number, definition.id)
            start = store.run(partition.find_timestamp(timestamp=cutoff_ms))
            offset = max(each.offset, start.offset, 0)
            reply = store.run(partition.lag(offset=offset))
            records = held_records(reply, cutoff_ms)
            if each.group and records:
                yield Finding(
                    "note",
                    "retention",
                    f"group {each.group} holds {records} records of {name}-{number}: it has "
                    f"committed {'nothing' if each.offset < 0 else each.offset} "
                    "(retention.consumed.max.ms sets a limit)",
                )
