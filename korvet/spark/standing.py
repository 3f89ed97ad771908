"""What tasks have appended is still in the log when they, or their epoch, are called done.

Rules
- A master that fails over may take writes for ten seconds and more after another one took its
  place, and what stood on no replica goes with it. So the partitions are asked how far the task
  came: at its end, as Spark may run it again, and once more before its epoch is committed.
- They are asked on a connection that was made for it, which leads to the master of that moment.
- Replicas are waited for first: those that have it may be those of a master that is none any more.
"""

from collections.abc import Sequence
from typing import NamedTuple

from korvet.keys import Keys
from korvet.scripts.producer_state import WRAP, ProducerStateEntry
from korvet.spark.errors import DataLost, TooFewCopies
from korvet.store.sync_store import SyncStore

COPIED_S = 10.0
"""So long replicas may take to have what is written."""


class Appended(NamedTuple):
    """How far a task came in one partition: the sequence number that comes next."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    next: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def secure(store: SyncStore, keys: Keys, told: Sequence[Appended], replicas: int) -> None:
    """All that was appended is in the log of a server so many of whose replicas have it."""
    for each in told:
        key = keys.partition(each.topic, each.partition).producers
        ask = ("HGET", key, each.producer_id)
        row, copied = store.ask_copied(ask, replicas, COPIED_S)
        _refuse_lost(each, row)
        if not copied:
            raise TooFewCopies(
                f"{each}: {replicas} replicas do not have what was written within "
                f"{COPIED_S:g} s (option 'waitReplicas')."
            )


def check(store: SyncStore, keys: Keys, told: Sequence[Appended]) -> None:
    """Nothing, or DataLost where the master of this moment does not have what was appended."""
    places: dict[str, list[Appended]] = {}
    for each in told:
        places.setdefault(keys.partition(each.topic, each.partition).producers, []).append(each)
    if not places:
        return
    store.look_again()
    found = store.commands(
        [("HMGET", key, *(each.producer_id for each in some)) for key, some in places.items()]
    )
    for some, rows in zip(places.values(), found, strict=True):
        for each, row in zip(some, rows, strict=True):
            _refuse_lost(each, row)


def _refuse_lost(each: Appended, row: bytes | None) -> None:
    done = ProducerStateEntry.of(row) if row else None
    if done is None or done.epoch < each.epoch or _is_short(each, done):
        raise lost(str(each))


def _is_short(each: Appended, done: ProducerStateEntry) -> bool:
    return done.epoch == each.epoch and (done.next - each.next) % WRAP >= WRAP // 2


def lost(where: str) -> DataLost:
    """What to raise where the log does not have what a task appended."""
    return DataLost(
        f"{where}: Redis has lost what it had acknowledged to a task, as in a failover, or the "
        "topic was deleted meanwhile. What is missing is appended when the task, the stream, or "
        "the job under its writeId runs again."
    )
