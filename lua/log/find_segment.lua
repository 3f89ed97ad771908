--- log.find_segment  version 1  reads
--- Return the oldest segment with a record at or after a timestamp.
---
--- KEYS     log        hash   the partition's state
---          segments   zset   manifest of segments by first offset
--- ARGV     topic_id   text   the topic id the caller expects, 32 hex digits
---          timestamp  int    ms; -3: the newest timestamp in the segments
--- RETURNS  error      int    a lib.codes value
---          timestamp  int    the timestamp searched for: as asked, or the newest, -1 for none
---          row        bytes  the segment's row in the manifest; empty without such a segment
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- COST     O(log segments), at most 300 calls
--- NOTES    Timestamps may be in any order.
local codes = require("lib.codes")
local manifest = require("lib.segments")

local log, segments = KEYS[1], KEYS[2]
local topic_id, timestamp = ARGV[1], tonumber(ARGV[2])

local state = redis.call("HMGET", log, "topic_id", "segments_removed")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, -1, "" }
end
local removed = tonumber(state[2] or "0")
if timestamp == -3 then
  timestamp = -1
  manifest.walk(segments, removed, function(newest)
    timestamp = math.max(timestamp, newest)
    return true
  end)
end
local found = nil
if timestamp >= 0 then
  manifest.walk(segments, removed, function(newest, row)
    if newest < timestamp then
      return true
    end
    found = row
    return false
  end)
end
return { codes.NONE, timestamp, found and found.member or "" }
