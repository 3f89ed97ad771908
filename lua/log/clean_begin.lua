--- log.clean_begin  version 1  writes
--- Start a compaction of a log: return the range to clean, and delete an earlier unfinished copy.
---
--- KEYS     log           hash    the partition's state
---          index         zset    sparse index
---          compacted     stream  an earlier compaction's copy, deleted by this script
--- ARGV     topic_id      text    the topic id the caller expects, 32 hex digits
---          token         text    the pass; the log then rejects steps of every other pass
---          lag_ms        int     min.compaction.lag.ms: newer records are not cleaned
---          tombstone_ms  int     delete.retention.ms: how long cleaned tombstones are kept
---          dirty         int     min.cleanable.dirty.ratio in thousandths
--- RETURNS  error         int     a lib.codes value
---          due           int     1: clean the range below; 0: there is nothing to do
---          start         int     the log start
---          cleaned       int     below it no key occurs twice
---          limit         int     clean the entries below it
---          bytes         int     bytes ever appended below `limit`
---          records       int     records ever appended below `limit`
---          tombstones    int     tombstones below it can be removed
---          newest        int     ms, the max timestamp below `limit`; -1: there is none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one token, and compaction frees memory
--- COST     O(log index), at most 72 calls
--- NOTES    Entries from the last stable offset on are not cleaned: a transaction is open there.
local codes = require("lib.codes")
local clock = require("lib.clock")
local index_rows = require("lib.index")

local log, index, compacted = KEYS[1], KEYS[2], KEYS[3]
local topic_id, token, lag_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local tombstone_ms, dirty = tonumber(ARGV[4]), tonumber(ARGV[5])

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "next", "start", "bytes", "records", "max_timestamp", "start_bytes",
  "stable", "cleaned", "cleaned_bytes", "delete_horizons", "untimed_append_ms", "compacting"
)
if state[1] ~= topic_id then
  local refusal = state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION
  return { refusal, 0, -1, -1, -1, -1, -1, -1, -1 }
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
