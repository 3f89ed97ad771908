--- log.expire_segments  version 1  writes
--- Remove the oldest segments from the log: those below its start, and those past retention.
---
--- KEYS     log               hash  the partition's state
---          segments          zset  manifest of segments by first offset
---          deleted_segments  zset  rows of removed segments by the time to delete the object, ms
--- ARGV     topic_id          text  the topic id the caller expects, 32 hex digits
---          retention_ms      int   how long records are kept; -1: no limit
---          retention_bytes   int   min bytes to keep; -1: no limit
---          delay_ms          int   time until the objects may be deleted
---          most              int   max segments to remove in this call
--- RETURNS  error             int   a lib.codes value
---          start             int   log start offset, -1 on an error
---          removed           int   segments removed
---          due               list  rows of removed segments whose objects may be deleted now
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: rows of segments are moved
--- COST     O(segments removed), at most 9 calls + 2 per most
--- NOTES    The log start moves to the first segment that stays. A segment without timestamps is
---          removed by size only. Repeat until `removed` is less than `most`.
local codes = require("lib.codes")
local clock = require("lib.clock")
local manifest = require("lib.segments")
local num = require("lib.num")

local log, segments, deleted_segments = KEYS[1], KEYS[2], KEYS[3]
local topic_id, retention_ms, retention_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local delay_ms, most = tonumber(ARGV[4]), tonumber(ARGV[5])

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "start", "local_start", "tiered_bytes", "bytes", "start_bytes"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, {} }
end
local start, tiered_bytes = tonumber(state[2]), tonumber(state[4] or "0")
local local_start = tonumber(state[3] or state[2])
local now_ms, expired, target = clock.now_ms(), {}, start
local cutoff = retention_ms >= 0 and now_ms - retention_ms or -1
for _, member in ipairs(redis.call("ZRANGE", segments, 0, most - 1)) do
  local row = manifest.parse(member)
  local is_old = cutoff >= 0 and row.newest >= 0 and row.newest < cutoff
  local is_extra = retention_bytes >= 0
    and tiered_bytes - row.bytes_before - row.size >= retention_bytes
  if not (row.last < start or is_old or is_extra) then
    break
  end
  -- The local part has its own retention: this one ends at its start.
  if row.last >= start and row.last >= local_start then
    break
  end
  expired[#expired + 1] = member
  target = math.max(target, row.last + 1)
end
redis.call("ZCARD", deleted_segments)

-- Write.
manifest.remove(log, segments, deleted_segments, expired, now_ms, delay_ms)
if target > start then
  if target >= local_start then
    redis.call("HDEL", log, "local_start")
  end
  redis.call("HSET", log, "start", num.text(target))
end
return { codes.NONE, target, #expired, manifest.due(deleted_segments, now_ms, most) }
