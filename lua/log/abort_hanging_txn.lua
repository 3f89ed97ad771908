--- log.abort_hanging_txn  version 1  writes
--- A transaction that nobody will end is over in this partition: its marker stands in the log.
---
--- KEYS     stream             stream  the partition's records
---          log                hash    the partition's state
---          producers          hash    producer id -> epoch, last five batches, transaction
---          open_txns          zset    producer id -> end of the log before its open transaction
---          aborted_txns       zset    "producer id:first:stable after it" -> offset of the marker
--- ARGV     topic_id           bytes   the topic the caller believes in, 32 hex digits
---          producer_id        int     whose transaction it is
---          producer_epoch     int     the epoch its next batches need at least
---          coordinator_epoch  int     who says so; that of whoever ended transactions here before is 0
---          raised             int     1: the producer's epoch has to be above the one known here
---          transaction        int     the number of the open one, of which the caller knows that nobody
---                                     will end it; -1 while the caller does not know the number
---          committed          int     1: its records count; 0: they never do
---          size               int     bytes the marker counts for
---          fields...          bytes   the marker's entry, fields and values
--- RETURNS  error              int     a lib.codes value
---          transaction        int     the number of the one that is open and of which the caller does not
---                                     know: nothing was done; -1 for none
---          offset             int     where the marker stands, -1 when there was nothing to end
---          stable             int     the last stable offset after it, -1 when no transaction is open
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_PRODUCER_EPOCH
---          TRANSACTION_COORDINATOR_FENCED
--- COST     O(log open transactions), at most 14 calls
--- NOTES    A number does not fall, and who was not in the transaction of a number never will be: what
---          the caller found out about it between two calls is still true.
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_marker = require("lib.txn_marker")
local producer_state = require("lib.producer_state")

local keys = KEYS
local topic_id, producer_id, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local coordinator_epoch, raised, transaction = tonumber(ARGV[4]), ARGV[5] == "1", tonumber(ARGV[6])
local committed, size = ARGV[7] == "1", tonumber(ARGV[8])
local FIELDS = 9
local COORDINATOR_EPOCH = 0

-- Check. Refusals live here.
local log, refusal = txn_marker.open(keys, topic_id)
if not log then
  return { refusal, -1, -1, -1 }
end
local known = producer_state.read(redis.call("HGET", log.producers, producer_id))
if known and (epoch < known.epoch or (raised and epoch == known.epoch)) then
  return { codes.INVALID_PRODUCER_EPOCH, -1, -1, log.stable }
end
if known and known.first == producer_state.ENDED and coordinator_epoch < COORDINATOR_EPOCH then
  return { codes.TRANSACTION_COORDINATOR_FENCED, -1, -1, log.stable }
end

-- Write.
if not producer_state.is_open(known) and not txn_marker.first(log, producer_id, known) then
  return { codes.NONE, -1, -1, log.stable }
end
local round = known and known.round or 0
if round ~= transaction then
  return { codes.NONE, round, -1, log.stable }
end
local at, stable = txn_marker.put(
  log, producer_id, known, epoch, transaction, committed, size, ARGV, FIELDS, clock.now_ms()
)
return { codes.NONE, -1, at, stable }
