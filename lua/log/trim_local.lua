--- log.trim_local  version 1  writes
--- Remove copied records below an offset from Redis, and keep the log start.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
---          index     zset    sparse index
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
---          before    int     the first offset to keep in Redis
---          steps     int     max index steps to remove in this call
--- RETURNS  error     int     a lib.codes value
---          start     int     the first offset in Redis, -1 on an error
---          removed   int     entries removed
---          more      int     1: call again, there is more to remove
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: records are removed
--- COST     O(entries removed), at most 68 calls
--- NOTES    Records that no segment has stay.
local codes = require("lib.codes")
local index_rows = require("lib.index")
local log_trim = require("lib.log_trim")
local offset_map = require("lib.offset_map")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, before, steps = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "mode", "bits", "start", "local_start", "tiered", "shifts"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, 0 }
end
local map = offset_map.open(state[2], tonumber(state[3]), state[7])
local from = tonumber(state[5] or state[4])
local target, more = math.min(before, tonumber(state[6] or "0")), 0
local limit = redis.call("ZRANGE", index, steps, steps)[1]
if limit and index_rows.parse(limit).offset < target then
  target, more = index_rows.parse(limit).offset, 1
end
if target <= from then
  return { codes.NONE, from, 0, 0 }
end
redis.call("XLEN", stream)

-- Write.
return { codes.NONE, target, log_trim.trim_local(stream, log, index, map, target), more }
