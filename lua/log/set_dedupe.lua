--- log.set_dedupe  version 1  writes
--- Set for how long a partition knows ids of records, and remove those that do not count any more.
---
--- KEYS     log         hash    the partition's state
---          dedupe      hash    known ids
---          dedupe_old  hash    known ids of earlier records
--- ARGV     topic_id    text    the topic's id as the caller knows it, 32 hex digits
---          window      int=-1  ms for which an id counts; 0: ids do not count; -1: as before
---          max_ids     int=0   ids that a hash takes
--- RETURNS  error       int     a lib.codes value
---          removed     int     hashes removed
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: ids are removed
--- COST     O(1), at most 6 calls
local clock = require("lib.clock")
local codes = require("lib.codes")
local num = require("lib.num")

local log, dedupe, dedupe_old = KEYS[1], KEYS[2], KEYS[3]
local topic_id, window, max_ids = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- Check.
local row = redis.call("HMGET", log, "topic_id", "dedupe")
if row[1] ~= topic_id then
  return { row[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0 }
end
local current, _, since = string.match(row[2] or "0:0:0", "^(%d+):(%d+):(%d+)$")

-- Write.
if window == 0 then
  redis.call("HDEL", log, "dedupe")
elseif window > 0 then
  redis.call("HSET", log, "dedupe", num.text(window) .. ":" .. max_ids .. ":" .. since)
  current = window
end
-- No id of `dedupe_old` is younger than `since`, none of `dedupe` than that plus the window.
local age = window == 0 and math.huge or clock.now_ms() - tonumber(since)
local removed = 0
if age >= tonumber(current) then
  removed = redis.call("UNLINK", dedupe_old)
end
if age >= 2 * tonumber(current) then
  removed = removed + redis.call("UNLINK", dedupe)
end
return { codes.NONE, removed }
