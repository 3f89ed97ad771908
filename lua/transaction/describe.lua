--- transaction.describe  version 1  reads
--- Return the state of a transactional id.
---
--- KEYS     transaction     hash   state of the transactional id
---          participants    set    partitions and groups in the open transaction
--- RETURNS  error           int    a lib.codes value
---          state           bytes  Kafka's name of the state, empty for an unknown id
---          producer_id     int    the producer id
---          producer_epoch  int    its epoch
---          timeout_ms      int    how long a transaction may stay open
---          started         int    when the newest transaction began, ms, -1 for never
---          now_ms          int    Redis's clock
---          transaction     int    the number of the newest transaction
---          members         list   p:<topic>:<partition> and g:<group id>
--- REFUSES  TRANSACTIONAL_ID_NOT_FOUND
--- COST     O(members), at most 3 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local txn_state = require("lib.txn_state")

local transaction, members = KEYS[1], KEYS[2]

local t = txn_state.read(transaction)
if not t then
  return { codes.TRANSACTIONAL_ID_NOT_FOUND, "", -1, -1, -1, -1, -1, -1, {} }
end
return {
  codes.NONE, t.state, t.producer_id, t.epoch, t.timeout_ms, t.started, clock.now_ms(), t.round,
  redis.call("SMEMBERS", members),
}
