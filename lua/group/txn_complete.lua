--- group.txn_complete  version 1  writes
--- Complete a transaction in a group: commit its pending offsets, or discard them.
---
--- KEYS     group           hash  state of the group
---          offsets         hash  `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          txn_offsets     hash  pending commits, as in lib.txn_offset_commit
--- ARGV     producer_id     int   the transaction's producer
---          producer_epoch  int   the least epoch of its next transaction's offsets
---          transaction     int   the transaction's number
---          committed       int   1: commit the offsets; 0: discard them
--- RETURNS  error           int   a lib.codes value
---          committed       list  stream key and commit, flat, of what was committed
--- FULL     always: pending commits replace commits
--- COST     O(pending offsets of the group), at most 31 calls + 4 per row
--- NOTES    A repeated call for the transaction, or one for an earlier transaction, changes
---          nothing. A deleted group gets no offsets.
---          An offset that was committed after the pending one was stored is kept, by a member or
---          by another transaction: committed offsets do not go back. For a group that does not
---          exist the transaction number is kept for a day: late offsets would never be completed.
local codes = require("lib.codes")
local clock = require("lib.clock")
local key_types = require("lib.key_types")
local offset_commit = require("lib.offset_commit")
local txn_offset_commit = require("lib.txn_offset_commit")

local group, offsets, txn_offsets = KEYS[1], KEYS[2], KEYS[3]
local producer_id, epoch, number = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local committed = ARGV[4] == "1"
local DAY_MS = 86400000

local last = txn_offset_commit.last(txn_offsets, producer_id)
if last and (last.number > number or (last.number == number and not last.open)) then
  return { codes.NONE, {} }
end
key_types.hashes(KEYS, 2, 2)

-- Write.
local now_ms = clock.now_ms()
local least_epoch = math.max(epoch, last and last.epoch or 0)
txn_offset_commit.put_last(txn_offsets, producer_id, number, least_epoch, false, now_ms)
local written, exists = {}, redis.call("EXISTS", group) == 1
if last then
  local rows = txn_offset_commit.take(txn_offsets, producer_id)
  if committed and exists then
    for i = 1, #rows, 2 do
      local field, text = rows[i], rows[i + 1]
      local stored = redis.call("HGET", offsets, field)
      if not stored or offset_commit.times(stored) <= offset_commit.times(text) then
        redis.call("HSET", offsets, field, text)
        written[#written + 1], written[#written + 2] = field, text
      end
    end
  end
end
if not last then
  txn_offset_commit.prune(txn_offsets, now_ms)
end
if not exists then
  redis.call("PEXPIRE", txn_offsets, DAY_MS)
end
return { codes.NONE, written }
