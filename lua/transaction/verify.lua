--- transaction.verify  version 1  reads
--- Check that a partition or group is in a producer's open transaction.
---
--- KEYS     transaction     hash  state of the transactional id
---          participants    set   partitions and groups in the open transaction
--- ARGV     producer_id     int   the calling producer
---          producer_epoch  int   its epoch
---          member          text  p:<topic>:<partition> or g:<group id>
--- RETURNS  error           int   a lib.codes value
---          transaction     int   the transaction's number, -1 on an error
--- REFUSES  INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED CONCURRENT_TRANSACTIONS INVALID_TXN_STATE
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]
local producer_id, epoch, member = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local t = txn_state.read(transaction)
if not t or t.producer_id ~= producer_id then
  return { codes.INVALID_PRODUCER_ID_MAPPING, -1 }
end
if t.epoch ~= epoch then
  return { codes.PRODUCER_FENCED, -1 }
end
if txn_state.is_ending(t) then
  return { codes.CONCURRENT_TRANSACTIONS, -1 }
end
if t.state ~= "Ongoing" or redis.call("SISMEMBER", members, member) == 0 then
  return { codes.INVALID_TXN_STATE, -1 }
end
return { codes.NONE, t.round }
