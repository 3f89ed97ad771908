"""Check that appended records are still in the log before a task or epoch is reported as done.

Rules
- A master that was replaced in a failover may accept writes for 10 s or longer, and loses what no
  replica has. So read the producer state of each partition again: at the end of a task, which Spark
  can repeat, and before the epoch is committed.
- Read it on a new connection, which leads to the current master.
- Wait for replicas first: they may be replicas of a replaced master.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from korvet.config.durability import Durability
from korvet.scripts.keys import Keys
from korvet.scripts.producer_state import WRAP, ProducerStateEntry
from korvet.spark.errors import DataLoss, NotEnoughReplicas
from korvet.store.sync_store import SyncStore

REPLICA_TIMEOUT_S = 10.0
"""Max wait for replicas, or the disk, to have the written records."""


class AppendedUpTo(NamedTuple):
    """A task's next sequence number in one partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    next: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def wait_until_durable(
    store: SyncStore,
    keys: Keys,
    appended: Sequence[AppendedUpTo],
    wanted: Mapping[str, Durability | None],
) -> None:
    """Wait until all appended records are as durable as `wanted` says of their topics.

    Raises NotEnoughReplicas. Without a cluster one wait covers all partitions.
    """
    waited: set[Durability] = set()
    for each in appended:
        durability = wanted[each.topic]
        if durability is None or durability in waited:
            continue
        key = keys.partition(each.topic, each.partition).producers
        ask = ("HGET", key, each.producer_id)
        replicas, fsync = durability
        row, copied = store.ask_copied(ask, replicas, REPLICA_TIMEOUT_S, fsync=fsync)
        _raise_if_lost(each, row)
        if not copied:
            raise NotEnoughReplicas(
                f"{each}: the written records did not reach {durability} within "
                f"{REPLICA_TIMEOUT_S:g} s (option 'waitReplicas', topic config 'durability')."
            )
        if not store.is_cluster:
            waited.add(durability)


def check_appended(store: SyncStore, keys: Keys, appended: Sequence[AppendedUpTo]) -> None:
    """Raise DataLoss if the current master does not have all appended records."""
    by_key: dict[str, list[AppendedUpTo]] = {}
    for each in appended:
        by_key.setdefault(keys.partition(each.topic, each.partition).producers, []).append(each)
    if not by_key:
        return
    store.look_again()
    found = store.commands(
        [("HMGET", key, *(each.producer_id for each in some)) for key, some in by_key.items()]
    )
    for some, rows in zip(by_key.values(), found, strict=True):
        for each, row in zip(some, rows, strict=True):
            _raise_if_lost(each, row)


def _raise_if_lost(appended: AppendedUpTo, row: bytes | None) -> None:
    done = ProducerStateEntry.of(row) if row else None
    if done is None or done.epoch < appended.epoch:
        raise lost_append_error(str(appended))
    if done.epoch == appended.epoch and (done.next - appended.next) % WRAP >= WRAP // 2:
        raise lost_append_error(str(appended))


def lost_append_error(where: str) -> DataLoss:
    """Build the error for a log without records that a task appended."""
    return DataLoss(
        f"{where}: Redis lost records that it had acknowledged to a task, as in a failover, or the "
        "topic was deleted. Run the task, the stream, or the job with its writeId again: only "
        "missing records are appended."
    )
