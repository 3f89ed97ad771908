--- log.set_table  version 1  writes
--- Enable, disable or empty a partition's table: the newest value of each key, and its offset.
---
--- KEYS     log          hash    the partition's state
---          table        hash    record key -> value of its newest record
---          table_newer  zset    record key -> offset of its newest record
--- ARGV     topic_id     text    the topic's id as the caller knows it, 32 hex digits
---          action       text    on; offsets: on, with offsets; off; or rebuild: begin with an
---                               empty table, on unless it was
--- RETURNS  error        int     a lib.codes value
---          behind       int     1: records are to be added by log.fill_table; else 0
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: the table is emptied
--- COST     O(1), at most 4 calls
--- NOTES    The table of a log that has one stays as it is when it is enabled again. The layout is
---          `record`: the topic's definition says so. With offsets it begins again, to have all.
local codes = require("lib.codes")

local log, values, newer = KEYS[1], KEYS[2], KEYS[3]
local topic_id, action = ARGV[1], ARGV[2]

-- Check.
local state = redis.call("HMGET", log, "topic_id", "table", "next", "table_offsets")
if state[1] ~= topic_id then
  return { state[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0 }
end
local folded = state[2]

-- Write.
if action == "off" then
  redis.call("UNLINK", values, newer)
  redis.call("HDEL", log, "table", "table_offsets")
  return { codes.NONE, 0 }
end
if action == "on" then
  redis.call("HDEL", log, "table_offsets")
elseif action == "offsets" and not state[4] then
  redis.call("HSET", log, "table_offsets", "1")
  folded = nil
end
if action == "rebuild" or not folded then
  redis.call("UNLINK", values, newer)
  redis.call("HSET", log, "table", "0")
  folded = "0"
end
return { codes.NONE, tonumber(folded) < tonumber(state[3]) and 1 or 0 }
