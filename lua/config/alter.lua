--- config.alter  version 1  writes
--- Replace the configs of a broker, of all brokers or of a group if they are still those read.
---
--- KEYS     configs   hash   resource -> its configs, and `:version`
--- ARGV     resource  text   the field of the resource
---          expected  bytes  the configs the caller read, empty for none
---          wanted    bytes  the new configs, which no script parses; empty for none
--- RETURNS  error     int    a lib.codes value
---          version   int    the new version of the configs table, -1 on an error
--- REFUSES  CONFIGS_CHANGED
--- FULL     always: configs are replaced: a shorter retention frees memory
--- COST     O(1), at most 7 calls
--- NOTES    CONFIGS_CHANGED: the configs are not the expected ones. The caller reads them and
---          decides again.
local codes = require("lib.codes")
local table_version = require("lib.table_version")

local configs = KEYS[1]
local resource, expected, wanted = ARGV[1], ARGV[2], ARGV[3]

-- Check.
if (redis.call("HGET", configs, resource) or "") ~= expected then
  return { codes.CONFIGS_CHANGED, -1 }
end

-- Write.
redis.call("HDEL", configs, resource)
if wanted ~= "" then
  redis.call("HSET", configs, resource, wanted)
end
return { codes.NONE, table_version.raise(configs) }
