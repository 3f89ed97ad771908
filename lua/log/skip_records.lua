--- log.skip_records  version 1  reads
--- Return the offset a number of records above another, and the records in between.
---
--- KEYS     stream    stream  the partition's records
---          log       hash    the partition's state
---          index     zset    sparse index
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
---          offset    int     count from here
---          records   int     records to skip, at least 1
---          end       int     never go above this offset
--- RETURNS  error     int     a lib.codes value
---          offset    int     the offset after the last record counted; `end` if there are no more
---          records   int     records counted, at most `records`
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), and 10,000 entries or 8 MB, at most 150 calls
--- NOTES    Whole index steps are counted by the index, which has no foreign entries: with some in
---          the log, there can be more records in between than asked for. A long run of entries
---          without an index row is counted only in part: the offset is then lower.
local codes = require("lib.codes")
local entry_pages = require("lib.entry_pages")
local fields = require("lib.fields")
local index_rows = require("lib.index")
local num = require("lib.num")
local offset_map = require("lib.offset_map")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, offset = ARGV[1], tonumber(ARGV[2])
local wanted, finish = tonumber(ARGV[3]), tonumber(ARGV[4])

local state = redis.call("HMGET", log, "topic_id", "format", "mode", "bits", "shifts")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
local format, map = state[2], offset_map.open(state[3], tonumber(state[4]), state[5])
local budget = entry_pages.budget()

--- Return how many records the entry with the last offset `last` holds, and its first offset.
local function held(entry, last)
  local count = format == "batch" and tonumber(fields.get(entry, "count")) or 1
  return count, last - count + 1
end

--- Scan the entries from `from` until `most` records are counted or `stop` is reached.
local function scan(from, most, stop)
  local counted, at = 0, from
  if at >= stop or most <= 0 then
    return counted, at
  end
  local is_whole, rest = entry_pages.each(
    stream, map:id(at), "+", budget, function(entry)
      local last = map:offset(entry[1])
      if not last then
        return false
      end
      local count, first = held(entry[2], last)
      first = math.max(first, from)
      if first >= stop then
        return true
      end
      local take = math.min(last, stop - 1) - first + 1
      if format ~= "batch" then
        take = math.min(count, take)
      end
      take = math.min(take, most - counted)
      counted, at = counted + take, first + take
      return counted >= most
    end
  )
  if not is_whole then
    return counted, math.max(at, (map:offset(string.sub(rest, 2)) or -1) + 1)
  end
  return counted, counted >= most and at or stop
end

local after = redis.call("ZRANGEBYSCORE", index, num.text(offset), "+inf", "LIMIT", 0, 1)[1]
local next_row = after and index_rows.parse(after)
if not next_row or next_row.offset >= finish then
  local counted, at = scan(offset, wanted, finish)
  return { codes.NONE, at, counted }
end
local counted, at = scan(offset, wanted, next_row.offset)
if counted < wanted then
  local left = wanted - counted
  local row = index_rows.last(index, function(candidate)
    return candidate.offset <= finish and candidate.records - next_row.records <= left
  end)
  if row and row.offset > next_row.offset then
    counted, at = counted + row.records - next_row.records, row.offset
  end
  local more, reached = scan(at, wanted - counted, finish)
  counted, at = counted + more, reached
end
return { codes.NONE, at, counted }
