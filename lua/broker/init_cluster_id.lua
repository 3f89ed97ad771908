--- broker.init_cluster_id  version 1  writes
--- Return the cluster's id, after storing the given one if there is none.
---
--- KEYS     cluster     hash   cluster id, leases, counters
--- ARGV     cluster_id  text   the id to store if the cluster has none
--- RETURNS  error       int    a lib.codes value
---          cluster_id  bytes  the cluster's id
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")
local init_field = require("lib.init_field")

local cluster = KEYS[1]
local cluster_id = ARGV[1]

-- Write.
return { codes.NONE, init_field.once(cluster, "cluster_id", cluster_id) }
