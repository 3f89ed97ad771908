--- group.schedule_tick  version 1  writes
--- Schedule a tick of the group, no later than it is scheduled already.
---
--- KEYS     groups_due  zset  encoded group id -> moment, ms
--- ARGV     group       id    encoded group id
---          after_ms    int   ms from now
--- RETURNS  error       int   a lib.codes value
--- FULL     always: one entry per group that exists, or that group.register adds
--- COST     O(log groups), at most 4 calls
--- NOTES    The moment changes at every call, so that group.release_claim finds it changed.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")

local due = KEYS[1]
local group, after_ms = ARGV[1], tonumber(ARGV[2])

-- Write.
local moment = clock.now_ms() + after_ms
local known = redis.call("ZSCORE", due, group)
if known then
  moment = math.min(moment, tonumber(known) - 1)
end
deadlines.schedule(due, group, moment)
return { codes.NONE }
