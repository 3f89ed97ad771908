--- log.expire_segments  version 1  writes
--- Remove the oldest segments from the log: those below its start, and those past retention.
---
--- KEYS     log               hash   the partition's state
---          segments          zset   manifest of segments by first offset
---          deleted_segments  zset   rows of removed segments by the time to delete the object, ms
--- ARGV     topic_id          bytes  the topic id the caller expects, 32 hex digits
---          retention_ms      int    how long records are kept; -1: no limit
---          retention_bytes   int    min bytes to keep; -1: no limit
---          delay_ms          int    time until the objects may be deleted
---          most              int    max segments to remove in this call
--- RETURNS  error             int    a lib.codes value
---          start             int    log start offset, -1 on an error
---          removed           int    segments removed
---          due               list   rows of removed segments whose objects may be deleted now
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(segments removed), at most 8 calls + 2 per most
--- NOTES    The log start moves to the first segment that stays. A segment without timestamps is
---          removed by size only. Repeat until `removed` is less than `most`.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local log, segments, deleted_segments = KEYS[1], KEYS[2], KEYS[3]
local topic_id, retention_ms, retention_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local delay_ms, most = tonumber(ARGV[4]), tonumber(ARGV[5])

-- Check. Refusals live here.
local state = redis.call(
  "HMGET", log, "topic_id", "start", "local_start", "tiered_bytes", "bytes", "start_bytes"
)
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, {} }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, -1, 0, {} }
end
local start, tiered_bytes = tonumber(state[2]), tonumber(state[4] or "0")
local local_start = tonumber(state[3] or state[2])
local now_ms, remove, target = clock.now_ms(), {}, start
local cutoff = retention_ms >= 0 and now_ms - retention_ms or -1
for _, row in ipairs(redis.call("ZRANGE", segments, 0, most - 1)) do
  local first, last, before, size, newest =
    string.match(row, "^(%d+):(%d+):%d+:%d+:(%d+):(%d+):%d+:(%-?%d+):")
  newest = tonumber(newest)
  local is_old = cutoff >= 0 and newest >= 0 and newest < cutoff
  local after = tiered_bytes - tonumber(before) - tonumber(size)
  local is_extra = retention_bytes >= 0 and after >= retention_bytes
  if not (tonumber(last) < start or is_old or is_extra) then
    break
  end
  -- The local part has its own retention: this one ends at its start.
  if tonumber(last) >= start and tonumber(last) >= local_start then
    break
  end
  remove[#remove + 1] = { first = first, row = row }
  target = math.max(target, tonumber(last) + 1)
end
redis.call("ZCARD", deleted_segments)

-- Write. Removals first: at maxmemory they are allowed, and after them the other writes are too.
for _, each in ipairs(remove) do
  redis.call("ZREM", segments, each.row)
  redis.call("ZADD", deleted_segments, num.text(now_ms + delay_ms), each.row)
end
if target > start then
  if target >= local_start then
    redis.call("HDEL", log, "local_start")
  end
  redis.call("HSET", log, "start", num.text(target))
end
local due = redis.call("ZRANGEBYSCORE", deleted_segments, "-inf", num.text(now_ms), "LIMIT", 0, most)
return { codes.NONE, target, #remove, due }
