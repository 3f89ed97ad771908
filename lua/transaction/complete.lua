--- transaction.complete  version 1  writes
--- End a transaction after all its markers are written: the next one can begin.
---
--- KEYS     transaction   hash  state of the transactional id
---          participants  set   partitions and groups in the transaction
--- ARGV     transaction   int   its number
--- RETURNS  error         int   a lib.codes value
---          done          int   1: this call ended it; 0: it had ended before
--- FULL     always: members are removed
--- COST     O(1), at most 4 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]
local round = tonumber(ARGV[1])

-- Write.
local t = txn_state.read(transaction)
if not t or t.round ~= round or not txn_state.is_ending(t) then
  return { codes.NONE, 0 }
end
t.state = t.state == "PrepareCommit" and "CompleteCommit" or "CompleteAbort"
t.updated = clock.now_ms()
if t.next_id >= 0 then
  t.previous_id, t.producer_id, t.next_id, t.epoch = t.producer_id, t.next_id, -1, 0
end
txn_state.write(transaction, t)
redis.call("UNLINK", members)
return { codes.NONE, 1 }
