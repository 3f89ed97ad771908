--- topic.delete_definition  version 1  writes
--- Delete a topic's definition if it is still the one the caller read.
---
--- KEYS     topics          hash   topic -> definition
---          deleted_topics  zset   ids of deleted topics by the time of deletion, ms
--- ARGV     topic           text   the topic's name
---          expected        bytes  the definition the caller read: a tombstone
---          remote_id       text   the topic's id if it may have segments, empty if not
--- RETURNS  error           int    a lib.codes value
---          version         int    the new version of the topics table, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION TOPIC_CHANGED
--- FULL     always: a topic is removed
--- COST     O(1), at most 9 calls
--- NOTES    The last step of a topic's deletion on Redis Cluster, which takes one call per slot.
---          TOPIC_CHANGED: as in topic.add_partitions.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")
local table_version = require("lib.table_version")

local topics, deleted_topics = KEYS[1], KEYS[2]
local topic, expected, remote_id = ARGV[1], ARGV[2], ARGV[3]

-- Check.
local current = redis.call("HGET", topics, topic)
if current ~= expected then
  return { current and codes.TOPIC_CHANGED or codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end
redis.call("ZCARD", deleted_topics)
local now_ms = clock.now_ms()

-- Write.
redis.call("HDEL", topics, topic)
if remote_id ~= "" then
  redis.call("ZADD", deleted_topics, num.text(now_ms), remote_id)
end
return { codes.NONE, table_version.raise(topics) }
