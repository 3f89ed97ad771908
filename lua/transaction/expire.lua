--- transaction.expire  version 1  writes
--- Apply a transactional id's timeouts: abort a transaction open too long, return an unfinished
--- end, delete an unused id.
---
--- KEYS     transaction            hash  state of the transactional id
---          participants           set   partitions and groups in the open transaction
--- ARGV     forget_ms              int   delete an id without a transaction this long after its
---                                       last use
---          completion_timeout_ms  int   return an unfinished end this long after its decision
--- RETURNS  error                  int   a lib.codes value
---          wait_ms                int   check again after this long; -1: the id is deleted
---          pending                int   1: write the markers, then call transaction.complete
---          committed              int   1: the end is a commit
---          marker_id              int   producer id of the markers
---          marker_epoch           int   epoch of the markers
---          transaction            int   the transaction's number
---          members                list  p:<topic>:<partition> and g:<group id>
--- FULL     always: the state is replaced, or the id is removed
--- COST     O(members), at most 5 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]
local forget_ms, completion_timeout_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local function later(ms)
  return { codes.NONE, ms, 0, 0, -1, -1, -1, {} }
end

-- Write.
local t = txn_state.read(transaction)
if not t then
  return later(-1)
end
local now_ms, participants = clock.now_ms(), nil
if t.updated > now_ms then
  -- The clock was set back: its timeouts begin now.
  t.started, t.updated = math.min(t.started, now_ms), now_ms
  txn_state.write(transaction, t)
end
if t.state == "Ongoing" then
  local left = t.started + t.timeout_ms - now_ms
  if left > 0 then
    return later(left)
  end
  participants = redis.call("SMEMBERS", members)
  txn_state.fence(t, now_ms)
  txn_state.write(transaction, t)
elseif not txn_state.is_ending(t) then
  if now_ms - t.updated >= forget_ms then
    redis.call("UNLINK", transaction, members)
    return later(-1)
  end
  return later(math.min(t.timeout_ms, forget_ms - (now_ms - t.updated)))
elseif now_ms - t.updated < completion_timeout_ms then
  return later(completion_timeout_ms - (now_ms - t.updated))
end
return {
  codes.NONE, 0, 1, t.state == "PrepareCommit" and 1 or 0, t.producer_id, t.epoch, t.round,
  participants or redis.call("SMEMBERS", members),
}
