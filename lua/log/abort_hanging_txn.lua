--- log.abort_hanging_txn  version 1  writes
--- End a hanging transaction in a partition: write its marker to the log (KIP-664).
---
--- KEYS     stream             stream  the partition's records
---          log                hash    the partition's state
---          producers          hash    producer id -> epoch, last five batches, transaction
---          open_txns          zset    producer id -> end of the log before its open transaction
---          aborted_txns       zset    "producer id:first:stable after it" -> offset of the marker
--- ARGV     topic_id           text    the topic id the caller expects, 32 hex digits
---          producer_id        int     whose transaction it is
---          producer_epoch     int     the min epoch of its next batches
---          coordinator_epoch  int     the epoch of the coordinator that ends it; Korvet's have 0
---          raised             int     1: producer_epoch must be above the stored epoch, not equal
---          transaction        int     the number of the open transaction, once the caller has
---                                     verified that it is hanging; -1 until then
---          committed          int     1: commit; 0: abort
---          size               int     bytes that the marker adds to the log's size
---          fields...          bytes   the marker's entry, fields and values
--- RETURNS  error              int     a lib.codes value
---          transaction        int     the number of the open transaction if it differs from
---                                     `transaction`: nothing was written; else -1
---          offset             int     the marker's offset, -1 if there was nothing to end
---          stable             int     the new last stable offset, -1 if no transaction is open
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_PRODUCER_EPOCH
---          TRANSACTION_COORDINATOR_FENCED
--- FULL     always: one marker, and readers go past the transaction
--- COST     O(log open transactions), at most 23 calls + 4 per new_ms
--- NOTES    The number never decreases, and a transaction that no transactional id has is in none
---          later: what the caller has verified between two calls is still true.
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_marker = require("lib.txn_marker")
local producer_state = require("lib.producer_state")

local topic_id, producer_id, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local coordinator_epoch, raised, transaction = tonumber(ARGV[4]), ARGV[5] == "1", tonumber(ARGV[6])
local committed, size = ARGV[7] == "1", tonumber(ARGV[8])
local FIELDS = 9
local COORDINATOR_EPOCH = 0

-- Check.
local log, refusal = txn_marker.open(KEYS, topic_id)
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
if not producer_state.is_open(known) and not txn_marker.first_offset(log, producer_id, known) then
  return { codes.NONE, -1, -1, log.stable }
end
local round = known and known.round or 0
if round ~= transaction then
  return { codes.NONE, round, -1, log.stable }
end
local at, stable = txn_marker.write(
  log, producer_id, known, epoch, transaction, committed, size, ARGV, FIELDS, clock.now_ms()
)
return { codes.NONE, -1, at, stable }
