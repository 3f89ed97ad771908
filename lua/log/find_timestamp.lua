--- log.find_timestamp  version 1  reads
--- Return the offset from which to scan for the first record at or after a timestamp.
---
--- KEYS     stream     stream  the partition's records
---          log        hash    the partition's state
---          index      zset    sparse index
--- ARGV     topic_id   bytes   the topic id the caller expects, 32 hex digits
---          timestamp  int     ms; -3: the newest timestamp in the log
--- RETURNS  error      int     a lib.codes value
---          offset     int     scan from here; every record below is older
---          timestamp  int     the timestamp searched for: as asked, or the newest, -1 for none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), at most 61 calls
--- NOTES    The index has no timestamps of foreign entries. If there are some, an index row is not
---          used if a foreign entry below it may be as new: in time mode by the milliseconds of its
---          id, in dense mode, whose ids hold no time, any foreign entry. If the log start is
---          inside an index step, some may be missed, at most as many as were cut from that step.
local codes = require("lib.codes")
local index_rows = require("lib.index")
local foreign_entries = require("lib.foreign_entries")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, timestamp = ARGV[1], tonumber(ARGV[2])

local state = redis.call(
  "HMGET", log, "topic_id", "max_timestamp", unpack(foreign_entries.FIELDS)
)
local local_start = redis.call("HGET", log, "local_start")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
if timestamp == -3 then
  timestamp = tonumber(state[2])
end
local mode, bits, start = state[4], tonumber(state[5]), tonumber(local_start or state[6])

-- Return whether a foreign entry below an index row may be as new as the timestamp.
local function hides()
  return false
end
if ARGV[2] ~= "-3" and foreign_entries.may_exist(stream, { unpack(state, 3) }) then
  if mode == "time" then
    local unit = 2 ^ bits
    hides = function(candidate)
      return candidate.offset >= timestamp * unit
    end
  else
    -- Each appended record takes one offset.
    local head = redis.call("ZRANGE", index, 0, 0)[1]
    local first = head and index_rows.parse(head)
    hides = function(candidate)
      return start < first.offset
        or candidate.offset - candidate.records > first.offset - first.records
    end
  end
end

local row = index_rows.last(index, function(candidate)
  return candidate.newest < timestamp and not hides(candidate)
end)
return { codes.NONE, row and math.max(row.offset, start) or start, timestamp }
