--- broker.lease  version 1  writes
--- Acquire or renew the lease of a background task, unless another holder's has not ended.
---
--- KEYS     cluster  hash  counters and leases
--- ARGV     name     text  the task: retention, compaction, expiry
---          holder   text  the caller, unique to a process
---          ttl_ms   int   duration of the lease
--- RETURNS  error    int   a lib.codes value
---          held     int   1: the caller holds the lease; 0: another process does
--- FULL     always: one field per background task, which frees memory
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
  if by ~= holder and not clock.is_over(tonumber(ends), now_ms, ttl_ms) then
    return { codes.NONE, 0 }
  end
end

-- Write.
redis.call("HSET", cluster, field, num.text(now_ms + ttl_ms) .. " " .. holder)
return { codes.NONE, 1 }
