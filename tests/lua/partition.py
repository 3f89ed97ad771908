"""A partition for the tests of lua/log: create, append, read, trim, through any runner."""

from dataclasses import dataclass, field
from typing import Any

from korvet.scripts.calls.partition import (
    AppendReply,
    ApplyRetentionReply,
    DeleteRecordsReply,
    ListOffsetsReply,
)
from korvet.scripts.keys import Keys, Partition
from tests.support.store_runners import Runner

KEYS = Keys()
ID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "f" * 32
DENSE_MS = 2**63 - 1


@dataclass
class Part:
    """Partition 0 of a topic, created in one layout and offset mode."""

    runner: Runner
    form: str = "record"
    mode: str = "time"
    bits: int = 10
    topic: str = "t"
    dedupe: str = ""
    table: int = 0
    keys: Partition = field(init=False)

    def __post_init__(self) -> None:
        self.keys = KEYS.partition(self.topic, 0, ID)

    def create(self) -> "Part":
        """Create the topic."""
        reply = self.runner.run(
            KEYS.topic_create(
                KEYS.logs(self.topic, range(1)),
                topic=self.topic,
                definition=b"{}",
                topic_id=ID,
                format=self.form,
                mode=self.mode,
                bits=self.bits,
                dedupe=self.dedupe,
                table=self.table,
            )
        )
        assert reply.error == 0
        return self

    def call(self, count: int = 1, **changes: Any) -> Any:
        """Build an append of `count` records, 10 bytes each, at the present time."""
        words: dict[str, Any] = {
            "count": count,
            "size": 10 * count,
            "max_timestamp": self.runner.now_ms(),
            "fields": self.fields(count),
        }
        topic_id = changes.pop("topic_id", ID)
        return KEYS.partition(self.topic, 0, topic_id).append(**{**words, **changes})

    def fields(self, count: int, word: bytes = b"v") -> list[Any]:
        """Return the fields of an append's records."""
        if self.mode == "bytes":
            return [x for n in range(count) for x in (10, 2, b"data", b"%s%d" % (word, n))]
        if self.form == "batch":
            return [b"data", b"batch of %d" % count, b"count", count]
        return [x for n in range(count) for x in (2, b"value", b"%s%d" % (word, n))]

    def append(self, count: int = 1, **changes: Any) -> AppendReply:
        """Append `count` records; return the reply."""
        reply: AppendReply = self.runner.run(self.call(count, **changes))
        return reply

    def native(self, *fields: bytes) -> None:
        """Append a foreign entry, as redis-cli does."""
        self.runner.command("XADD", self.keys.stream, "*", *(fields or (b"value", b"native")))

    def bounds(self, topic_id: str = ID) -> ListOffsetsReply:
        """Return the first and last offsets of the log."""
        return self.runner.run(KEYS.partition(self.topic, 0, topic_id).list_offsets())

    def ids(self) -> list[str]:
        """Return the ids of the live entries."""
        rows: Any = self.runner.command("XRANGE", self.keys.stream, "-", "+")
        return [row[0].decode() for row in rows]

    def offsets(self) -> list[int]:
        """Return the offsets of the live entries."""
        found = []
        for one in self.ids():
            ms, sequence = map(int, one.split("-"))
            found.append((ms << self.bits) + sequence if self.mode == "time" else sequence)
        return found

    def state(self) -> dict[str, str]:
        """Return the log hash."""
        flat: Any = self.runner.command("HGETALL", self.keys.log)
        words = [word.decode() for word in flat]
        return dict(zip(words[::2], words[1::2], strict=True))

    def truncate(self, before: int, topic_id: str = ID, steps: int = 64) -> DeleteRecordsReply:
        """Delete the records below `before`, at most `steps` index steps of them."""
        return self.runner.run(
            KEYS.partition("t", 0, topic_id).delete_records(before=before, steps=steps)
        )

    def adopt(self) -> int:
        """Count the foreign entries; return how many calls that took."""
        calls = 0
        more = 1
        while more:
            reply = self.runner.run(KEYS.partition(self.topic, 0, ID).adopt())
            more, calls = reply.more, calls + 1
        return calls

    def retain(
        self, ms: int = -1, size: int = -1, steps: int = 64, topic_id: str = ID
    ) -> ApplyRetentionReply:
        """Count foreign entries, then apply retention once."""
        self.adopt()
        return self.runner.run(
            KEYS.partition("t", 0, topic_id).apply_retention(
                retention_ms=ms, retention_bytes=size, steps=steps
            )
        )
