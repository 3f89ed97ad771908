--- config.alter  version 1  writes
--- A broker's, all brokers' or a group's changed configs are replaced, if the caller read them right.
---
--- KEYS     configs   hash   resource -> its configs, and `:version`
--- ARGV     resource  bytes  the field: whose configs
---          expected  bytes  the configs the caller read, empty for none
---          wanted    bytes  the configs from now on, opaque here, empty for none
--- RETURNS  error     int    a lib.codes value
---          version   int    the configs' version, -1 when refused
--- REFUSES  CONCURRENT_TRANSACTIONS
--- COST     O(1), at most 7 calls
--- NOTES    CONCURRENT_TRANSACTIONS means that they are no longer the expected ones: read them again
---          and decide again. It never reaches a client.
local codes = require("lib.codes")
local table_version = require("lib.table_version")

local configs = KEYS[1]
local resource, expected, wanted = ARGV[1], ARGV[2], ARGV[3]

-- Check. Refusals live here.
if (redis.call("HGET", configs, resource) or "") ~= expected then
  return { codes.CONCURRENT_TRANSACTIONS, -1 }
end

-- Write. What takes something away may run in a full Redis, and all behind it too: a shorter
-- retention makes room.
redis.call("HDEL", configs, resource)
if wanted ~= "" then
  redis.call("HSET", configs, resource, wanted)
end
return { codes.NONE, table_version.raise(configs) }
