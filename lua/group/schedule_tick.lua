--- group.schedule_tick  version 1  writes
--- Somebody will tick the group when its next deadline has passed, or earlier.
---
--- KEYS     groups_due  zset   encoded group id -> moment, ms
--- ARGV     group       bytes  encoded group id
---          after_ms    int    how long from now
--- RETURNS  error       int    a lib.codes value
--- COST     O(log groups), at most 3 calls
--- NOTES    The moment always changes, so that a tick under way knows that it was asked again.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local due = KEYS[1]
local group, after_ms = ARGV[1], tonumber(ARGV[2])

-- Write.
local moment = clock.now_ms() + after_ms
local known = redis.call("ZSCORE", due, group)
if known then
  moment = math.min(moment, tonumber(known) - 1)
end
redis.call("ZADD", due, num.text(moment), group)
return { codes.NONE }
