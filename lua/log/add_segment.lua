--- log.add_segment  version 1  writes
--- Make a copied segment part of a partition's log.
---
--- KEYS     log       hash  the partition's state
---          segments  zset  manifest of segments by first offset
--- ARGV     topic_id  text  the topic id the caller expects, 32 hex digits
---          fence     int   the fencing number of the caller's lease
---          first     int   the first offset it covers
---          last      int   the last offset it covers
---          records   int   its records
---          size      int   bytes of the object
---          row       text  the end of its row: bytes of the footer, max timestamp and id
--- RETURNS  error     int   a lib.codes value
---          added     int   1: added; 0: refused, and the object belongs to no log
---          tiered    int   the offset up to which the log is copied, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: one row per segment, whose records can then leave Redis
--- COST     O(log segments), at most 36 calls
--- NOTES    A segment is refused if the lease has another fencing number, or unless the segment
---          begins where the copied part of the log ends.
local codes = require("lib.codes")
local manifest = require("lib.segments")
local num = require("lib.num")

local log, segments = KEYS[1], KEYS[2]
local topic_id, fence = ARGV[1], ARGV[2]
local first, last = tonumber(ARGV[3]), tonumber(ARGV[4])
local records, size, rest = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "start", "local_start", "tiered", "copy_lease", "tiered_records",
  "tiered_bytes", "segments_removed"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1 }
end
local tiered = math.max(tonumber(state[2]), tonumber(state[3] or "0"), tonumber(state[4] or "0"))
local held = state[5] and string.match(state[5], "^%d+") or ""
if held ~= fence or tiered ~= first or last < first then
  return { codes.NONE, 0, tiered }
end
local rank = redis.call("ZCARD", segments)
local _, newest = manifest.tail(rest)
local newest_of = manifest.newest_of(segments, rank, rank + tonumber(state[8] or "0"), newest)

-- Write.
local records_before, bytes_before = tonumber(state[6] or "0"), tonumber(state[7] or "0")
redis.call(
  "ZADD", segments, num.text(first),
  manifest.member(first, last, records_before, records, bytes_before, size, rest, newest_of)
)
redis.call(
  "HSET", log, "tiered", num.text(last + 1), "tiered_records", num.text(records_before + records),
  "tiered_bytes", num.text(bytes_before + size)
)
return { codes.NONE, 1, last + 1 }
