--- broker.set_storage  version 1  writes
--- Store the brokers' remote store and memory budget, for readers without a broker.
---
--- KEYS     cluster  hash  cluster id, leases, counters
--- ARGV     url      text  remote.storage.url, without credentials; empty: keep the stored one
---          topics   text  log.remote.storage.enable
---          memory   int   local.memory.bytes
--- RETURNS  error    int   a lib.codes value
--- FULL     always: three fields
--- COST     O(1), at most 2 calls
--- NOTES    Values that a Redis without them has anyway, false and -1, are not stored at first.
local codes = require("lib.codes")

local cluster = KEYS[1]
local url, topics, memory = ARGV[1], ARGV[2], ARGV[3]

local stored = redis.call(
  "HMGET", cluster, "remote_storage_url", "remote_storage_topics", "local_memory_bytes"
)
local changed = {}
local function set(field, value, old, unset)
  if value ~= (old or unset) then
    changed[#changed + 1], changed[#changed + 2] = field, value
  end
end
set("remote_storage_url", url, url == "" and "" or stored[1], "")
set("remote_storage_topics", topics, stored[2], "false")
set("local_memory_bytes", memory, stored[3], "-1")

-- Write.
if #changed > 0 then
  redis.call("HSET", cluster, unpack(changed))
end
return { codes.NONE }
