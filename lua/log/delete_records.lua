--- log.delete_records  version 1  writes
--- Delete the records below an offset, and start the log there (DeleteRecords, archive trims).
---
--- KEYS     stream    stream   the partition's records
---          log       hash     the partition's state
---          index     zset     sparse index
--- ARGV     topic_id  text     the topic id the caller expects, 32 hex digits
---          before    int      the new log start; -1: the end
---          steps     int=256  max index steps to remove in this call
--- RETURNS  error     int      a lib.codes value
---          start     int      log start offset, -1 on an error
---          removed   int      entries removed
---          again     int      -1: done; else call again with this offset as `before`
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID OFFSET_OUT_OF_RANGE
--- FULL     always: records are removed
--- COST     O(entries removed), at most 75 calls + 4 per new_ms
--- NOTES    An offset at or below the log start changes nothing, without an error, as in Kafka.
local codes = require("lib.codes")
local index_rows = require("lib.index")
local num = require("lib.num")
local numbering = require("lib.numbering")
local log_trim = require("lib.log_trim")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, before, steps = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "format", "mode", "bits", "next", "start", "bytes", "records",
  "local_start"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, -1 }
end
local start = tonumber(state[6])
if before > tonumber(state[5]) or before < -1 then
  return { codes.OFFSET_OUT_OF_RANGE, -1, 0, -1 }
end
local next_offset, map = numbering.settle(numbering.open(stream, log))
if before == -1 then
  before = next_offset
end
if before <= start then
  return { codes.NONE, start, 0, -1 }
end
local local_start = tonumber(state[9] or state[6])
local limit = redis.call("ZRANGE", index, steps, steps)[1]
local step = limit and index_rows.parse(limit).offset or before

-- Write.
if before < local_start then
  redis.call("HSET", log, "start", num.text(before))
  return { codes.NONE, before, 0, -1 }
end
if step > start and step < before then
  return { codes.NONE, step, log_trim.move_start(stream, log, index, map, step), before }
end
local removed
if before == next_offset then
  removed = log_trim.empty(
    stream, log, index, map, before, tonumber(state[7]), tonumber(state[8])
  )
else
  removed = log_trim.move_start(stream, log, index, map, before)
end
return { codes.NONE, before, removed, -1 }
