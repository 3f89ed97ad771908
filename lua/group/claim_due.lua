--- group.claim_due  version 1  writes
--- Claim groups that are due for a tick; other brokers skip them until the claim expires.
---
--- KEYS     groups_due  zset  encoded group id -> moment, ms
--- ARGV     hold_ms     int   duration of the claim
---          limit       int   groups to claim at most
--- RETURNS  error       int   a lib.codes value
---          groups      list  encoded group ids
---          held_until  int   the moment at which the claim expires
--- FULL     always: groups keep their entries
--- COST     O(limit log groups), at most 5 calls + 1 per group + 1 per moved
--- NOTES    If the clock was set back, groups scheduled before are due. Their ticks
---          schedule them anew.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")
local num = require("lib.num")

local due = KEYS[1]
local hold_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2])

-- Write.
local now_ms = clock.now_ms()
deadlines.follow_due(due, now_ms)
local found = redis.call(
  "ZRANGEBYSCORE", due, "-inf", num.text(now_ms), "LIMIT", 0, num.text(limit)
)

for _, group in ipairs(found) do
  redis.call("ZADD", due, num.text(now_ms + hold_ms), group)
end
return { codes.NONE, found, now_ms + hold_ms }
