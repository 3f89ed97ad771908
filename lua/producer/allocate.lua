--- producer.allocate  version 1  writes
--- Allocate an unused producer id.
---
--- KEYS     cluster      hash  counters
--- RETURNS  error        int   a lib.codes value
---          producer_id  int   the new id, higher than every id allocated before
--- FULL     always: a number is raised
--- COST     O(1), at most 3 calls
--- NOTES    Ids start at the current ms times 32. If a failover resets the counter, two producers
---          still get different ids: with equal ids, one's batches would count as duplicates of
---          the other's. More than 32 ids per ms run ahead of the clock.
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
