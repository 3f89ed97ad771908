--- transaction.schedule_check  version 1  writes
--- Schedule or remove the timeout check of a transactional id.
---
--- KEYS     transactions  zset    encoded transactional id -> moment of its check, ms
--- ARGV     id            id      encoded transactional id
---          after_ms      int     ms from now; -1: remove the check
---          seen          int=-1  the moment of the check that the caller ran, -1 if it ran none
--- RETURNS  error         int     a lib.codes value
---          changed       int     0: another call has scheduled a check since, which remains
--- FULL     is_known: one entry per id that exists
--- COST     O(log ids), at most 4 calls
--- NOTES    With `seen` -1 the moment is never later than the scheduled one, and always differs
---          from it: a check in progress cannot postpone one that is requested meanwhile.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")

local transactions = KEYS[1]
local id, after_ms, seen = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local known = tonumber(redis.call("ZSCORE", transactions, id) or -1)
local is_known = known >= 0

-- Write.
if seen >= 0 and known ~= seen then
  return { codes.NONE, 0 }
end
if after_ms < 0 then
  redis.call("ZREM", transactions, id)
  return { codes.NONE, 1 }
end
local moment = clock.now_ms() + after_ms
if seen < 0 and known > 0 then
  moment = math.min(moment, known - 1)
end
deadlines.schedule(transactions, id, moment)
return { codes.NONE, 1 }
