"""Short dialogues about transactions, most of them bad input, for every version of an API.

A dialogue is a function of a `Side` and a version that returns the names of the error codes in the
broker's responses. Those of Apache Kafka 4.4 are in transaction_answers.json.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from korvet.base.errors import ErrorCode
from korvet.wire import batch_builder
from korvet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from korvet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.describe_transactions import DescribeTransactionsRequest
from korvet.wire.messages.end_txn import EndTxnRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from korvet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from korvet.wire.schema import Message
from korvet.wire.structs import NamedPartitions
from tests.support.raw_client import Peer, until

PATIENCE_S = 20.0
PASSING = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors upon which a client retries: Kafka responds to EndTxn before it writes the markers."""

OLD, NEW = 4, 5
"""EndTxn of the older protocol, and of KIP-890's second, with an epoch for each transaction."""
VERSIONS = {
    "InitProducerId": range(6),
    "AddPartitionsToTxn": range(4),
    "AddOffsetsToTxn": range(5),
    "EndTxn": range(6),
    "TxnOffsetCommit": range(7),
    "Produce": range(3, 14),
    "Verify": range(4, 6),
}
"""Versions that Apache Kafka 4.4 serves; `Verify` is AddPartitionsToTxn as brokers send it."""

Dialogue = Callable[["Side", int], list[str]]
TABLE: list[tuple[str, str, Dialogue]] = []


def about(api: str) -> Callable[[Dialogue], Dialogue]:
    """Register the function as a dialogue of each version of the API."""

    def noted(dialogue: Dialogue) -> Dialogue:
        TABLE.append((api, dialogue.__name__.replace("_", " "), dialogue))
        return dialogue

    return noted


def every() -> Iterator[tuple[str, int, str, Dialogue]]:
    """Yield API, version, name and function of all dialogues."""
    for api, name, dialogue in TABLE:
        for version in VERSIONS[api]:
            yield api, version, name, dialogue


@dataclass
class Side:
    """A client with one transactional id, one topic of two partitions and one group."""

    peer: Peer
    topic: str
    name: str
    group: str
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def init(
        self,
        version: int = 5,
        *,
        name: str | None = "",
        timeout_ms: int = 60_000,
        who: tuple[int, int] = (-1, -1),
    ) -> str:
        """Send InitProducerId; later requests use a new id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.name if name == "" else name,
            transaction_timeout_ms=timeout_ms,
            producer_id=who[0],
            producer_epoch=who[1],
        )
        answer = self._settled("InitProducerId", version, request, lambda a: a.error_code)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return said(answer.error_code)

    def add(
        self,
        version: int = 3,
        *partitions: int,
        verify: bool = False,
        topic: str = "",
        **who: Any,
    ) -> str:
        """Send AddPartitionsToTxn; return the codes of all partitions."""
        asked = [NamedPartitions(name=topic or self.topic, partitions=list(partitions or (0,)))]
        name, producer_id, epoch = self._who(**who)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=asked,
        )
        if version >= 4:
            row = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify,
                topics=asked,
            )
            request = AddPartitionsToTxnRequest(transactions=[row])

        def codes(answer: Any) -> list[int]:
            topics = answer.results_by_topic_v3_and_below
            if version >= 4:
                topics = answer.results_by_transaction[0].topic_results
            rows = [row for each in topics for row in each.results_by_partition]
            rows.sort(key=lambda row: row.partition_index)
            return [row.partition_error_code for row in rows]

        answer = self._settled("AddPartitionsToTxn", version, request, lambda a: codes(a)[0])
        return " ".join(said(code) for code in codes(answer))

    def offsets(self, version: int = 4, *, group: str | None = None, **who: Any) -> str:
        """Send AddOffsetsToTxn."""
        name, producer_id, epoch = self._who(**who)
        request = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=self.group if group is None else group,
        )
        answer = self._settled("AddOffsetsToTxn", version, request, lambda a: a.error_code)
        return said(answer.error_code)

    def consumer(self) -> tuple[str, int]:
        """Join the group by the consumer protocol (KIP-848); return member id and epoch."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=f"member of {self.group}",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        answer = self._settled("ConsumerGroupHeartbeat", 1, request, lambda a: a.error_code)
        return answer.member_id, answer.member_epoch

    def commit_offset(
        self,
        version: int = 4,
        *,
        topic: str = "",
        partition: int = 0,
        metadata: str = "",
        generation: int = -1,
        member: str = "",
        **who: Any,
    ) -> str:
        """Send TxnOffsetCommit for one partition."""
        name, producer_id, epoch = self._who(**who)
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=1, committed_metadata=metadata
        )
        asked = TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[row])
        if version >= 6:
            id = uuid4() if topic else self._topic_id()
            asked = TxnOffsetCommitRequestTopic(topic_id=id, partitions=[row])
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[asked],
        )

        def code(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return said(code(self._settled("TxnOffsetCommit", version, request, code)))

    def end(
        self, version: int = OLD, *, commit: bool = True, keep: bool = False, **who: Any
    ) -> str:
        """Send EndTxn; unless `keep`, later requests use the id and epoch of the response."""
        name, producer_id, epoch = self._who(**who)
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = self._settled("EndTxn", version, request, lambda a: a.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._wait_for_markers(name)
        if answer.error_code == ErrorCode.NONE and version >= NEW and not keep:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return said(answer.error_code)

    def produce(
        self, version: int = 11, *, partition: int = 0, plain: bool = False, **who: Any
    ) -> str:
        """Produce one record; with `plain` outside any transaction."""
        name, producer_id, epoch = self._who(**who)
        place = (producer_id, epoch, partition)
        sequence = self._sequences.get(place, 0)
        batch = batch_builder.build(
            [(0, int(time.time() * 1000), None, b"value", [])],
            transactional=not plain,
            producer=(producer_id, epoch, sequence),
        )
        row = PartitionProduceData(index=partition, records=bytes(batch))
        data = TopicProduceData(name=self.topic, partition_data=[row])
        if version >= 13:
            data = TopicProduceData(topic_id=self._topic_id(), partition_data=[row])
        request = ProduceRequest(
            transactional_id=name or None, acks=-1, timeout_ms=10_000, topic_data=[data]
        )

        def code(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        found = code(self._settled("Produce", version, request, code))
        if found == ErrorCode.NONE:
            self._sequences[place] = sequence + 1
        return said(found)

    def _who(
        self, name: str | None = None, producer_id: int | None = None, epoch: int | None = None
    ) -> tuple[str, int, int]:
        return (
            self.name if name is None else name,
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
        )

    def _wait_for_markers(self, name: str) -> None:
        """Wait until the markers are written.

        Kafka responds to EndTxn before; a partition's error then depends on timing.
        """
        request = DescribeTransactionsRequest(transactional_ids=[name])

        def ending() -> bool:
            answer = self.peer.ask("DescribeTransactions", 0, request)
            return bool(answer.transaction_states[0].transaction_state.startswith("Prepare"))

        assert until(lambda: not ending())

    def _topic_id(self) -> Any:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
        return self.peer.ask("Metadata", 12, asked).topics[0].topic_id

    def _settled(self, api: str, version: int, request: Message, code: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        answer = self.peer.ask(api, version, request)
        while code(answer) in PASSING and time.monotonic() < deadline:
            time.sleep(0.01)
            answer = self.peer.ask(api, version, request)
        return answer


def said(code: int) -> str:
    """Return the code's name."""
    return ErrorCode(code).name


def opened(side: Side) -> None:
    """Open a transaction of the older protocol with partition 0."""
    assert side.init() == "NONE"
    assert side.add(3, 0) == "NONE"


# InitProducerId


@about("InitProducerId")
def an_empty_id(side: Side, version: int) -> list[str]:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    return [said(side.peer.ask("InitProducerId", version, request).error_code)]


@about("InitProducerId")
def timeouts_of_0_and_16_minutes(side: Side, version: int) -> list[str]:
    return [side.init(version, timeout_ms=0), side.init(version, timeout_ms=960_000)]


@about("InitProducerId")
def a_producer_id_without_epoch_and_the_reverse(side: Side, version: int) -> list[str]:
    return [side.init(version, who=(7, -1)), side.init(version, who=(-1, 7))]


@about("InitProducerId")
def an_unknown_producer(side: Side, version: int) -> list[str]:
    return [side.init(version, who=(7, 7)), side.init(version, who=(8, 7))]


@about("InitProducerId")
def other_producers_and_epochs(side: Side, version: int) -> list[str]:
    side.init()
    side.init()
    who, epoch = side.producer_id, side.epoch
    tried = [(who + 7777, epoch), (who, epoch + 1), (who, epoch - 1), (who, epoch)]
    return [side.init(version, who=each) for each in tried]


@about("InitProducerId")
def again_while_a_transaction_is_open(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    before = side.epoch
    said_first = side.init(version)
    return [said_first, str(side.epoch > before), side.end(epoch=before), side.add(3, 0)]


@about("InitProducerId")
def again_with_the_own_epoch_while_a_transaction_is_open(side: Side, version: int) -> list[str]:
    opened(side)
    before = side.epoch
    return [side.init(version, who=(side.producer_id, before)), str(side.epoch > before)]


@about("InitProducerId")
def without_a_transactional_id(side: Side, version: int) -> list[str]:
    return [side.init(version, name=None), side.init(version, name=None, timeout_ms=0)]


# AddPartitionsToTxn and AddOffsetsToTxn


@about("AddPartitionsToTxn")
def partitions_by_the_wrong_producer(side: Side, version: int) -> list[str]:
    side.init()
    side.init()
    return [
        side.add(version, name=side.name + "-unknown"),
        side.add(version, name=""),
        side.add(version, producer_id=side.producer_id + 7777),
        side.add(version, epoch=side.epoch + 1),
        side.add(version, epoch=side.epoch - 1),
        side.add(version),
        side.add(version, epoch=side.epoch - 1),
    ]


@about("AddPartitionsToTxn")
def partitions_that_are_not_there(side: Side, version: int) -> list[str]:
    side.init()
    return [
        side.add(version, 0, 9),
        side.add(version, topic="no-such-topic"),
        side.add(version, 0, 1),
        side.add(version, 1),
    ]


@about("AddPartitionsToTxn")
def partitions_after_the_end(side: Side, version: int) -> list[str]:
    opened(side)
    old = side.epoch
    return [
        side.end(),
        side.add(version),
        side.end(NEW),
        side.add(version, epoch=old),
        side.add(version),
    ]


@about("AddOffsetsToTxn")
def offsets_by_the_wrong_producer(side: Side, version: int) -> list[str]:
    side.init()
    side.init()
    return [
        side.offsets(version, name=side.name + "-unknown"),
        side.offsets(version, name=""),
        side.offsets(version, producer_id=side.producer_id + 7777),
        side.offsets(version, epoch=side.epoch + 1),
        side.offsets(version, epoch=side.epoch - 1),
        side.offsets(version),
        side.offsets(version),
    ]


@about("AddOffsetsToTxn")
def offsets_of_a_group_without_a_name(side: Side, version: int) -> list[str]:
    side.init()
    return [side.offsets(version, group="")]


# EndTxn


@about("EndTxn")
def an_end_by_the_wrong_producer(side: Side, version: int) -> list[str]:
    side.init()
    opened(side)
    return [
        side.end(version, name=side.name + "-unknown"),
        side.end(version, name=""),
        side.end(version, producer_id=side.producer_id + 7777),
        side.end(version, epoch=side.epoch + 1),
        side.end(version, epoch=side.epoch - 1),
        side.end(version),
    ]


@about("EndTxn")
def a_commit_of_nothing(side: Side, version: int) -> list[str]:
    side.init()
    return [side.end(version)]


@about("EndTxn")
def an_abort_of_nothing(side: Side, version: int) -> list[str]:
    side.init()
    return [side.end(version, commit=False), side.end(version, commit=False)]


@about("EndTxn")
def a_commit_twice(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    return [side.end(version, keep=True), side.end(version, keep=True)]


@about("EndTxn")
def an_abort_twice(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    return [side.end(version, commit=False, keep=True), side.end(version, commit=False, keep=True)]


@about("EndTxn")
def a_commit_after_an_abort(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    first = side.end(version, commit=False, keep=True)
    return [first, side.end(version, commit=True, keep=True), side.end(version, commit=True)]


@about("EndTxn")
def an_abort_after_a_commit(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    return [side.end(version, keep=True), side.end(version, commit=False, keep=True)]


@about("EndTxn")
def a_commit_and_then_one_of_the_next_epoch(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    return [side.end(version), side.end(version), side.end(version, commit=False)]


@about("EndTxn")
def the_end_of_a_fenced_producer(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce()
    before = side.epoch
    side.init()
    return [side.end(version, epoch=before), side.end(version, epoch=before, commit=False)]


# TxnOffsetCommit


@about("TxnOffsetCommit")
def an_offset_of_the_wrong_producer(side: Side, version: int) -> list[str]:
    side.init()
    side.init()
    side.offsets()
    return [
        side.commit_offset(version, name=side.name + "-unknown"),
        side.commit_offset(version, name=""),
        side.commit_offset(version, producer_id=side.producer_id + 7777),
        side.commit_offset(version, epoch=side.epoch + 1),
        side.commit_offset(version, epoch=side.epoch - 1),
        side.commit_offset(version),
    ]


@about("TxnOffsetCommit")
def an_offset_of_a_group_outside_the_transaction(side: Side, version: int) -> list[str]:
    side.init()
    nothing_open = side.commit_offset(version)
    side.add(3, 0)
    return [nothing_open, side.commit_offset(version)]


@about("TxnOffsetCommit")
def an_offset_of_a_partition_that_is_not_there(side: Side, version: int) -> list[str]:
    side.init()
    side.offsets()
    return [
        side.commit_offset(version, topic="no-such-topic"),
        side.commit_offset(version, partition=9),
        side.commit_offset(version, metadata="m" * 5000),
    ]


@about("TxnOffsetCommit")
def an_offset_of_an_unknown_member(side: Side, version: int) -> list[str]:
    side.init()
    side.offsets()
    return [
        side.commit_offset(version, generation=3, member="nobody"),
        side.commit_offset(version, generation=3),
        side.commit_offset(version, member="nobody"),
    ]


@about("TxnOffsetCommit")
def an_offset_of_a_member_at_another_epoch(side: Side, version: int) -> list[str]:
    member, epoch = side.consumer()
    side.init()
    side.offsets()
    return [
        side.commit_offset(version, member=member, generation=epoch + 1),
        side.commit_offset(version, member=member, generation=epoch - 1),
        side.commit_offset(version, member=member),
        side.commit_offset(version, member=member, generation=-2),
        side.commit_offset(version, member="nobody", generation=epoch),
        side.commit_offset(version, generation=epoch),
        side.commit_offset(version),
        side.commit_offset(version, member=member, generation=epoch),
    ]


@about("TxnOffsetCommit")
def an_offset_after_the_end(side: Side, version: int) -> list[str]:
    side.init()
    side.offsets()
    before = side.epoch
    first = [side.commit_offset(version), side.end()]
    return [*first, side.commit_offset(version, epoch=before)]


@about("TxnOffsetCommit")
def an_offset_after_the_end_with_the_epoch_before(side: Side, version: int) -> list[str]:
    side.init()
    side.offsets()
    before = side.epoch
    first = [side.commit_offset(version), side.end(NEW)]
    return [*first, side.commit_offset(version, epoch=before), side.commit_offset(version)]


# Produce


@about("Produce")
def records_outside_the_transaction(side: Side, version: int) -> list[str]:
    side.init()
    nothing_open = side.produce(version)
    side.add(3, 1)
    return [nothing_open, side.produce(version), side.produce(version, partition=1)]


@about("Produce")
def records_of_the_wrong_producer(side: Side, version: int) -> list[str]:
    side.init()
    opened(side)
    first = side.produce(version)
    return [
        first,
        side.produce(version, name=side.name + "-unknown", partition=1),
        side.produce(version, producer_id=side.producer_id + 7777, partition=1),
        side.produce(version, epoch=side.epoch + 1, partition=1),
        side.produce(version, epoch=side.epoch - 1, partition=1),
        side.produce(version, epoch=side.epoch + 1),
        side.produce(version, epoch=side.epoch - 1),
    ]


@about("Produce")
def transactional_records_without_a_transactional_id(side: Side, version: int) -> list[str]:
    opened(side)
    return [side.produce(version, name="")]


@about("Produce")
def plain_records_in_an_open_transaction(side: Side, version: int) -> list[str]:
    opened(side)
    side.produce(version)
    return [side.produce(version, plain=True), side.produce(version, plain=True, partition=1)]


@about("Produce")
def records_after_the_end(side: Side, version: int) -> list[str]:
    opened(side)
    first = [side.produce(version), side.end()]
    return [*first, side.produce(version)]


@about("Produce")
def records_after_the_end_with_the_epoch_before(side: Side, version: int) -> list[str]:
    opened(side)
    before = side.epoch
    first = [side.produce(version), side.end(NEW)]
    return [
        *first,
        side.produce(version, epoch=before),
        side.produce(version),
        side.end(NEW),
    ]


@about("Produce")
def records_of_a_fenced_producer(side: Side, version: int) -> list[str]:
    opened(side)
    before = side.epoch
    first = side.produce(version)
    side.init()
    return [
        first,
        side.produce(version, epoch=before),
        side.produce(version, epoch=before, partition=1),
    ]


# AddPartitionsToTxn as brokers send it to each other


@about("Verify")
def partitions_in_and_outside(side: Side, version: int) -> list[str]:
    side.init()
    nothing_open = side.add(version, 0, verify=True)
    opened(side)
    return [
        nothing_open,
        side.add(version, 0, 1, verify=True),
        side.add(version, 0, 9, verify=True),
        side.add(version, 1),
        side.add(version, 0, 1, verify=True),
    ]


@about("Verify")
def a_question_about_the_wrong_producer(side: Side, version: int) -> list[str]:
    opened(side)
    return [
        side.add(version, verify=True, name=side.name + "-unknown"),
        side.add(version, verify=True, name=""),
        side.add(version, verify=True, producer_id=side.producer_id + 7777),
        side.add(version, verify=True, epoch=side.epoch + 1),
        side.add(version, verify=True, epoch=side.epoch - 1),
    ]
