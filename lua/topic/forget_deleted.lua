--- topic.forget_deleted  version 1  writes
--- Forget a deleted topic whose objects in the remote store are deleted.
---
--- KEYS     deleted_topics  zset  ids of deleted topics by the time of deletion, ms
--- ARGV     topic_id        text  the topic's id, 32 hex digits
--- RETURNS  error           int   a lib.codes value
--- COST     O(1), at most 1 call
local codes = require("lib.codes")

redis.call("ZREM", KEYS[1], ARGV[1])
return { codes.NONE }
