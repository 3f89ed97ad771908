--- log.seek  version 1  reads
--- The offset from which a scan finds the first record at or after a moment.
---
--- KEYS     log        hash   the partition's state
---          index      zset   sparse index
--- ARGV     topic_id   bytes  the topic the caller believes in, 32 hex digits
---          timestamp  int    ms; -3: the newest timestamp in the log
--- RETURNS  error      int    a lib.codes value
---          offset     int    scan from here; everything before it is older
---          timestamp  int    the moment searched for: as asked, or the newest, -1 for none
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log index), at most 60 calls
local codes = require("lib.codes")
local index_rows = require("lib.index")

local log, index = KEYS[1], KEYS[2]
local topic_id, timestamp = ARGV[1], tonumber(ARGV[2])

local state = redis.call("HMGET", log, "topic_id", "start", "max_timestamp")
if not state[1] then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1 }
end
if state[1] ~= topic_id then
  return { codes.UNKNOWN_TOPIC_ID, -1, -1 }
end
if timestamp == -3 then
  timestamp = tonumber(state[3])
end
local row = index_rows.last(index, function(candidate)
  return candidate.newest < timestamp
end)
local start = tonumber(state[2])
return { codes.NONE, row and math.max(row.offset, start) or start, timestamp }
