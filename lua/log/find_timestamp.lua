--- log.find_timestamp  version 1  reads
--- Return the offset from which to scan for the first record at or after a timestamp.
---
--- KEYS     stream     stream  the partition's records
---          log        hash    the partition's state
---          index      zset    sparse index
--- ARGV     topic_id   text    the topic id the caller expects, 32 hex digits
---          timestamp  int     ms; -3: the newest timestamp in the log
--- RETURNS  error      int     a lib.codes value
---          offset     int     scan from here; every record below is older
---          timestamp  int     the timestamp searched for: as asked, or the newest, -1 for none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), at most 61 calls
--- NOTES    Rows above what log.adopt has counted are not used: foreign entries may be among the
---          records below them.
local codes = require("lib.codes")
local index_rows = require("lib.index")
local foreign_entries = require("lib.foreign_entries")

local stream, log, index = KEYS[1], KEYS[2], KEYS[3]
local topic_id, timestamp = ARGV[1], tonumber(ARGV[2])

local state = foreign_entries.open(stream, log)
if not state or state.topic_id ~= topic_id then
  return { state and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
if timestamp == -3 then
  timestamp = state.max_timestamp
end
-- Rows above the cursor know nothing of the times of foreign entries between them.
local is_any = state.is_counted or ARGV[2] == "-3"
local known, start = is_any and math.huge or state.cursor.offset, state.first

local row = index_rows.last(index, function(candidate)
  return candidate.newest < timestamp and candidate.offset <= known
end)
return { codes.NONE, row and math.max(row.offset, start) or start, timestamp }
