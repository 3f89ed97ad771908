--- transaction.list_due  version 1  writes
--- Return the transactional ids whose check is due, the longest overdue first.
---
--- KEYS     transactions  zset  encoded transactional id -> moment of its check, ms
--- ARGV     limit         int   max ids
--- RETURNS  error         int   a lib.codes value
---          ids           list  encoded transactional id and its moment, flat
--- FULL     always: ids keep their entries
--- COST     O(limit + log ids), at most 5 calls + 1 per moved
--- NOTES    If the clock was set back, ids scheduled before are due. Their checks
---          schedule them anew.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")
local num = require("lib.num")

local transactions = KEYS[1]
local limit = ARGV[1]

-- Write.
deadlines.follow_due(transactions, clock.now_ms())
return {
  codes.NONE,
  redis.call(
    "ZRANGEBYSCORE", transactions, "-inf", num.text(clock.now_ms()), "WITHSCORES", "LIMIT", 0, limit
  ),
}
