--- quota.charge  version 1  writes
--- Charge an amount to a token bucket and return how long the client has to wait.
---
--- KEYS     quota    hash  tokens and their time
--- ARGV     rate     int   thousandths of a token that are added each second
---          burst    int   most thousandths that the bucket holds
---          amount   int   thousandths to take; the bucket may then be in debt
---          strict   int   1: take nothing if the bucket is in debt already
--- RETURNS  error    int   a lib.codes value
---          wait_ms  int   ms until the debt is paid, 0 for none
--- FULL     is_known: a bucket that exists is replaced
--- COST     O(1), at most 4 calls
--- NOTES    All brokers charge the same bucket, so a quota holds for the cluster. The bucket
---          expires when it is full again. If its time is ahead of the clock, that was set back:
---          the bucket gains tokens from now on.
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")

local bucket = KEYS[1]
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local amount, strict = tonumber(ARGV[3]), ARGV[4] == "1"

-- A thousandth of a ms absorbs rounding errors.
local function wait_ms(left)
  return math.ceil(-left / rate * 1000 - 0.001)
end

local now_ms = clock.now_ms()
local row = redis.call("HMGET", bucket, "tokens", "at")
local tokens = burst
if row[1] then
  tokens = tonumber(row[1]) + math.max(now_ms - tonumber(row[2]), 0) / 1000 * rate
end
tokens = math.min(tokens, burst)
local is_known = row[1] ~= false

-- Write.
if strict and tokens < 0 then
  if tonumber(row[2]) > now_ms then
    redis.call("HSET", bucket, "at", num.text(now_ms))
  end
  return { codes.NONE, wait_ms(tokens) }
end
tokens = tokens - amount
redis.call("HSET", bucket, "tokens", string.format("%.6f", tokens), "at", num.text(now_ms))
redis.call("PEXPIRE", bucket, math.ceil((burst - tokens) / rate * 1000) + 1000)
if strict or tokens >= 0 then
  return { codes.NONE, 0 }
end
return { codes.NONE, wait_ms(tokens) }
