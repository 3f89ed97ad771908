"""Find records that members of share groups do not finish, for `korvet doctor`."""

from collections.abc import Iterator, Mapping

from korvet.config.dynamic import decode_configs, group_resource, select_valid
from korvet.config.group_settings import GROUP
from korvet.config.share_settings import DELIVERY_LIMIT
from korvet.keys import Keys
from korvet.scripts.call import decode_group
from korvet.store.sync_store import SyncStore
from korvet.topics.table import Definition

MAX_RUNS = 100
"""Delivered runs that are checked of each partition."""
SHOWN = 3
"""Runs that are named of each partition."""


def find_poison(store: SyncStore, keys: Keys, topics: Mapping[str, Definition]) -> Iterator[str]:
    """Yield a sentence for each partition with records whose next delivery is the last one."""
    for field in store.command("HKEYS", keys.groups()):
        if field.startswith(b":"):
            continue
        group = decode_group(field.decode())
        if store.command("HGET", keys.group(group).group, "type") != b"share":
            continue
        limit = _limit(store, keys, group)
        flat = store.command("HGETALL", keys.group(group).share_topics)
        for name, topic_id in zip(flat[::2], flat[1::2], strict=True):
            definition = topics.get(name.decode())
            if definition is not None and definition.id == topic_id.decode():
                yield from _of_topic(store, keys, group, limit, name.decode(), definition)


def _of_topic(
    store: SyncStore, keys: Keys, group: str, limit: int, topic: str, definition: Definition
) -> Iterator[str]:
    for number in range(definition.partitions):
        reply = store.run(
            keys.partition(topic, number, definition.id).share_describe(group=group, most=MAX_RUNS)
        )
        rows = [tuple(map(int, reply.runs[at : at + 3])) for at in range(0, len(reply.runs), 5)]
        found = [
            f"{first}" if first == last else f"{first}-{last}"
            for first, last, deliveries in rows
            if deliveries >= 2 and deliveries >= limit - 1
        ]
        if found:
            shown = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
            yield (
                f"members of share group {group} do not finish {topic}-{number} at offset {shown}: "
                f"one more delivery of {limit} archives it; read the record and the member's log"
            )


def _limit(store: SyncStore, keys: Keys, group: str) -> int:
    """Return the group's own limit of deliveries, or the default."""
    resource = group_resource(group)
    raw = store.command("HGET", keys.configs(), resource)
    configs = decode_configs(resource, raw) if raw else {}
    return int(select_valid(configs, GROUP).get("share.delivery.count.limit", DELIVERY_LIMIT))
