--- log.claim_copy  version 1  writes
--- Acquire or renew the lease to copy a partition's records to segments.
---
--- KEYS     log       hash  the partition's state
---          index     zset  sparse index
--- ARGV     topic_id  text  the topic id the caller expects, 32 hex digits
---          holder    text  the caller, unique to a process
---          ttl_ms    int   duration of the lease
--- RETURNS  error     int   a lib.codes value
---          fence     int   the lease's fencing number; 0: another process holds the lease
---          first     int   the first offset to copy
---          bytes     int   bytes appended from about that offset on
---          records   int   records appended from about that offset on
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one lease, and copying frees memory
--- COST     O(log index), at most 40 calls
--- NOTES    Each new holder gets a higher fencing number, also above those of earlier leader
---          epochs, which Redis may have lost. log.add_segment refuses earlier ones.
local codes = require("lib.codes")
local clock = require("lib.clock")
local index_rows = require("lib.index")
local num = require("lib.num")

local log, index = KEYS[1], KEYS[2]
local topic_id, holder, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "start", "local_start", "tiered", "bytes", "records", "copy_lease",
  "epoch"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, 0, 0 }
end
local now_ms, fence = clock.now_ms(), tonumber(state[8]) * 2 ^ 20 + 1
if state[7] then
  local number, ends, by = string.match(state[7], "^(%d+) (%d+) (.*)$")
  if by ~= holder and not clock.is_over(tonumber(ends), now_ms, ttl_ms) then
    return { codes.NONE, 0, -1, 0, 0 }
  end
  fence = by == holder and tonumber(number) or tonumber(number) + 1
end
local first = math.max(tonumber(state[2]), tonumber(state[3] or "0"), tonumber(state[4] or "0"))
local bytes_below, records_below = index_rows.totals_below(index, log, first)
local bytes, records = tonumber(state[5]) - bytes_below, tonumber(state[6]) - records_below

-- Write.
local lease = num.text(fence) .. " " .. num.text(now_ms + ttl_ms) .. " " .. holder
redis.call("HSET", log, "copy_lease", lease)
return { codes.NONE, fence, first, bytes, records }
