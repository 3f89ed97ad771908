--- transaction.list_due  version 1  reads
--- Return the transactional ids whose check is due, the longest overdue first.
---
--- KEYS     transactions  zset  encoded transactional id -> moment of its check, ms
--- ARGV     limit         int   max ids
--- RETURNS  error         int   a lib.codes value
---          ids           list  encoded transactional id and its moment, flat
--- COST     O(limit + log ids), at most 2 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local transactions = KEYS[1]
local limit = ARGV[1]

return {
  codes.NONE,
  redis.call(
    "ZRANGEBYSCORE", transactions, "-inf", num.text(clock.now_ms()), "WITHSCORES", "LIMIT", 0, limit
  ),
}
