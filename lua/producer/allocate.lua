--- producer.allocate  version 1  writes
--- A producer id nobody has had before is handed out.
---
--- KEYS     cluster      hash  counters
--- RETURNS  error        int   a lib.codes value
---          producer_id  int   the new id, from 0
--- COST     O(1), at most 1 calls
local codes = require("lib.codes")

local cluster = KEYS[1]

-- Write.
return { codes.NONE, redis.call("HINCRBY", cluster, "producer_ids", 1) - 1 }
