"""Write DataFrames: tasks append their rows, the driver commits the epoch."""

import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from korvet.config.durability import Durability, strictest
from korvet.scripts import producer_state
from korvet.spark.errors import InvalidDataFrame, NotEnoughReplicas, NotRepeatable
from korvet.spark.metadata import MetadataClient
from korvet.spark.options import WriteOptions
from korvet.spark.worker_process import task_scope
from korvet.spark.write import durability_check
from korvet.spark.write.durability_check import AppendedUpTo

_BYTES = ("string", "binary")
_WRITE_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
_HEADERS = "array<struct<key:string,value:binary>>"


def check_schema(schema: Any, options: WriteOptions) -> None:
    """Raise InvalidDataFrame if a column is missing, ambiguous or of a wrong type."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    names = [field.name.lower() for field in schema.fields]
    for name in _WRITE_COLUMNS:
        if names.count(name) > 1:
            raise InvalidDataFrame(
                f"There are {names.count(name)} columns {name!r}; one is expected."
            )
    if "value" not in types:
        raise InvalidDataFrame(
            f"A column 'value' is needed; there are {', '.join(types) or 'none'}."
        )
    for name in ("key", "value"):
        _expect_type(types, name, _BYTES)
    if options.topic is None:
        _expect_type(types, "topic", ("string",))
    _expect_type(types, "partition", ("int",))
    _expect_type(types, "headers", (_HEADERS,))
    if options.timestamps:
        if "timestamp" not in types:
            raise InvalidDataFrame("includeTimestamp needs a column 'timestamp'.")
        _expect_type(types, "timestamp", ("timestamp",))
    if options.topic is None and "topic" not in types:
        raise InvalidDataFrame(
            "No topic: set option 'topic' or add a column 'topic'. For a catalog's table use "
            "INSERT INTO t WITH (topic = 'orders'): Spark does not pass its options to the sink."
        )


def _expect_type(types: dict[str, str], name: str, wanted: tuple[str, ...]) -> None:
    found = types.get(name)
    if found is not None and found != "void" and found not in wanted:
        raise InvalidDataFrame(f"Column {name!r} must be {' or '.join(wanted)}, not {found}.")


_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"


@dataclass
class TaskCommit(WriterCommitMessage):
    """The result of one task: writer, epoch, record counts and the end of each partition.

    Pickled between executors and the driver: plain values only.
    """

    writer_id: str
    epoch: int
    records: int
    repeated: int
    appended: Sequence[tuple[str, int, int, int, int]] = ()


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame; with option `writeId` exactly once over all runs of the job."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        check_schema(schema, options)
        with MetadataClient(options.connection) as metadata:
            _check_target(options, metadata.with_reconnect() if options.write_id else metadata)
            self._id = f"job-{uuid.uuid4().hex}"
            if options.write_id:
                self._id = _job_writer_id(metadata, options.write_id, options.topic or "")
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        # Without a writeId each run has a new writer id, so no later run can repeat this one.
        retryable = bool(self._options.write_id)
        return write_task(self._options, self._id, 0, task, iterator, retryable=retryable)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_epoch(self._options, messages, last=True, retryable=bool(self._options.write_id))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: appended records stay in the log."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the epochs of one streaming query, each exactly once."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        check_schema(schema, options)
        # Spark creates a writer for each batch, so Redis may be away longer than for a new query.
        with MetadataClient(options.connection).with_reconnect() as metadata:
            _check_target(options, metadata)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a stream is written by Spark's tasks"
        query, epoch = context.getLocalProperty(_QUERY), context.getLocalProperty(_EPOCH)
        assert query is not None and epoch is not None, "Spark names the query and the epoch"
        return write_task(
            self._options, f"query-{query}", int(epoch), context.partitionId(), iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_epoch(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: a repeated epoch finds what is already appended."""


def write_task(
    options: WriteOptions,
    writer_id: str,
    epoch: int,
    task: int,
    batches: Iterator[Any],
    *,
    retryable: bool = True,
) -> TaskCommit:
    """Append the rows of a task, except those that an earlier attempt appended."""
    import numpy as np

    from korvet.spark.write.idempotent_writer import IdempotentWriter, ProducerClaim
    from korvet.spark.write.row_router import RowRouter, split_batches

    with task_scope(), MetadataClient(options.connection).with_reconnect() as metadata:
        claim = ProducerClaim(
            metadata.store, metadata.keys, writer_id, task, epoch, retryable=retryable
        )
        if claim.done:
            return TaskCommit(writer_id, epoch, 0, sum(batch.num_rows for batch in batches))
        idempotent = IdempotentWriter(metadata.store, claim, options.compression)
        targets: dict[str, tuple[Any, Any]] = {}
        unkeyed: dict[str, int] = {}
        for batch in split_batches(batches):
            rows = RowRouter(batch, options, int(time.time() * 1000))
            for name, mine in rows.rows_by_topic():
                if name not in targets:
                    topic = metadata.topic(name)
                    targets[name] = topic, _partition_spread(metadata, writer_id, epoch, topic)
                topic, spread = targets[name]
                seen = unkeyed.get(name, 0)
                chosen = rows.partitions(mine, topic, spread.partitions, task + spread.turn, seen)
                unkeyed[name] = seen + rows.unkeyed(mine)
                for number in np.unique(chosen):
                    idempotent.put(topic, int(number), rows.block(mine[chosen == number]))
            del batch, rows  # free the memory before the next batch arrives
        idempotent.flush()
        appended = idempotent.appended()
        asked = Durability(options.replicas)
        wanted = {
            name: strictest((asked, topic.policy.acks_all if options.acks_all else None))
            for name, (topic, _) in targets.items()
        }
        durability_check.wait_until_durable(metadata.store, metadata.keys, appended, wanted)
        durability_check.check_appended(metadata.store, metadata.keys, appended)
        plain = tuple((*each,) for each in appended)
        return TaskCommit(writer_id, epoch, idempotent.records, idempotent.repeated, plain)


def _partition_spread(metadata: MetadataClient, writer_id: str, epoch: int, topic: Any) -> Any:
    """Return the partition count and first partition recorded for this epoch and topic.

    All attempts use the partition count of the first: with partitions added since, rows would go
    to other partitions and be written twice. Rows without a key start with another partition in
    each epoch, so that small batches do not all go to the same partition.
    """
    turn = (zlib.crc32(writer_id.encode()) + epoch) % topic.partitions
    call = metadata.keys.writer_pin_partitions(
        writer=metadata.keys.writer(writer_id),
        topic_id=topic.id,
        epoch=epoch,
        partitions=topic.partitions,
        turn=turn,
    )
    found = metadata.store.run(call)
    if found.partitions < 0:
        raise NotRepeatable(
            f"{topic.name}: this or a later epoch was already committed; this task is outdated."
        )
    return found


def commit_epoch(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    last: bool = False,
    retryable: bool = True,
) -> None:
    """Record the epoch of these messages as committed; `last` ends its writer.

    Raises DataLoss if Redis lost records that tasks appended.
    """
    keep_ms = producer_state.KEEP_MS if retryable else producer_state.KEEP_JOB_MS
    written = [each for each in messages if isinstance(each, TaskCommit)]
    found = {(each.writer_id, each.epoch) for each in written}
    if found:
        with MetadataClient(options.connection).with_reconnect() as metadata:
            appended = [AppendedUpTo(*one) for each in written for one in each.appended]
            durability_check.check_appended(metadata.store, metadata.keys, appended)
            for writer_id, epoch in found:
                metadata.store.run(
                    metadata.keys.writer_commit(
                        writer=metadata.keys.writer(writer_id),
                        epoch=epoch,
                        keep_ms=keep_ms,
                        last=int(last),
                    )
                )
                if options.replicas:
                    _wait_for_commit_replicas(options, metadata, writer_id, epoch)


def _wait_for_commit_replicas(
    options: WriteOptions, metadata: MetadataClient, writer_id: str, epoch: int
) -> None:
    """Wait until replicas have the commit of the epoch, or raise NotEnoughReplicas."""
    limit_s = durability_check.REPLICA_TIMEOUT_S
    ask = ("HGET", metadata.keys.writer(writer_id), "committed")
    committed, copied = metadata.store.ask_copied(ask, options.replicas, limit_s)
    if not copied or int(committed or -1) < epoch:
        raise NotEnoughReplicas(
            f"The commit of epoch {epoch} did not reach {options.replicas} replicas within "
            f"{limit_s:g} s (option 'waitReplicas')."
        )


def _check_target(options: WriteOptions, metadata: MetadataClient) -> None:
    """Check before tasks start that Redis answers and the topic of the option exists."""
    if options.topic is not None:
        metadata.topic(options.topic)
    else:
        metadata.topics()


def _job_writer_id(metadata: MetadataClient, write_id: str, topic: str) -> str:
    """Return the writer id of a job for this topic.

    The first topic of a writeId uses `job-<writeId>`; one `foreachBatch` may write to several
    topics. A topic name cannot contain a slash.
    """
    named = topic.encode()
    pin = metadata.keys.writer_pin_plan(
        writer=metadata.keys.writer(f"topic/{write_id}"), plan=named, keep_ms=producer_state.KEEP_MS
    )
    first = metadata.store.run(pin).plan == named
    return f"job-{write_id}" if first else f"topic-{topic}/{write_id}"
