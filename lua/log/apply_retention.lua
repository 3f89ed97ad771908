--- log.apply_retention  version 1  writes
--- Delete the records that retention.ms and retention.bytes no longer keep.
---
--- KEYS     stream           stream  the partition's records
---          log              hash    the partition's state
---          index            zset    sparse index
--- ARGV     topic_id         text    the topic id the caller expects, 32 hex digits
---          retention_ms     int     how long records are kept; -1: no limit
---          retention_bytes  int     min bytes to keep; -1: no limit
---          steps            int     max index steps to remove in this call
---          is_local         int=0   1: remove copied records from Redis only, and keep the log
---                                   start
--- RETURNS  error            int     a lib.codes value
---          start            int     log start offset, -1 on an error
---          removed          int     entries removed
---          more             int     1: call again, there is more to remove
---          uncounted        int     1: there are entries for log.adopt, which this call kept
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: records are removed
--- COST     O(entries removed), at most 196 calls
--- NOTES    The age of a record without a timestamp is the time since its append. Nothing is
---          deleted early: only index steps whose every record is old enough, or without which
---          retention_bytes remain. If the newest record is too old, everything is deleted. In time
---          mode the log then starts just above the deleted records, perhaps far below the first
---          kept one: a reader that has read all deleted records has lost nothing. What
---          log.adopt has not counted is kept.
local codes = require("lib.codes")
local clock = require("lib.clock")
local index_rows = require("lib.index")
local foreign_entries = require("lib.foreign_entries")
local num = require("lib.num")
local log_trim = require("lib.log_trim")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, retention_ms = ARGV[1], tonumber(ARGV[2])
local retention_bytes, steps = tonumber(ARGV[3]), tonumber(ARGV[4])
local is_local = ARGV[5] == "1"

-- Check.
local state = foreign_entries.open(stream, log)
if not state or state.topic_id ~= topic_id then
  return { state and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, 0, 0 }
end
local mode, bits, start, map = state.mode, state.bits, state.first, state.map
-- In layouts of batches, foreign entries above the last append are not numbered.
local next_offset = math.max(state.next, state.is_record and 0 or state.cursor.offset)
local uncounted = state.is_counted and 0 or 1
local cutoff = retention_ms >= 0 and clock.now_ms() - retention_ms or nil
-- Rows above the cursor know nothing of foreign entries between them.
local known = state.is_counted and math.huge or state.cursor.offset

-- Invariant: no record below `target` has to be kept.
local target, more = start, 0
if cutoff and state.newest < cutoff and state.is_counted then
  target = next_offset
elseif cutoff and state.max_timestamp < cutoff and state.is_counted and mode == "time" then
  target = math.max(start, math.min(next_offset, cutoff * 2 ^ bits))
end
if target < next_offset then
  local row = index_rows.last(index, function(candidate)
    return candidate.offset <= known and (cutoff and candidate.newest < cutoff
      or retention_bytes >= 0 and state.bytes - candidate.bytes >= retention_bytes)
  end)
  -- A row without entries below it would move the start past offsets that never existed.
  if row and row.bytes > state.start_bytes then
    target = math.max(target, row.offset)
  end
end
if is_local then
  target = math.min(target, state.tiered)
end
local limit = redis.call("ZRANGE", index, steps, steps)[1]
if limit then
  local step = index_rows.parse(limit)
  if step.offset < target then
    target, more = math.max(start, step.offset), 1
  end
end

-- Write.
if state.is_counted then
  foreign_entries.advance(state)
end
if target <= start then
  return { codes.NONE, state.start, 0, more, uncounted }
end
if is_local then
  local removed = log_trim.trim_local(stream, log, index, map, target)
  return { codes.NONE, state.start, removed, more, uncounted }
end
if target == next_offset then
  local removed = log_trim.empty(
    stream, log, index, map, target, state.bytes, state.records
  )
  return { codes.NONE, target, removed, more, uncounted }
end
local last
if mode == "time" then
  last = redis.call("XREVRANGE", stream, "(" .. map:id(target), "-", "COUNT", 1)[1]
end
if target > state.next then
  if mode == "time" and not last then
    return { codes.NONE, state.start, 0, more, uncounted }
  end
  redis.call("HSET", log, "next", num.text(next_offset))
end
local removed = log_trim.move_start(stream, log, index, map, target)
if mode == "time" then
  target = last and math.max(start, (map:offset(last[1]) or -1) + 1) or start
  redis.call("HSET", log, "start", num.text(target))
end
return { codes.NONE, target, removed, more, uncounted }
