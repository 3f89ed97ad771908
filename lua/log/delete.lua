--- log.delete  version 1  writes
--- Delete everything of a partition, if it belongs to the topic.
---
--- KEYS     log       hash    the partition's state
---          parts...  string  every other key of the partition
--- ARGV     topic_id  text    the topic id the caller expects, 32 hex digits
--- RETURNS  error     int     a lib.codes value
---          deleted   int     1: deleted now; 0: it did not exist, or belongs to another topic
--- FULL     always: the log is removed
--- COST     O(1), at most 2 calls
--- NOTES    For Redis Cluster, where a topic's deletion takes one call per slot. UNLINK of the
---          stream removes its Redis groups too.
local codes = require("lib.codes")

local log = KEYS[1]
local topic_id = ARGV[1]

if redis.call("HGET", log, "topic_id") ~= topic_id then
  return { codes.NONE, 0 }
end

-- Write.
redis.call("UNLINK", unpack(KEYS))
return { codes.NONE, 1 }
