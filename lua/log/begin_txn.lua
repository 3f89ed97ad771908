--- log.begin_txn  version 1  writes
--- Register a producer's transaction in a partition before its first record.
---
--- KEYS     log             hash  the partition's state
---          producers       hash  producer id -> epoch, last five batches, transaction
--- ARGV     topic_id        text  the topic's id as the caller knows it, 32 hex digits
---          producer_id     int   whose transaction it is
---          producer_epoch  int   its epoch
---          transaction     int   its number: a producer's later transactions have higher ones
--- RETURNS  error           int   a lib.codes value
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_PRODUCER_EPOCH INVALID_TXN_STATE
--- FULL     always: one entry per producer with an open transaction
--- COST     O(1), at most 4 calls
--- NOTES    INVALID_TXN_STATE: the transaction, or a later one, has ended here, so a delayed
---          AddPartitionsToTxn opens no transaction without an end. Or an earlier transaction is
---          still open here, because Redis lost its coordinator's state. The state of a producer
---          unknown here gets -2 as its next sequence: it may have expired.
local codes = require("lib.codes")
local clock = require("lib.clock")
local producer_state = require("lib.producer_state")

local log, producers = KEYS[1], KEYS[2]
local topic_id, producer_id = ARGV[1], ARGV[2]
local epoch, transaction = tonumber(ARGV[3]), tonumber(ARGV[4])

-- Check.
local current = redis.call("HGET", log, "topic_id")
if current ~= topic_id then
  return { current and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION }
end
local known = producer_state.read(redis.call("HGET", producers, producer_id))
if known and epoch < known.epoch then
  return { codes.INVALID_PRODUCER_EPOCH }
end
if not producer_state.may_append(known, epoch, transaction) then
  return { codes.INVALID_TXN_STATE }
end

-- Write.
if known and known.round == transaction and known.epoch == epoch then
  return { codes.NONE }
end
local state = producer_state.with_transaction(
  known, epoch, clock.now_ms(), transaction, producer_state.NO_RECORDS
)
redis.call("HSET", producers, producer_id, state)
return { codes.NONE }
