--- log.clean_commit  version 1  writes
--- Copy the entries from `limit` on, then replace the log with its compacted copy, atomically.
---
--- KEYS     stream         stream  the partition's records
---          log            hash    the partition's state
---          index          zset    sparse index
---          compacted      stream  the compacted copy, renamed to `stream` at the end
---          aborted_txns   zset    aborted transactions by the offset of their marker
--- ARGV     topic_id       text    the topic id the caller expects, 32 hex digits
---          token          text    the pass
---          length         int     entries that the copy must have
---          start          int     the log start when the compaction began
---          limit          int     entries below it were cleaned
---          cleaned        int     below it no key occurs twice
---          cleaned_bytes  int     bytes ever appended below `cleaned`
---          start_bytes    int     bytes ever appended that the log no longer holds
---          start_records  int     records ever appended that the log no longer holds
---          tombstones     int     1: the copy has tombstones, for a later pass to remove
---          tombstone_ms   int     delete.retention.ms
---          at_most        int     max entries from `limit` on to copy in this call, fewer if that
---                                 many average more than 128 KiB
---          rows...        text    the sparse index below `limit`, at most 8,000 rows
--- RETURNS  error          int     a lib.codes value
---          more           int     1: entries are left to copy, call again
---          length         int     entries that the copy then has
---          oversized_id   bytes   id of the next entry if it has too many fields for a script: the
---                                 caller adds it before it calls again; else empty
--- REFUSES  UNKNOWN_TOPIC_ID NOT_COORDINATOR OFFSET_OUT_OF_RANGE
--- FULL     always: the copy replaces the log
--- COST     O(entries copied + groups + rows), at most 533 calls + 1 per rows
--- NOTES    OFFSET_OUT_OF_RANGE: the log start has changed; a later pass starts over.
---          NOT_COORDINATOR: as in log.clean_copy. Redis groups keep their last delivered id; their
---          pending entries are lost.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local clock = require("lib.clock")
local foreign_entries = require("lib.foreign_entries")
local index_rows = require("lib.index")
local key_types = require("lib.key_types")
local num = require("lib.num")
local offset_map = require("lib.offset_map")
local entry_limits = require("lib.entry_limits")
local clean_swap = require("lib.clean_swap")

local stream, log, index, compacted, aborted_txns = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local topic_id, token, length = ARGV[1], ARGV[2], tonumber(ARGV[3])
local start, limit = ARGV[4], tonumber(ARGV[5])
local tombstones, tombstone_ms, at_most = ARGV[10] == "1", tonumber(ARGV[11]), tonumber(ARGV[12])
local ROWS, MOST_BYTES = 13, 131072

-- Check.
local state = redis.call(
  "HMGET", log, "topic_id", "compacting", "start", "mode", "bits", "format", "delete_horizons",
  "bytes", "entries", "shifts"
)
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, 0, 0, "" }
end
if state[2] ~= token or redis.call("XLEN", compacted) ~= length then
  return { codes.NOT_COORDINATOR, 0, 0, "" }
end
if state[3] ~= start then
  return { codes.OFFSET_OUT_OF_RANGE, 0, 0, "" }
end
key_types.zset(index)
key_types.zset(aborted_txns)
local rows = {}
for i = ROWS, #ARGV do
  rows[#rows + 1] = num.text(index_rows.parse(ARGV[i]).offset)
  rows[#rows + 1] = ARGV[i]
end

-- Write.
local map = offset_map.open(state[4], tonumber(state[5]), state[10])
local from, last = map:id(limit - 1), clean_swap.last(compacted)
if last and (map:offset(last) or -1) >= limit then
  from = last
end
local average = tonumber(state[8] or 0) / math.max(tonumber(state[9] or 0), 1)
at_most = math.min(at_most, math.max(1, math.floor(MOST_BYTES / math.max(average, 1))))
local rest = redis.call("XRANGE", stream, "(" .. from, "+", "COUNT", at_most + 1)
for i = 1, math.min(#rest, at_most) do
  if #rest[i][2] > entry_limits.MAX then
    return { codes.NONE, 1, length + i - 1, rest[i][1] }
  end
  redis.call("XADD", compacted, rest[i][1], unpack(rest[i][2]))
end
if #rest > at_most then
  return { codes.NONE, 1, length + at_most, "" }
end
clean_swap.take_over(stream, compacted)
local before = foreign_entries.open(stream, log)
redis.call("UNLINK", stream)
redis.call("RENAME", compacted, stream)
local after = foreign_entries.open(stream, log)
redis.call("ZREMRANGEBYSCORE", index, "-inf", "(" .. num.text(limit))
chunks.call("ZADD", index, rows)
redis.call("ZREMRANGEBYSCORE", aborted_txns, "-inf", "(" .. num.text(limit))
local horizons = clean_swap.horizons(
  state[7] or "", limit, tombstones, tombstone_ms, clock.now_ms()
)
redis.call(
  "HSET", log, "cleaned", ARGV[6], "cleaned_bytes", ARGV[7], "start_bytes", ARGV[8],
  "start_records", ARGV[9],
  "delete_horizons", horizons,
  "counted", foreign_entries.moved(before.cursor, after.added - before.added)
)
redis.call("HDEL", log, "compacting")
return { codes.NONE, 0, 0, "" }
