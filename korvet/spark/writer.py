"""Writing: tasks append as they go, the driver records what is done."""

import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from korvet.spark import standing
from korvet.spark.catalog import Catalog
from korvet.spark.errors import NotRepeatable, TooFewCopies
from korvet.spark.options import WriteOptions
from korvet.spark.schema import check_schema
from korvet.spark.standing import Appended
from korvet.spark.worker import at_work

_QUERY = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"


class Written(WriterCommitMessage):
    """What one task did: under which writer and epoch, how many records, how many again, and how
    far it came where. It travels, pickled, between drivers and executors that may be of different
    versions: plain values, and one of before has no `appended`."""

    appended: tuple[tuple[str, int, int, int, int], ...] = ()

    def __init__(
        self,
        writer_id: str,
        epoch: int,
        records: int,
        repeated: int,
        appended: Sequence[Appended] = (),
    ) -> None:
        self.writer_id = writer_id
        self.epoch = epoch
        self.records = records
        self.repeated = repeated
        self.appended = tuple((*each,) for each in appended)


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame. With option `writeId`, once however often the job is run."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        check_schema(schema, options)
        with Catalog(options.connection) as catalog:
            _look(options, catalog.patient() if options.write_id else catalog)
            self._id = f"job-{uuid.uuid4().hex}"
            if options.write_id:
                self._id = _job(catalog, options.write_id, options.topic or "")
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        # Nobody knows the id of a job without a writeId: such a job does not come back.
        known = bool(self._options.write_id)
        return append(self._options, self._id, 0, task, iterator, comes_back=known)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        done(self._options, messages, last=True, comes_back=bool(self._options.write_id))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks have appended stays: a log is not taken back."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the epochs of one query, each once. Tasks learn from Spark which query and epoch."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        check_schema(schema, options)
        # Spark makes a writer for each batch: whether this is the first is not known here.
        with Catalog(options.connection).patient() as catalog:
            _look(options, catalog)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a stream is written by Spark's tasks"
        query, epoch = context.getLocalProperty(_QUERY), context.getLocalProperty(_EPOCH)
        assert query is not None and epoch is not None, "Spark names the query and the epoch"
        return append(self._options, f"query-{query}", int(epoch), context.partitionId(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        done(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The epoch comes again, and what it has appended is then found to be there."""


def append(
    options: WriteOptions,
    writer_id: str,
    epoch: int,
    task: int,
    batches: Iterator[Any],
    *,
    comes_back: bool = True,
) -> Written:
    """The task's rows are in the log, those of an earlier attempt not again."""
    import numpy as np

    from korvet.spark.appending import Claim, Outbox
    from korvet.spark.frames import Rows, parts

    with at_work(), Catalog(options.connection).patient() as catalog:
        claim = Claim(catalog.store, catalog.keys, writer_id, task, epoch, comes_back=comes_back)
        if claim.done:
            return Written(writer_id, epoch, 0, sum(batch.num_rows for batch in batches))
        outbox = Outbox(catalog.store, catalog.keys, claim, options.compression)
        targets: dict[str, tuple[Any, Any]] = {}
        unkeyed: dict[str, int] = {}
        for batch in parts(batches):
            rows = Rows(batch, options, int(time.time() * 1000))
            for name, mine in rows.by_topic():
                if name not in targets:
                    topic = catalog.topic(name)
                    targets[name] = topic, _spread(catalog, writer_id, epoch, topic)
                topic, spread = targets[name]
                seen = unkeyed.get(name, 0)
                chosen = rows.partitions(mine, topic, spread.partitions, task + spread.turn, seen)
                unkeyed[name] = seen + rows.unkeyed(mine)
                for number in np.unique(chosen):
                    outbox.put(topic, int(number), rows.block(mine[chosen == number]))
            del batch, rows  # before the next one comes
        outbox.flush()
        told = outbox.appended()
        if options.replicas:
            standing.secure(catalog.store, catalog.keys, told, options.replicas)
        standing.check(catalog.store, catalog.keys, told)
        return Written(writer_id, epoch, outbox.records, outbox.repeated, told)


def _spread(catalog: Catalog, writer_id: str, epoch: int, topic: Any) -> Any:
    """Over how many of the topic's partitions rows go: all that there were at the first attempt.
    Partitions that came since would be given rows that others have already. Rows without a key
    begin with another partition in each epoch, or small batches would all go to the same."""
    from korvet.scripts import writer

    turn = (zlib.crc32(writer_id.encode()) + epoch) % topic.partitions
    call = writer.pin_partitions(
        catalog.keys,
        writer_id,
        topic_id=topic.id,
        epoch=epoch,
        partitions=topic.partitions,
        turn=turn,
    )
    found = catalog.store.run(call)
    if found.partitions < 0:
        raise NotRepeatable(
            f"{topic.name}: this epoch, or a later one, has been written; this task comes too late."
        )
    return found


def done(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    last: bool = False,
    comes_back: bool = True,
) -> None:
    """The epoch of these messages is recorded as committed; the `last` one ends its writer.
    DataLost where Redis has lost some of what they tell of."""
    from korvet.scripts import writer

    keep_ms = writer.KEEP_MS if comes_back else writer.KEEP_JOB_MS
    written = [each for each in messages if isinstance(each, Written)]
    found = {(each.writer_id, each.epoch) for each in written}
    if found:
        with Catalog(options.connection).patient() as catalog:
            told = [Appended(*one) for each in written for one in each.appended]
            standing.check(catalog.store, catalog.keys, told)
            for writer_id, epoch in found:
                catalog.store.run(
                    writer.commit(
                        catalog.keys, writer_id, epoch=epoch, keep_ms=keep_ms, last=int(last)
                    )
                )
                if options.replicas:
                    _secure(options, catalog, writer_id, epoch)


def _secure(options: WriteOptions, catalog: Catalog, writer_id: str, epoch: int) -> None:
    """Replicas know, too, that the epoch is done."""
    limit_s = standing.COPIED_S
    ask = ("HGET", catalog.keys.writer(writer_id), "committed")
    committed, copied = catalog.store.ask_copied(ask, options.replicas, limit_s)
    if not copied or int(committed or -1) < epoch:
        raise TooFewCopies(
            f"{options.replicas} replicas do not know within {limit_s:g} s that epoch {epoch} is "
            "done (option 'waitReplicas')."
        )


def _look(options: WriteOptions, catalog: Catalog) -> None:
    """Redis answers and a topic named by option exists: known before any task starts."""
    if options.topic is not None:
        catalog.topic(options.topic)
    else:
        catalog.topics()


def _job(catalog: Catalog, write_id: str, topic: str) -> str:
    """The writer's id of a job that writes to this topic. The first topic has that of the writeId
    alone: one `foreachBatch` may write to several. No topic's name has a slash."""
    from korvet.scripts import writer

    named = topic.encode()
    pin = writer.pin_plan(catalog.keys, f"topic/{write_id}", plan=named, keep_ms=writer.KEEP_MS)
    first = catalog.store.run(pin).plan == named
    return f"job-{write_id}" if first else f"topic-{topic}/{write_id}"
