"""Append one batch to one partition's log: validate, send, and account for the reply.

Rules
- A stored batch is counted, and put in the batch cache, before its response leaves.
- A batch of an unknown producer is sent again as `unknown_producers` decides, in the callback that
  delivers the rejection: so the batches of a producer keep their order.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import time
from typing import Protocol

from msgspec.structs import replace

from korvet.base.errors import ErrorCode
from korvet.log.append_batcher import AppendBatcher
from korvet.log.append_parts import packed, send_append
from korvet.log.layouts import layout_of
from korvet.log.leader_epochs import LeaderEpochs
from korvet.log.opening import TURN_BYTES, Allowance, in_thread
from korvet.log.read_cache import ReadCache
from korvet.log.validator import prepare_append
from korvet.produce.unknown_producers import ProducerKey, UnknownProducers, Verdict
from korvet.scripts.append_call import allow_expired_producer, count_of, sequence_of, size_of
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.topics.node import Node
from korvet.topics.table import Topic
from korvet.wire.records import BadBatch, Buffer

TOPIC_IDS_SINCE = 13
"""The Produce version from which on topics are named by their ids."""
_GAPS = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""The errors of a batch whose predecessor is not stored."""
MAX_ATTEMPTS = 3
"""Max times a batch of an unknown producer is sent, if other batches always come between."""


class Memory(Protocol):
    """The memory of Redis, as far as an append depends on it: `remote_log.memory.MemoryBudget`."""

    @property
    def is_full(self) -> bool: ...
    def refusal(self, topic: Topic) -> str | None:
        """Return why batches for the topic are refused; None if they are not."""


class Copies(Protocol):
    """Counts what is to be copied to the remote store."""

    def appended(self, topic: Topic, number: int, size: int) -> bool:
        """Count an appended batch; return whether it is to be cached for its copy."""


class PartitionAppend(ABC):
    """A batch for one partition and the reply to it; a `ReplyWaiter`."""

    __slots__ = (
        "appender",
        "attempts",
        "call",
        "data",
        "epoch",
        "error",
        "index",
        "opened",
        "reply",
        "topic",
        "version",
    )

    def __init__(
        self, appender: "PartitionAppender", topic: Topic, index: int, data: Buffer, version: int
    ) -> None:
        self.appender = appender
        self.topic = topic
        self.index = index
        self.data = data
        self.version = version
        self.call: Call[AppendReply]
        """Set by `PartitionAppender.prepare`."""
        self.reply: AppendReply | None = None
        self.error: BaseException | None = None
        self.attempts = 1
        self.opened = 0
        """Bytes that the batch's records have decompressed."""
        self.epoch = -1
        """The store's connection epoch when the batch was sent."""

    @abstractmethod
    def finished(self, stored: AppendReply | None) -> None:
        """Continue with the request: the reply of a stored batch, or None for any other end."""

    @property
    def producer(self) -> tuple[ProducerKey, int]:
        """The batch's producer and base sequence: -1 without idempotence."""
        producer_id, epoch, sequence = sequence_of(self.call)
        topic = self.topic.id if self.version >= TOPIC_IDS_SINCE else self.topic.name
        return (topic, self.index, producer_id, epoch), sequence

    def done(self) -> bool:
        """Return False: an append cannot be cancelled."""
        return False

    def set_result(self, reply: AppendReply) -> None:
        """Take the script's reply; a rejected batch may be sent again."""
        if self.attempts > 1:
            self.appender.end_resend(self)
        if reply.error:
            rejected = self.appender.rejected(self, reply)
            if rejected is None:
                return
            reply = rejected
        self.reply = reply
        self.finished(None if reply.error else reply)

    def set_exception(self, error: BaseException) -> None:
        """Take the failure of the call: whether Redis has stored the batch is unknown."""
        if self.attempts > 1:
            self.appender.end_resend(self)
        self.error = error
        self.appender.failed(self)
        self.finished(None)


@dataclass(eq=False, repr=False)
class PartitionAppender:
    """Sends the batches of every Produce request to their partitions' logs."""

    node: Node
    batcher: AppendBatcher
    unknown_producers: UnknownProducers
    read_cache: ReadCache
    memory: Memory
    copies: Copies
    epochs: LeaderEpochs

    def __post_init__(self) -> None:
        self._allowance = Allowance(TURN_BYTES)

    def prepare(self, append: PartitionAppend, transaction: int | None = None) -> None:
        """Validate the batch and make its call, or raise BadBatch.

        Raises OpensMuch if `prepare_in_thread` has to do it.
        """
        if self.memory.is_full and (reason := self.memory.refusal(append.topic)):
            raise BadBatch(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        before = self._allowance.opened
        try:
            append.call = self._call(append, transaction, self._allowance)
        finally:
            append.opened = self._allowance.opened - before

    async def prepare_in_thread(self, append: PartitionAppend, transaction: int | None) -> None:
        """Validate a batch that opens much, once Redis takes more. Raises BadBatch."""
        await self.node.store.room()
        allowance = Allowance()
        try:
            append.call = await in_thread(
                lambda: packed(self._call(append, transaction, allowance))
            )
        finally:
            append.opened += allowance.opened

    def _call(
        self, append: PartitionAppend, transaction: int | None, allowance: Allowance
    ) -> Call[AppendReply]:
        return prepare_append(
            append.topic,
            append.index,
            append.data,
            version=append.version,
            now_ms=int(time() * 1000),
            settings=self.node.settings(),
            transaction=transaction,
            allowance=allowance,
        )

    def submit(self, append: PartitionAppend) -> None:
        """Send a prepared append, or batch it with others."""
        topic = append.topic
        append.epoch = self.read_cache.connection_epoch()
        destination = (topic.name, append.index, topic.id, int(topic.policy.log_append_time))
        self.batcher.submit(destination, append.call, size_of(append.call), append)

    def stored(self, append: PartitionAppend, reply: AppendReply) -> None:
        """Count a stored batch and put it in the batch cache."""
        call, topic = append.call, append.topic
        if self.unknown_producers:
            self.unknown_producers.forget(append.producer[0])
        self.node.metrics.appended(
            topic.name, count_of(call) if reply.stored else 0, len(append.data)
        )
        if not reply.stored:
            return
        if reply.base >= 0:
            count = 1 if topic.is_bytes else count_of(call)
            self.epochs.saw(topic, append.index, reply.base + count)
        is_wanted = self.copies.appended(topic, append.index, len(append.data))
        cache = self.read_cache
        # A reply of another connection: the server in use now may lack the batch.
        if append.epoch != cache.connection_epoch():
            return
        if layout_of(topic).holds_batches and reply.append_time < 0:
            position = (topic, append.index, reply.previous, reply.base)
            cache.add_append(*position, call, is_wanted=is_wanted)

    def rejected(self, append: PartitionAppend, reply: AppendReply) -> AppendReply | None:
        """Return the reply to report for a rejection; None if the batch was sent again."""
        error = ErrorCode(reply.error)
        producer, sequence = append.producer
        call = self._next_call(append, error, producer, sequence)
        if call is not None:
            self.unknown_producers.begin_resend(producer)
            append.attempts += 1
            append.call = call
            append.epoch = self.read_cache.connection_epoch()
            send_append(self.node.store, call, append)
            return None
        if error in _GAPS and self.unknown_producers.is_early(producer, sequence):
            # For a gap, librdkafka sends all that is not acknowledged again, as a new epoch's.
            return replace(reply, error=ErrorCode.KAFKA_STORAGE_ERROR)
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            return replace(reply, error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if error.retriable:
            self.failed(append)
        elif append.attempts > 1:
            self.unknown_producers.forget(producer)
        return reply

    def failed(self, append: PartitionAppend) -> None:
        """Expect the producer to retry the batch."""
        producer, sequence = append.producer
        if sequence >= 0:
            self.unknown_producers.expect_retry(producer, sequence)

    def end_resend(self, append: PartitionAppend) -> None:
        """Count the reply to a batch that was sent again."""
        self.unknown_producers.end_resend(append.producer[0])

    def _next_call(
        self, append: PartitionAppend, error: ErrorCode, producer: ProducerKey, sequence: int
    ) -> Call[AppendReply] | None:
        """Return the call to send next for a batch of an unknown producer, None for none."""
        resend = False
        if error == ErrorCode.UNKNOWN_PRODUCER_ID:
            verdict = self.unknown_producers.decide(producer, sequence)
            if verdict == Verdict.START:
                return allow_expired_producer(append.call)
            resend = verdict == Verdict.RESEND
        elif error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            resend = self.unknown_producers.has_resends(producer)
        return append.call if resend and append.attempts < MAX_ATTEMPTS else None
