--- group.txn_complete  version 1  writes
--- A transaction is over in a group: its offsets are committed, or gone.
---
--- KEYS     group           hash  state of the group
---          offsets         hash  `korvet:<topic>:<p>` -> what lib.offset_commit says
---          txn_offsets     hash  producer id -> its newest transaction here; producer id, a space and
---                                a partition's stream key -> what lib.offset_commit says
--- ARGV     producer_id     int   whose transaction it is
---          producer_epoch  int   the epoch its next offsets need at least
---          transaction     int   its number
---          committed       int   1: the offsets count; 0: they never do
--- RETURNS  error           int   a lib.codes value
---          committed       list  stream key and commit, flat, of what counts now
--- COST     O(offsets that wait in the group), at most 31 calls + 4 per row
--- NOTES    Called again for the same transaction, or for one before it, nothing changes. A group that
---          was deleted meanwhile gets nothing back.
---          What was committed after the transaction's offsets came, by a member or by a later
---          transaction that ended earlier, stands: the group does not go back. What is remembered of a group that does not exist,
---          lest late offsets wait for ever, is remembered for a day.
local codes = require("lib.codes")
local clock = require("lib.clock")
local offset_commit = require("lib.offset_commit")
local key_types = require("lib.key_types")
local txn_offset_commit = require("lib.txn_offset_commit")

local group, offsets, txn_offsets = KEYS[1], KEYS[2], KEYS[3]
local producer_id, epoch, round = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local committed = ARGV[4] == "1"
local DAY_MS = 86400000

local last = txn_offset_commit.last(txn_offsets, producer_id)
if last and (last.round > round or (last.round == round and not last.open)) then
  return { codes.NONE, {} }
end
key_types.hashes(KEYS, 2, 2)

-- Write.
local now_ms = clock.now_ms()
txn_offset_commit.turn(txn_offsets, producer_id, round, math.max(epoch, last and last.epoch or 0), false, now_ms)
local counts, exists = {}, redis.call("EXISTS", group) == 1
if last then
  local rows = txn_offset_commit.take(txn_offsets, producer_id)
  if committed and exists then
    for i = 1, #rows, 2 do
      local field, text = rows[i], rows[i + 1]
      local stored = redis.call("HGET", offsets, field)
      if not stored or offset_commit.times(stored) <= offset_commit.times(text) then
        redis.call("HSET", offsets, field, text)
        counts[#counts + 1], counts[#counts + 2] = field, text
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
return { codes.NONE, counts }
