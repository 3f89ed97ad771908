"""Produce. Append record batches to partitions.

Behaviour
- a partition's batch is stored whole or not at all, by one call of log.append, or by one of
  log.append_many together with other batches; above 2,000 records in layout `record` in parts, and
  if another broker appends between two parts, the response has no base offset (-1)
- per partition: UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID by id), CORRUPT_MESSAGE,
  INVALID_RECORD (not exactly one batch, control batch, wrong magic), MESSAGE_TOO_LARGE
  (max.message.bytes), INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
  OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH; a duplicate batch gets the offset of the
  stored one
- a producer whose state expired in the partition may continue at any sequence (KIP-360). If one of
  its batches was rejected with a retriable error, later ones get OUT_OF_ORDER_SEQUENCE_NUMBER until
  the retry is stored
- INVALID_RECORD for a missing key and INVALID_TIMESTAMP name the records at fault (record_errors)
- with delivery.schedule.enable, records with the header korvet-deliver-at or korvet-delay-ms wait
  until they are due: the base offset of their batch is -1. INVALID_RECORD for an invalid time and
  in a transaction, POLICY_VIOLATION if too many wait
- with dedupe.window.ms, a record whose header korvet-dedupe-id the partition knows is not stored:
  its offset is that of the first one, and the base offset is -1 if the batch then has no
  consecutive offsets. INVALID_RECORD for an id above 128 bytes and in a transaction
- transactional batches: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id,
  INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, and INVALID_TXN_STATE for a partition that is
  not in the transaction (TRANSACTION_ABORTABLE from version 11 on); INVALID_TXN_STATE for a batch
  outside of transactions from a producer with an open transaction in the partition
- acks other than 0, 1, -1: INVALID_REQUIRED_ACKS; versions 0-2 also take the number N of copies.
  For that, and for acks=-1 by the topic's durability and min.insync.replicas: NOT_ENOUGH_REPLICAS,
  nothing written if Redis has too few replicas, NOT_ENOUGH_REPLICAS_AFTER_APPEND if replicas or
  disk do not have the batch within timeout_ms
- acks=0 has no response; a rejected batch closes the connection, as in Kafka
- KAFKA_STORAGE_ERROR if Redis fails, or for a topic that holds more than its share of a Redis above
  local.memory.bytes: clients retry
- MESSAGE_TOO_LARGE for a batch with a value above Redis's proto-max-bulk-len, as stored
- a missing topic is created if auto.create.topics.enable is set
Versions
- 0-2 message sets, v3 record batches, v7 zstd, v8 error messages, v12 partitions are enlisted in
  the transaction by being produced to (KIP-890), v13 topic ids
"""

from collections.abc import Awaitable

from korvet.context import Context
from korvet.wire.messages.produce import ProduceRequest, ProduceResponse


def produce(request: ProduceRequest, context: Context) -> Awaitable[ProduceResponse | None]:
    return context.services.produce.produce(
        request,
        context.version,
        context.release,
        context.may_create,
        context.charge_creation,
        context.session.count_opened,
    )
