"""AddPartitionsToTxn. Add partitions to a transaction.

Behaviour
- the partitions are added to the transaction first, then it is registered in each of them: a
  partition rejects transactional records of an unregistered transaction, so every open transaction
  gets its marker
- TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all; TOPIC_AUTHORIZATION_FAILED for topics that the
  client may not write to; from version 4 on CLUSTER_AUTHORIZATION_FAILED
- UNKNOWN_TOPIC_OR_PARTITION for missing ones, UNSUPPORTED_FOR_MESSAGE_FORMAT for topics with
  offset.mode=bytes; then OPERATION_NOT_ATTEMPTED for the others
- INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS for all; INVALID_REQUEST for
  an empty transactional id
- verify_only checks whether the partitions are in it: TRANSACTION_ABORTABLE if not
Versions
- v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH, v4 several transactions per request
"""

from collections.abc import Iterable

from korvet.base.errors import ErrorCode
from korvet.context import Context
from korvet.log.layouts import layout_of
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType
from korvet.topics.table import Topic
from korvet.transactions.coordinator import TransactionCoordinator
from korvet.transactions.members import member_names, partition_member
from korvet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from korvet.wire.structs import NamedPartitions

TopicPartition = tuple[str, int]
Outcome = dict[TopicPartition, ErrorCode]
BROKERS_SINCE = 4
"""The first version that brokers use among themselves: it needs CLUSTER_ACTION."""
BEGIN_ERRORS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors of log.begin_txn, and those of the response for them."""


async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: Context
) -> AddPartitionsToTxnResponse:
    if context.version >= BROKERS_SINCE:
        if not context.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=await _results(asked, context),
                )
                for asked in request.transactions
            ]
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(asked, context))


async def _results(
    asked: AddPartitionsToTxnTransaction, context: Context
) -> list[AddPartitionsToTxnTopicResult]:
    places = [(topic.name, number) for topic in asked.topics for number in topic.partitions]
    outcome = await _outcome(asked, places, context)
    return [_topic_result(topic, outcome, context.version) for topic in asked.topics]


def _topic_result(
    topic: NamedPartitions, outcome: Outcome, version: int
) -> AddPartitionsToTxnTopicResult:
    rows = []
    for number in topic.partitions:
        error = outcome[topic.name, number]
        if error == ErrorCode.PRODUCER_FENCED and version < 2:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        rows.append(
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=error)
        )
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=rows)


async def _outcome(
    asked: AddPartitionsToTxnTransaction, places: list[TopicPartition], context: Context
) -> Outcome:
    if not asked.transactional_id:
        return dict.fromkeys(places, ErrorCode.INVALID_REQUEST)
    if context.version < BROKERS_SINCE and not context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id
    ):
        return dict.fromkeys(places, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = {name: await context.topics.get(name) for name, _ in places}
    denied = _denied_topics(topics, context)
    known: list[tuple[Topic, int]] = []
    missing: Outcome = {}
    for name, number in places:
        topic = topics[name]
        if name in denied:
            missing[name, number] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is not None and not layout_of(topic).takes_transactions:
            missing[name, number] = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        elif topic is not None and 0 <= number < topic.partitions:
            known.append((topic, number))
        else:
            missing[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if missing:
        return dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | missing
    if asked.verify_only:
        return await _verify(asked, places, context.transactions)
    return await _add(asked, known, context)


def _denied_topics(names: Iterable[str], context: Context) -> set[str]:
    """Return the topics that the client may not write to; a broker may write to all."""
    if context.version >= BROKERS_SINCE:
        return set()
    return {name for name in names if not context.allows(Operation.WRITE, ResourceType.TOPIC, name)}


async def _add(
    asked: AddPartitionsToTxnTransaction, known: list[tuple[Topic, int]], context: Context
) -> Outcome:
    who = (asked.transactional_id, asked.producer_id, asked.producer_epoch)
    places = [(topic.name, number) for topic, number in known]
    members = [partition_member(*partition) for partition in places]
    reply = await context.transactions.add_members(*who, members)
    if reply.error:
        return dict.fromkeys(places, ErrorCode(reply.error))
    context.note_transaction(who, reply.transaction)
    began = await context.store.run_many(
        topic.partition(number).begin_txn(
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            transaction=reply.transaction,
        )
        for topic, number in known
    )
    errors = [ErrorCode(row.error) for row in began]
    return {
        partition: BEGIN_ERRORS.get(error, error)
        for partition, error in zip(places, errors, strict=True)
    }


async def _verify(
    asked: AddPartitionsToTxnTransaction,
    places: list[TopicPartition],
    transactions: TransactionCoordinator,
) -> Outcome:
    state = await transactions.describe(asked.transactional_id)
    if state.error or state.producer_id != asked.producer_id:
        return dict.fromkeys(places, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state.producer_epoch != asked.producer_epoch:
        return dict.fromkeys(places, ErrorCode.PRODUCER_FENCED)
    if state.state.startswith(b"Prepare"):
        return dict.fromkeys(places, ErrorCode.CONCURRENT_TRANSACTIONS)
    outside = ErrorCode.TRANSACTION_ABORTABLE
    members = set(member_names(state.members)) if state.state == b"Ongoing" else set()
    return {
        partition: ErrorCode.NONE if partition_member(*partition) in members else outside
        for partition in places
    }
