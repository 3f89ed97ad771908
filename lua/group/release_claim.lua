--- group.release_claim  version 1  writes
--- Schedule the next tick of a claimed group, or none, unless it was scheduled since the claim.
---
--- KEYS     groups_due  zset  encoded group id -> moment, ms
--- ARGV     group       id    encoded group id
---          held_until  int   the moment returned by group.claim_due
---          after_ms    int   ms from now, -1: no tick
--- RETURNS  error       int   a lib.codes value
---          released    int   0: it was scheduled since the claim
--- FULL     always: the group keeps its entry, or loses it
--- COST     O(log groups), at most 4 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")

local due = KEYS[1]
local group, held_until, after_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Write.
if tonumber(redis.call("ZSCORE", due, group) or -1) ~= held_until then
  return { codes.NONE, 0 }
end
if after_ms < 0 then
  redis.call("ZREM", due, group)
else
  deadlines.schedule(due, group, clock.now_ms() + after_ms)
end
return { codes.NONE, 1 }
