--- log.drop_segments  version 1  writes
--- Remove all segments from a log that is no longer tiered: it begins with its records in Redis.
---
--- KEYS     log               hash  the partition's state
---          segments          zset  manifest of segments by first offset
---          deleted_segments  zset  rows of removed segments by the time to delete the object, ms
--- ARGV     topic_id          text  the topic id the caller expects, 32 hex digits
---          delay_ms          int   time until the objects may be deleted
---          most              int   max segments to remove in this call
--- RETURNS  error             int   a lib.codes value
---          start             int   log start offset, -1 on an error
---          removed           int   segments removed
---          due               list  rows of removed segments whose objects may be deleted now
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: rows of segments are moved
--- COST     O(segments removed), at most 10 calls + 2 per most
--- NOTES    The first call moves the log start. A copy in progress is refused: the lease ends, and
---          its next holder gets a higher fencing number. Repeat until `removed` is less than
---          `most`. If the log is tiered again, it is copied from its start.
local codes = require("lib.codes")
local clock = require("lib.clock")
local manifest = require("lib.segments")
local num = require("lib.num")

local log, segments, deleted_segments = KEYS[1], KEYS[2], KEYS[3]
local topic_id, delay_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Check.
local state = redis.call("HMGET", log, "topic_id", "start", "local_start", "tiered", "copy_lease")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, {} }
end
local start = math.max(tonumber(state[2]), tonumber(state[3] or "0"))
local now_ms = clock.now_ms()
local rows = redis.call("ZRANGE", segments, 0, most - 1)
redis.call("ZCARD", deleted_segments)

-- Write.
if state[3] or state[4] then
  redis.call("HDEL", log, "local_start", "tiered", "copy_lease")
  redis.call("HSET", log, "start", num.text(start))
  if state[5] then
    local fence = tonumber(string.match(state[5], "^%d+"))
    redis.call("HSET", log, "copy_lease", num.text(fence + 1) .. " 0 ")
  end
end
manifest.remove(log, segments, deleted_segments, rows, now_ms, delay_ms)
return { codes.NONE, start, #rows, manifest.due(deleted_segments, now_ms, most) }
