--- share.delete  version 1  writes
--- Delete the state of a share group in a partition.
---
--- KEYS     log         hash  the partition's state
---          share       hash  share group -> end of its state, epoch, counters
---          share_runs  zset  the groups' available and acquired records
--- ARGV     group       id    the encoded group id
---          topic_id    text  the topic id the caller expects, 32 hex digits
--- RETURNS  error       int   a lib.codes value
---          deleted     int   1: the group had a state here
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: the group's state is removed
--- COST     O(runs of the group), at most 4 calls + 2 per page
--- NOTES    The next share.acquire of the group begins with share.auto.offset.reset.
local codes = require("lib.codes")
local share_clear = require("lib.share_clear")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, topic_id = ARGV[1], ARGV[2]

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0 }
end
-- Raises an error, before the first write, if the key is no hash.
redis.call("HLEN", share)

-- Write.
share_clear.rows(runs, group)
return { codes.NONE, redis.call("HDEL", share, group) }
