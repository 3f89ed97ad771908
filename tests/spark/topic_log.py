"""Topics with records, for tests of what Spark reads and writes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from korvet.config.topic_policy import TopicConfigs
from korvet.config.values import Settings
from korvet.log.leader_epochs import begin_call
from korvet.scripts.call import Arg
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from korvet.topics.lifecycle import plan_topic
from korvet.topics.table import Topic, encode_definition, read_topic
from korvet.wire import batch_builder, record_entries
from korvet.wire.records import Record

LAYOUTS = [(form, mode) for form in ("record", "batch") for mode in ("time", "dense")]
CONFIGS = TopicConfigs(Settings())


@dataclass
class Log:
    """A Redis with the topics and records that this object added."""

    store: SyncStore
    url: str
    keys: Keys = field(default_factory=Keys)
    written: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def create(
        self,
        name: str,
        partitions: int = 1,
        form: str = "record",
        mode: str = "dense",
        *,
        records: int = 0,
        **more: str,
    ) -> Topic:
        """Create a topic, with `records` plain records in partition 0."""
        configs = {"storage.format": form, "offset.mode": mode}
        configs |= {key.replace("_", "."): value for key, value in more.items()}
        definition = plan_topic(name, partitions, configs, CONFIGS)
        reply = self.store.run(
            self.keys.topic_create(
                self.keys.logs(name, range(partitions)),
                topic=name,
                definition=encode_definition(definition),
                topic_id=definition.id,
                **definition.shape,
            )
        )
        assert reply.error == 0
        topic = read_topic(self.keys, name, encode_definition(definition), CONFIGS)
        assert topic is not None
        self.topics[name] = topic
        if records:
            self.append(topic, 0, plain(records))
        return topic

    def grow(self, topic: Topic, partitions: int) -> Topic:
        """Add partitions to the topic."""
        definition = topic.definition(partitions=partitions)
        reply = self.store.run(
            self.keys.topic_add_partitions(
                self.keys.logs(topic.name, range(topic.partitions, partitions)),
                topic=topic.name,
                expected=topic.raw,
                definition=encode_definition(definition),
                topic_id=topic.id,
                **definition.shape,
            )
        )
        assert reply.error == 0
        grown = read_topic(self.keys, topic.name, encode_definition(definition), CONFIGS)
        assert grown is not None
        return grown

    def append(
        self, topic: Topic, partition: int, found: Sequence[Record], *, codec: int = 0
    ) -> list[Record]:
        """Append records and return them with their offsets."""
        found = [(n, *record[1:]) for n, record in enumerate(found)]
        newest = max(record[1] for record in found)
        fields: tuple[Arg, ...]
        if topic.is_batch:
            data = bytes(batch_builder.build(found, codec=codec))
            size = len(data)
            fields = (b"batch", data, b"count", len(found), b"max.timestamp", newest)
        else:
            size = sum(len(record[3] or b"") + 24 for record in found)
            fields = tuple(record_entries.fields_of(found))
        reply = self.store.run(
            self.keys.partition(topic.name, partition, topic.id).append(
                count=len(found),
                size=size,
                max_timestamp=newest,
                stamp=int(topic.policy.log_append_time),
                fields=fields,
            )
        )
        assert reply.error == 0
        placed = [(reply.base + n, *record[1:]) for n, record in enumerate(found)]
        if topic.policy.log_append_time:
            placed = [(record[0], reply.append_time, *record[2:]) for record in placed]
        self.written.setdefault((topic.name, partition), []).extend(placed)
        return placed

    def truncate(self, topic: Topic, partition: int, before: int) -> None:
        """Delete records below offset `before`."""
        call = self.keys.partition(topic.name, partition, topic.id).delete_records(before=before)
        assert self.store.run(call).error == 0


def plain(count: int, *, since: int = 1_700_000_000_000, size: int = 20) -> list[Record]:
    """Return records with the same fields and lengths, a millisecond apart."""
    return [
        (n, since + n, b"key-%06d" % n, (b"%06d" % n).ljust(size, b"."), []) for n in range(count)
    ]


@contextmanager
def forgotten(log: Log) -> Iterator[None]:
    """Undo all changes in Redis at the end, as a failover does."""
    names = log.store.command("KEYS", "*")
    before = {name: log.store.command("DUMP", name) for name in names}
    yield
    for name in set(log.store.command("KEYS", "*")) - before.keys():
        log.store.command("DEL", name)
    for name, dump in before.items():
        log.store.command("RESTORE", name, 0, dump, "REPLACE")


def begun(log: Log, topic: Topic, known: int) -> None:
    """Begin an epoch in partition 0, of which a broker knows the records below `known`."""
    before = log.store.command("HGET", topic.partition(0).log, "epoch")
    assert not log.store.run(begin_call(topic, 0, int(before) + 1, known)).error
