--- broker.set_remote_storage  version 1  writes
--- Store the URL of the remote store, so that readers without a broker find the segments.
---
--- KEYS     cluster  hash   cluster id, leases, counters
--- ARGV     url      bytes  remote.storage.url, without credentials
--- RETURNS  error    int    a lib.codes value
--- COST     O(1), at most 2 calls
local codes = require("lib.codes")

local cluster, url = KEYS[1], ARGV[1]

-- Write. Only a change: Redis rejects this at maxmemory, and a broker must start then too.
if redis.call("HGET", cluster, "remote_storage_url") ~= url then
  redis.call("HSET", cluster, "remote_storage_url", url)
end
return { codes.NONE }
