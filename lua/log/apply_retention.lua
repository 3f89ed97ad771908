--- log.apply_retention  version 1  writes
--- Delete the records that retention.ms and retention.bytes no longer keep.
---
--- KEYS     stream           stream  the partition's records
---          log              hash    the partition's state
---          index            zset    sparse index
--- ARGV     topic_id         bytes   the topic id the caller expects, 32 hex digits
---          retention_ms     int     how long records are kept; -1: no limit
---          retention_bytes  int     min bytes to keep; -1: no limit
---          steps            int     max index steps to remove in this call
---          is_local         int     1: remove copied records from Redis only, and keep the log
---                                   start
--- RETURNS  error            int     a lib.codes value
---          start            int     log start offset, -1 on an error
---          removed          int     entries removed
---          more             int     1: call again, there is more to remove
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(entries removed), at most 196 calls
--- NOTES    The age of a record without a timestamp is the time since its append. Nothing is
---          deleted early: only index steps whose every record is old enough, or without which
---          retention_bytes remain. If the newest record is too old, everything is deleted. In time
---          mode the log then starts just above the deleted records, perhaps far below the first
---          kept one: a reader that has read all deleted records has lost nothing. The age of a
---          foreign entry is given by its id. In dense mode ids hold no time: such entries count as
---          appended when this script, or an append or marker, first finds them. If a log in time
---          mode may have foreign entries, nothing is deleted by time unless its id is old too. (If
---          log.delete_records has cut an index step, some may be missed.)
local codes = require("lib.codes")
local clock = require("lib.clock")
local entry_id = require("lib.entry_id")
local index_rows = require("lib.index")
local foreign_entries = require("lib.foreign_entries")
local num = require("lib.num")
local log_trim = require("lib.log_trim")
local stream_end = require("lib.stream_end")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, retention_ms = ARGV[1], tonumber(ARGV[2])
local retention_bytes, steps = tonumber(ARGV[3]), tonumber(ARGV[4])
local is_local = ARGV[5] == "1"

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "bytes", "max_timestamp", "untimed_append_ms",
  unpack(foreign_entries.FIELDS)
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, 0, 0 }
end
local remote = redis.call("HMGET", log, "local_start", "tiered")
local format, mode, bits = state[5], state[6], tonumber(state[7])
local start, records, start_records = tonumber(state[8]), tonumber(state[9]), tonumber(state[10])
local log_start = start
start = tonumber(remote[1] or state[8])
local appended, bytes = tonumber(state[11]), tonumber(state[2])
local newest = math.max(tonumber(state[3]), tonumber(state[4] or "-1"))

local next_offset = stream_end.log_end(format, mode, bits, stream, appended)
local now_ms = clock.now_ms()
local cutoff = retention_ms >= 0 and now_ms - retention_ms or nil
local old = cutoff ~= nil and newest < cutoff
-- An entry at or above this offset may be a young foreign entry.
local young = math.huge
if cutoff and mode == "time" and foreign_entries.may_exist(stream, { unpack(state, 5) }) then
  young = math.max(0, cutoff * 2 ^ bits)
end
local first_met = cutoff ~= nil and mode ~= "time" and next_offset > appended

-- Invariant: no record below `target` has to be kept.
local target, more = start, 0
if old and not first_met and young >= appended then
  target = next_offset
  if next_offset > appended then
    target = math.min(next_offset, math.max(appended, cutoff * 2 ^ bits))
  end
end
if target < next_offset then
  local row = index_rows.last(index, function(candidate)
    return (cutoff and candidate.newest < cutoff and candidate.offset <= young)
      or (retention_bytes >= 0 and bytes - candidate.bytes >= retention_bytes)
  end)
  -- A row without records below it would move the start past offsets that never existed.
  if row and row.records > start_records then
    target = math.max(target, row.offset)
  end
end
if is_local then
  target = math.min(target, tonumber(remote[2] or "0"))
end
local limit = redis.call("ZRANGE", index, steps, steps)[1]
if limit then
  local step = index_rows.parse(limit)
  if step.offset < target then
    target, more = math.max(start, step.offset), 1
  end
end

-- Write.
if first_met then
  local text = num.text(appended)
  -- A deletion is allowed if Redis is full, and so are the writes after it in the script.
  redis.call("ZREMRANGEBYSCORE", index, text, text)
  redis.call(
    "ZADD", index, text,
    text .. ":" .. num.text(newest) .. ":" .. num.text(bytes) .. ":" .. num.text(records)
  )
  redis.call(
    "HSET", log, "next", num.text(next_offset), "max_timestamp", num.text(now_ms),
    "records", num.text(records + next_offset - appended), "indexed_bytes", num.text(bytes)
  )
end
if target <= start then
  return { codes.NONE, log_start, 0, more }
end
if is_local then
  local removed = log_trim.trim_local(stream, log, index, mode, bits, target)
  return { codes.NONE, log_start, removed, more }
end
if target == next_offset then
  local removed = log_trim.empty(stream, log, index, mode, bits, target, bytes, records)
  return { codes.NONE, target, removed, more }
end
local last
if mode == "time" then
  last = redis.call("XREVRANGE", stream, "(" .. entry_id.id(mode, bits, target), "-", "COUNT", 1)[1]
end
local removed = log_trim.move_start(stream, log, index, mode, bits, target)
if mode == "time" then
  target = last and math.max(start, entry_id.offset_after(mode, bits, last[1])) or start
  redis.call("HSET", log, "start", num.text(target))
end
return { codes.NONE, target, removed, more }
