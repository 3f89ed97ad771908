--- group.txn_complete  version 1  writes
--- Complete a transaction in a group: commit its pending offsets, or discard them.
---
--- KEYS     group           hash  state of the group
---          offsets         hash  `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          txn_offsets     hash  producer id -> its newest transaction
---          txn_pending     hash  pending commits, as in lib.txn_offset_commit
--- ARGV     producer_id     int   the transaction's producer
---          producer_epoch  int   the least epoch of its next transaction's offsets
---          transaction     int   the transaction's number
---          committed       int   1: commit the offsets; 0: discard them
--- RETURNS  error           int   a lib.codes value
---          committed       list  stream key and commit, flat, of what was committed
---          more            int   1: pending commits are left, call again
--- FULL     always: pending commits replace commits
--- COST     O(500), at most 40 calls
--- NOTES    A call completes 500 offsets, and the transaction is open until the last one: any
---          broker may continue. A repeated call for an ended transaction, or one for an earlier
---          transaction, changes nothing. A deleted group gets no offsets.
---          An offset that was committed after the pending one was stored is kept, by a member or
---          by another transaction: committed offsets do not go back. For a group that does not
---          exist the transaction number is kept for a day: late offsets would never be completed.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local clock = require("lib.clock")
local key_types = require("lib.key_types")
local offset_commit = require("lib.offset_commit")
local txn_offset_commit = require("lib.txn_offset_commit")

local group, offsets, txn_offsets, txn_pending = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local producer_id, epoch, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local committed = ARGV[4] == "1"
local DAY_MS, STEP = 86400000, 500

local last = txn_offset_commit.last(txn_offsets, producer_id)
if last and (last.number > number or (last.number == number and not last.open)) then
  return { codes.NONE, {}, 0 }
end
key_types.hashes(KEYS, 2, 2)
key_types.hashes(KEYS, 4, 4)

-- Write.
local now_ms = clock.now_ms()
local least_epoch = math.max(epoch, last and last.epoch or 0)
local pending = last and last.pending or 0
local left = math.max(pending - STEP, 0)
txn_offset_commit.put_last(
  txn_offsets, producer_id, number, least_epoch, left > 0, now_ms, left
)
local exists, flat = redis.call("EXISTS", group) == 1, {}
local names, commits = txn_offset_commit.take(txn_pending, producer_id, pending, STEP)
if committed and exists then
  local stored = chunks.list("HMGET", offsets, names)
  for i, name in ipairs(names) do
    local text, known = commits[i], stored[i]
    if text and not (known and offset_commit.times(known) > offset_commit.times(text)) then
      flat[#flat + 1], flat[#flat + 2] = name, text
    end
  end
  chunks.call("HSET", offsets, flat)
end
if not last then
  txn_offset_commit.prune(txn_offsets, now_ms)
end
if not exists then
  redis.call("PEXPIRE", txn_offsets, DAY_MS)
end
return { codes.NONE, flat, left > 0 and 1 or 0 }
