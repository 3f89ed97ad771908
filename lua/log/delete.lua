--- log.delete  version 1  writes
--- Nothing of a partition is left, provided that it was this topic's.
---
--- KEYS     log       hash    the partition's state
---          parts...  string  every other key of the partition
--- ARGV     topic_id  bytes   the topic the caller believes in, 32 hex digits
--- RETURNS  error     int     a lib.codes value
---          dropped   int     1 gone now, 0 it was gone, or is another topic's
--- COST     O(1), at most 2 calls
--- NOTES    For Redis Cluster, where a topic is deleted slot by slot. UNLINK of the stream takes its
---          Redis groups with it.
local codes = require("lib.codes")

local log = KEYS[1]
local topic_id = ARGV[1]

if redis.call("HGET", log, "topic_id") ~= topic_id then
  return { codes.NONE, 0 }
end

-- Write.
redis.call("UNLINK", unpack(KEYS))
return { codes.NONE, 1 }
