--- log.lag  version 1  reads
--- Count the records from an offset on, in any offset mode.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
---          index     zset    sparse index
---          segments  zset    manifest of segments by first offset
--- ARGV     topic_id  bytes   the topic id the caller expects, 32 hex digits
---          offset    int     the next record wanted
--- RETURNS  error     int     a lib.codes value
---          records   int     records at or above the offset
---          next      int     the end: last record + 1
---          newest    int     ms, the max timestamp since the log was empty, -1 for none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), and 10,000 entries and 10,000 foreign ones, at most 40 calls
--- NOTES    Foreign entries above the last append count, up to 10,000 of them. Older ones count
---          only in the offset's own index step. If that step has more than 10,000 entries, those
---          count that the index knows of.
local codes = require("lib.codes")
local entry_id = require("lib.entry_id")
local fields = require("lib.fields")
local index_rows = require("lib.index")
local manifest = require("lib.segments")
local num = require("lib.num")
local stream_end = require("lib.stream_end")

local MOST = 10000

local stream, log, index, segments = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local topic_id, offset = ARGV[1], tonumber(ARGV[2])

local state = redis.call(
  "HMGET", log, "topic_id", "format", "mode", "bits", "next", "records", "max_timestamp", "start",
  "start_records", "local_start", "tiered", "tiered_records"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1 }
end
local format, mode, bits = state[2], state[3], tonumber(state[4])
local appended, newest = tonumber(state[5]), tonumber(state[7])
local next_offset = stream_end.log_end(format, mode, bits, stream, appended)
offset = math.max(offset, tonumber(state[8]))
if offset >= next_offset then
  return { codes.NONE, 0, next_offset, newest }
end

-- Records below the local part: those of the segments, and a share of the offset's own segment.
local in_segments = 0
if offset < tonumber(state[10] or "0") then
  local row = redis.call("ZREVRANGEBYSCORE", segments, num.text(offset), "-inf", "LIMIT", 0, 1)[1]
  if row then
    local found = manifest.parse(row)
    local share = (offset - found.first) / (found.last - found.first + 1)
    in_segments = tonumber(state[12]) - found.before
      - math.min(math.floor(share * found.records), found.records)
  end
  offset = math.max(offset, tonumber(state[11]))
end

-- The index knows the records above the next index row; count the entries up to there.
local step = redis.call(
  "ZRANGEBYSCORE", index, "(" .. num.text(offset), "+inf", "LIMIT", 0, 1
)[1]
local records, last, known = 0, appended - 1, tonumber(state[6])
if step then
  local row = index_rows.parse(step)
  records, last, known = known - row.records, row.offset - 1, row.records
end
local entries = {}
if offset <= last then
  entries = redis.call(
    "XRANGE", stream, entry_id.id(mode, bits, offset), entry_id.id(mode, bits, last), "COUNT", MOST
  )
end
if #entries == MOST then
  local row = index_rows.last(index, function(candidate)
    return candidate.offset <= offset
  end)
  known = known - (row and row.records or tonumber(state[9]))
  local from, to = entry_id.id(mode, bits, offset), entry_id.id(mode, bits, last)
  local final = redis.call("XREVRANGE", stream, to, from, "COUNT", 1)[1]
  known = math.min(known, entry_id.offset_after(mode, bits, final[1]) - offset)
  records = records + math.max(0, known - MOST)
end
if next_offset > appended then
  local from = entry_id.id(mode, bits, math.max(offset, appended))
  records = records + #redis.call("XRANGE", stream, from, "+", "COUNT", MOST)
end
for _, found in ipairs(entries) do
  local count = format == "batch" and tonumber(fields.get(found[2], "count"))
  -- The id of a batch is its last offset: the batch may begin below the offset.
  local most = count and entry_id.offset(mode, bits, found[1]) - offset + 1
  records = records + (count and math.min(count, most) or 1)
end
return { codes.NONE, in_segments + records, next_offset, newest }
