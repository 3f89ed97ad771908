--- log.clean_begin  version 1  writes
--- It is known what a compaction of the log may touch, and nothing of an earlier one is in its way.
---
--- KEYS     log           hash    the partition's state
---          index         zset    sparse index
---          compacted     stream  what an earlier compaction left behind, gone after this
--- ARGV     topic_id      bytes   the topic the caller believes in, 32 hex digits
---          token         bytes   who compacts; the log takes the rest of it from nobody else
---          lag_ms        int     records younger than this are left alone
---          tombstone_ms  int     how long marks of deleted keys stay behind a first compaction
---          dirty         int     thousandths of the log's bytes that make it worth while
--- RETURNS  error         int     a lib.codes value
---          due           int     1: go on with the offsets below; 0: there is nothing to do
---          start         int     the log start
---          cleaned       int     below it no key stands twice
---          limit         int     compact what lies below it
---          bytes         int     bytes ever appended before `limit`
---          records       int     records ever appended before `limit`
---          tombstones    int     marks of deleted keys below it may go
---          newest        int     ms, no record before `limit` is younger; -1: there was none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), at most 72 calls
--- NOTES    Nothing at or behind the last stable offset is touched: how it ends is not known.
local codes = require("lib.codes")
local clock = require("lib.clock")
local index_rows = require("lib.index")

local log, index, compacted = KEYS[1], KEYS[2], KEYS[3]
local topic_id, token, lag_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local tombstone_ms, dirty = tonumber(ARGV[4]), tonumber(ARGV[5])

-- Check. Refusals live here.
local state = redis.call(
  "HMGET", log, "topic_id", "next", "start", "bytes", "records", "max_timestamp", "start_bytes",
  "stable", "cleaned", "cleaned_bytes", "delete_horizons", "untimed_append_ms", "compacting"
)
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1, -1, -1, -1, -1, -1 }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, 0, -1, -1, -1, -1, -1, -1, -1 }
end
local limit, start = tonumber(state[2]), tonumber(state[3])
local bytes, records = tonumber(state[4]), tonumber(state[5])
local start_bytes, stable = tonumber(state[7]), tonumber(state[8] or "-1")
local cleaned = math.max(start, tonumber(state[9] or "0"))
local cleaned_bytes = math.max(start_bytes, tonumber(state[10] or "0"))
local newest = math.max(tonumber(state[6]), tonumber(state[12] or "-1"))
local now_ms = clock.now_ms()

-- Write.
if stable >= 0 or (lag_ms > 0 and newest > now_ms - lag_ms) then
  local row = index_rows.last(index, function(candidate)
    return (stable < 0 or candidate.offset <= stable)
      and (lag_ms <= 0 or candidate.newest <= now_ms - lag_ms)
  end)
  limit, bytes, records, newest = start, start_bytes, 0, -1
  if row then
    limit, bytes, records, newest = row.offset, row.bytes, row.records, row.newest
  end
end
local tombstones = 0
for at, time in string.gmatch(state[11] or "", "(%d+):(%d+)") do
  if now_ms - tonumber(time) >= tombstone_ms then
    tombstones = math.max(tombstones, tonumber(at))
  end
end
local worth = bytes > cleaned_bytes
  and (bytes - cleaned_bytes) * 1000 >= dirty * (bytes - start_bytes)
if limit <= start or not (worth or tombstones > 0) then
  if state[13] then
    redis.call("UNLINK", compacted)
    redis.call("HDEL", log, "compacting")
  end
  return { codes.NONE, 0, start, cleaned, limit, bytes, records, tombstones, newest }
end
redis.call("UNLINK", compacted)
redis.call("HSET", log, "compacting", token)
return { codes.NONE, 1, start, cleaned, limit, bytes, records, tombstones, newest }
