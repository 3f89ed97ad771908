--- transaction.add_partitions  version 1  writes
--- Add partitions and groups to a producer's transaction, and begin it if none is open.
---
--- KEYS     transaction     hash  state of the transactional id
---          participants    set   partitions and groups in the open transaction
--- ARGV     producer_id     int   the calling producer
---          producer_epoch  int   its epoch
---          members...      text  p:<topic>:<partition> or g:<group id>
--- RETURNS  error           int   a lib.codes value
---          transaction     int   the transaction's number among those of the id, -1 on an error
--- REFUSES  CONCURRENT_TRANSACTIONS INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED INVALID_TXN_STATE
--- FULL     always: one member per partition and id that exist
--- COST     O(members), at most 5 calls + 1 per members
--- NOTES    INVALID_TXN_STATE: the transaction would have more than 20,000 members, all of which
---          the script that ends it returns.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]
local producer_id, epoch = tonumber(ARGV[1]), tonumber(ARGV[2])
local MEMBERS, MOST = 3, 20000

-- Check.
local t = txn_state.read(transaction)
if t and txn_state.is_ending(t) and producer_id == t.next_id then
  return { codes.CONCURRENT_TRANSACTIONS, -1 }
end
if not t or t.producer_id ~= producer_id then
  return { codes.INVALID_PRODUCER_ID_MAPPING, -1 }
end
if t.epoch ~= epoch then
  return { codes.PRODUCER_FENCED, -1 }
end
if txn_state.is_ending(t) then
  return { codes.CONCURRENT_TRANSACTIONS, -1 }
end

if redis.call("SCARD", members) + #ARGV + 1 - MEMBERS > MOST then
  return { codes.INVALID_TXN_STATE, -1 }
end

-- Write. SADD first: if the key is not a set, nothing is written.
chunks.call("SADD", members, ARGV, MEMBERS)
if t.state ~= "Ongoing" then
  local now_ms = clock.now_ms()
  t.state, t.round, t.started, t.updated = "Ongoing", t.round + 1, now_ms, now_ms
  txn_state.write(transaction, t)
end
return { codes.NONE, t.round }
