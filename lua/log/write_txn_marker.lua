--- log.write_txn_marker  version 1  writes
--- End a producer's transaction in a partition: write its marker to the log, once.
---
--- KEYS     stream          stream  the partition's records
---          log             hash    the partition's state
---          producers       hash    producer id -> epoch, last five batches, transaction
---          open_txns       zset    producer id -> end of the log before its open transaction
---          aborted_txns    zset    "producer id:first:stable after it" -> offset of the marker
--- ARGV     topic_id        text    the topic id the caller expects, 32 hex digits
---          producer_id     int     whose transaction it is
---          producer_epoch  int     the min epoch of its next batches
---          transaction     int     its number
---          committed       int     1: commit; 0: abort
---          size            int     bytes that the marker adds to the log's size
---          fields...       bytes   the marker's entry, fields and values
--- RETURNS  error           int     a lib.codes value
---          offset          int     the marker's offset, -1 if there was nothing to end
---          stable          int     the new last stable offset, -1 if no transaction is open
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_TXN_STATE
--- FULL     always: one marker per transaction, whose records are there
--- COST     O(log open transactions), at most 23 calls + 4 per new_ms
--- NOTES    A repeated call, or a call for an earlier transaction, changes nothing. A transaction
---          without records here gets no marker, but its end is stored. INVALID_TXN_STATE: an
---          earlier transaction is open here, since Redis has lost its end: a commit would commit
---          its records too, which may have been aborted. Abort the transaction here.
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_marker = require("lib.txn_marker")
local producer_state = require("lib.producer_state")

local topic_id, producer_id, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local transaction, committed, size = tonumber(ARGV[4]), ARGV[5] == "1", tonumber(ARGV[6])
local FIELDS = 7

-- Check.
local log, refusal = txn_marker.open(KEYS, topic_id)
if not log then
  return { refusal, -1, -1 }
end
local known = producer_state.read(redis.call("HGET", log.producers, producer_id))
local last_round = known and known.round or 0
if committed and last_round < transaction
  and producer_state.is_open(known) and known.first ~= producer_state.NO_RECORDS then
  return { codes.INVALID_TXN_STATE, -1, log.stable }
end

-- Write.
if last_round > transaction
  or (last_round == transaction and not producer_state.is_open(known)) then
  return { codes.NONE, -1, log.stable }
end
local at, stable = txn_marker.write(
  log, producer_id, known, epoch, transaction, committed, size, ARGV, FIELDS, clock.now_ms()
)
return { codes.NONE, at, stable }
