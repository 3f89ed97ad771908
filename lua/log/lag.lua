--- log.lag  version 1  writes
--- Count the records from an offset on, in any offset mode.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
---          index     zset    sparse index
---          segments  zset    manifest of segments by first offset
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
---          offset    int     the next record wanted
--- RETURNS  error     int     a lib.codes value
---          records   int     records at or above the offset
---          next      int     the end: last record + 1
---          newest    int     ms, the max timestamp since the log was empty, -1 for none
---          oldest    int     ms, the time of the first of these records, -1 if unknown
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: readers need the offsets, some bytes per thousand entries
--- COST     O(log index), and 10,000 entries or 8 MB, at most 120 calls + 4 per new_ms
--- NOTES    Foreign entries above the last append count. Older ones count only in the offset's own
---          index step. Beyond 10,000 entries or 8 MB the number is an estimate: from the offsets
---          in mode dense, else from the index and the length of the stream. `oldest` is the
---          append time or timestamp of the record, that of the last record of its batch or of its
---          segment, or the time of its id.
local codes = require("lib.codes")
local entry_pages = require("lib.entry_pages")
local fields = require("lib.fields")
local index_rows = require("lib.index")
local manifest = require("lib.segments")
local num = require("lib.num")
local numbering = require("lib.numbering")

local stream, log, index, segments = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local topic_id, offset = ARGV[1], tonumber(ARGV[2])

local state = redis.call(
  "HMGET", log, "topic_id", "format", "mode", "bits", "next", "records", "max_timestamp", "start",
  "start_records", "local_start", "tiered", "tiered_records"
)
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1, -1 }
end
redis.call("ZCARD", index)

-- Write.
local format, mode = state[2], state[3]
local appended, newest = tonumber(state[5]), tonumber(state[7])
-- Few: the others are counted below.
local next_offset, map = numbering.settle(numbering.open(stream, log), 300)
offset = math.max(offset, tonumber(state[8]))
if offset >= next_offset then
  return { codes.NONE, 0, next_offset, newest, -1 }
end

local oldest

-- Note the time of the first record: `found` is its entry.
local function note(found)
  if oldest then
    return
  end
  local row, id_ms = found[2], mode == "time" and string.match(found[1], "^%d+")
  for _, name in ipairs({ "append.time", "timestamp", "max.timestamp" }) do
    local text = fields.get(row, name) or ""
    if not oldest and #text < 16 and string.match(text, "^%d+$") then
      oldest = tonumber(text)
    end
  end
  oldest = oldest or id_ms and #id_ms < 16 and tonumber(id_ms) or -1
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
    oldest = found.newest
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
local budget = entry_pages.budget()
if offset <= last then
  local from, to, counted = map:id(offset), map:id(last), 0
  local is_whole = entry_pages.each(stream, from, to, budget, function(found)
    note(found)
    local count = format == "batch" and tonumber(fields.get(found[2], "count"))
    -- The id of a batch is its last offset: the batch may begin below the offset.
    local most = count and (map:offset(found[1]) or offset) - offset + 1
    counted = counted + (count and math.min(count, most) or 1)
  end)
  if not is_whole then
    local row = index_rows.last(index, function(candidate)
      return candidate.offset <= offset
    end)
    local final = redis.call("XREVRANGE", stream, to, from, "COUNT", 1)[1]
    local span = (map:offset(final[1]) or last) + 1 - offset
    known = known - (row and row.records or tonumber(state[9]))
    known = mode == "dense" and math.max(known, redis.call("XLEN", stream)) or known
    counted = math.max(counted, math.min(known, span))
  end
  records = records + counted
end
if next_offset > appended then
  local from, counted = math.max(offset, appended), 0
  local is_whole = entry_pages.each(stream, map:from(from), "+", budget, function(found)
    note(found)
    counted = counted + 1
  end)
  if not is_whole then
    -- All foreign entries, and of these the part from the offset on.
    local foreign = redis.call("XLEN", stream) - tonumber(state[6]) + tonumber(state[9])
    local share = (next_offset - from) / (next_offset - appended)
    counted = math.max(counted, math.min(math.floor(foreign * share), next_offset - from))
  end
  records = records + counted
end
if not oldest then
  -- Without an entry in its index step, the first record is in a later one.
  entry_pages.each(stream, map:from(offset), "+", { entries = 1, bytes = 1, page = 1 }, note)
end
return { codes.NONE, in_segments + records, next_offset, newest, oldest or -1 }
