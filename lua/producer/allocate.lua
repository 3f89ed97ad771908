--- producer.allocate  version 1  writes
--- A producer id nobody has had before is handed out.
---
--- KEYS     cluster      hash  counters
--- RETURNS  error        int   a lib.codes value
---          producer_id  int   the new id, larger than all before
--- COST     O(1), at most 3 calls
--- NOTES    Ids begin where the time is, at 32 a millisecond: a failover that sets the counter back gives
---          no id to two producers, of whom one's batches would be taken for repetitions of the other's.
---          More than 32 a millisecond go ahead of the time.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local cluster = KEYS[1]
local EACH_MS = 32

-- Write.
local id = redis.call("HINCRBY", cluster, "producer_ids", 1) - 1
local earliest = clock.now_ms() * EACH_MS
if id < earliest then
  id = earliest
  redis.call("HSET", cluster, "producer_ids", num.text(id + 1))
end
return { codes.NONE, id }
