"""One partition as the tests of lua/log see it: append, look, trim, through any runner."""

from dataclasses import dataclass, field
from typing import Any

from korvet.keys import Keys, Partition
from korvet.scripts import log, topic
from korvet.scripts.log import AppendReply, ListOffsetsReply
from tests.support.store_runners import Runner

KEYS = Keys()
ID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "f" * 32
DENSE_MS = 10**15


@dataclass
class Part:
    """Partition 0 of a topic, created in one layout and offset mode."""

    runner: Runner
    form: str = "record"
    mode: str = "time"
    bits: int = 10
    topic: str = "t"
    keys: Partition = field(init=False)

    def __post_init__(self) -> None:
        self.keys = KEYS.partition(self.topic, 0)

    def create(self) -> "Part":
        """The topic exists."""
        reply = self.runner.run(
            topic.create(
                KEYS,
                1,
                topic=self.topic,
                definition=b"{}",
                topic_id=ID,
                format=self.form,
                mode=self.mode,
                bits=self.bits,
            )
        )
        assert reply.error == 0
        return self

    def call(self, count: int = 1, **changes: Any) -> Any:
        """An append of `count` records, 10 bytes each, at the present time."""
        words: dict[str, Any] = {
            "topic_id": ID,
            "count": count,
            "size": 10 * count,
            "max_timestamp": self.runner.now_ms(),
            "fields": self.fields(count),
        }
        return log.append(KEYS, self.topic, 0, **{**words, **changes})

    def fields(self, count: int, word: bytes = b"v") -> list[Any]:
        """What the records of an append are made of."""
        if self.mode == "bytes":
            return [x for n in range(count) for x in (10, 2, b"data", b"%s%d" % (word, n))]
        if self.form == "batch":
            return [b"data", b"batch of %d" % count, b"count", count]
        return [x for n in range(count) for x in (2, b"value", b"%s%d" % (word, n))]

    def append(self, count: int = 1, **changes: Any) -> AppendReply:
        """The reply of such an append."""
        reply: AppendReply = self.runner.run(self.call(count, **changes))
        return reply

    def native(self, *fields: bytes) -> None:
        """Somebody appended with redis-cli."""
        self.runner.command("XADD", self.keys.stream, "*", *(fields or (b"value", b"native")))

    def bounds(self, topic_id: str = ID) -> ListOffsetsReply:
        """Where it begins and ends."""
        return self.runner.run(log.list_offsets(KEYS, self.topic, 0, topic_id=topic_id))

    def ids(self) -> list[str]:
        """The ids of the live entries."""
        rows: Any = self.runner.command("XRANGE", self.keys.stream, "-", "+")
        return [row[0].decode() for row in rows]

    def offsets(self) -> list[int]:
        """The offsets that the live entries stand for."""
        found = []
        for one in self.ids():
            ms, sequence = map(int, one.split("-"))
            found.append((ms << self.bits) + sequence if self.mode == "time" else sequence)
        return found

    def state(self) -> dict[str, str]:
        """The log hash."""
        flat: Any = self.runner.command("HGETALL", self.keys.log)
        words = [word.decode() for word in flat]
        return dict(zip(words[::2], words[1::2], strict=True))

    def truncate(self, before: int, topic_id: str = ID, steps: int = 64) -> log.DeleteRecordsReply:
        """Records below `before` are gone, or so many index steps of them."""
        return self.runner.run(
            log.delete_records(KEYS, "t", 0, topic_id=topic_id, before=before, steps=steps)
        )

    def retain(
        self, ms: int = -1, size: int = -1, steps: int = 64, topic_id: str = ID
    ) -> log.ApplyRetentionReply:
        """What retention lets go of is gone."""
        return self.runner.run(
            log.apply_retention(
                KEYS,
                "t",
                0,
                topic_id=topic_id,
                retention_ms=ms,
                retention_bytes=size,
                steps=steps,
            )
        )
