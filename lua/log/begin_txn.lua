--- log.begin_txn  version 1  writes
--- A partition knows of a producer's transaction before the first record of it arrives.
---
--- KEYS     log             hash   the partition's state
---          producers       hash   producer id -> epoch, last five batches, transaction
--- ARGV     topic_id        bytes  the topic the caller believes in, 32 hex digits
---          producer_id     int    whose transaction it is
---          producer_epoch  int    its epoch
---          transaction     int    its number, which never falls from one of a producer to the next
--- RETURNS  error           int    a lib.codes value
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_PRODUCER_EPOCH INVALID_TXN_STATE
--- COST     O(1), at most 4 calls
--- NOTES    INVALID_TXN_STATE: the partition has seen this transaction's end, or a later one. So an
---          AddPartitionsToTxn that was delayed on its way opens nothing that nobody would close. Or what
---          an earlier transaction left here is still open, as Redis lost who was to end it.
---          Of a producer unknown here it notes that it may have been forgotten (-2 in place of its next
---          sequence); scripts before log.append 12 take it for one that begins at sequence 0.
local codes = require("lib.codes")
local clock = require("lib.clock")
local producer_state = require("lib.producer_state")

local log, producers = KEYS[1], KEYS[2]
local topic_id, producer_id = ARGV[1], ARGV[2]
local epoch, transaction = tonumber(ARGV[3]), tonumber(ARGV[4])

-- Check. Refusals live here.
local current = redis.call("HGET", log, "topic_id")
if not current then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION }
end
if current ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID }
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
redis.call(
  "HSET", producers, producer_id,
  producer_state.turn(known, epoch, clock.now_ms(), transaction, producer_state.JOINED)
)
return { codes.NONE }
