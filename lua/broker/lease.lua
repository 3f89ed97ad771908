--- broker.lease  version 1  writes
--- One holder has a named duty until the lease ends; another may take it only after that.
---
--- KEYS     cluster  hash   counters and leases
--- ARGV     name     bytes  the duty: retention, compaction, expiry
---          holder   bytes  who asks, unique to a process
---          ttl_ms   int    how long the lease holds
--- RETURNS  error    int    a lib.codes value
---          held     int    1: the caller has it now
--- COST     O(1), at most 4 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local cluster = KEYS[1]
local name, holder, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local field = "lease:" .. name
local now_ms = clock.now_ms()
local row = redis.call("HGET", cluster, field)
if row then
  local ends, by = string.match(row, "^(%d+) (.*)$")
  if by ~= holder and tonumber(ends) > now_ms then
    return { codes.NONE, 0 }
  end
end

-- Write. What takes something away may run in a full Redis, and all behind it too: retention is a
-- duty, and makes room.
redis.call("HDEL", cluster, field)
redis.call("HSET", cluster, field, num.text(now_ms + ttl_ms) .. " " .. holder)
return { codes.NONE, 1 }
