--- transaction.schedule_check  version 1  writes
--- Somebody looks at a transactional id at a moment, or never again.
---
--- KEYS     transactions  zset   encoded transactional id -> moment, ms
--- ARGV     id            bytes  encoded transactional id
---          after_ms      int    how long from now; -1: never
---          seen          int    the moment it was found under, -1 for whoever asks without a look
--- RETURNS  error         int    a lib.codes value
---          watched       int    0: somebody asked since then, and what they asked for stands
--- COST     O(log ids), at most 3 calls
--- NOTES    Who asks without a look gets that moment or an earlier one, and always another than stood
---          there, so that a look under way cannot put off what was asked for meanwhile.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local transactions = KEYS[1]
local id, after_ms, seen = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Write.
local known = tonumber(redis.call("ZSCORE", transactions, id) or -1)
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
redis.call("ZADD", transactions, num.text(moment), id)
return { codes.NONE, 1 }
