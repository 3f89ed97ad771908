--- broker.init_cluster_id  version 1  writes
--- The cluster has an id, and the caller knows it.
---
--- KEYS     cluster     hash   cluster id, leases, counters
--- ARGV     cluster_id  bytes  the cluster's id unless it has one already
--- RETURNS  error       int    a lib.codes value
---          cluster_id  bytes  the cluster's id
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")

local cluster = KEYS[1]
local cluster_id = ARGV[1]

-- Write. Only where there is none: a full Redis refuses it, and a broker has to start all the same.
local known = redis.call("HGET", cluster, "cluster_id")
if not known then
  redis.call("HSET", cluster, "cluster_id", cluster_id)
end
return { codes.NONE, known or cluster_id }
