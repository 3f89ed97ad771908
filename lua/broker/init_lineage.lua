--- broker.init_lineage  version 1  writes
--- Return the lineage of the snapshots of this Redis, after storing the given one if there is none.
---
--- KEYS     cluster  hash   cluster id, leases, counters
--- ARGV     lineage  text   the lineage to store if Redis has none
--- RETURNS  error    int    a lib.codes value
---          lineage  bytes  the lineage
--- COST     O(1), at most 2 calls
--- NOTES    A Redis that lost its data has no lineage, or another one than the snapshots have: a
---          broker then writes none over them.
local codes = require("lib.codes")
local init_field = require("lib.init_field")

local cluster = KEYS[1]
local lineage = ARGV[1]

-- Write.
return { codes.NONE, init_field.once(cluster, "lineage", lineage) }
