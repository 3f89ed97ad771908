--- topic.delete_definition  version 1  writes
--- Delete a topic's definition if it is still the one the caller read.
---
--- KEYS     topics    hash   topic -> definition
--- ARGV     topic     bytes  the topic's name
---          expected  bytes  the definition the caller read: a tombstone
--- RETURNS  error     int    a lib.codes value
---          version   int    the new version of the topics table, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION TOPIC_CHANGED
--- COST     O(1), at most 6 calls
--- NOTES    The last step of a topic's deletion on Redis Cluster, which takes one call per slot.
---          TOPIC_CHANGED: as in topic.add_partitions.
local codes = require("lib.codes")
local table_version = require("lib.table_version")

local topics = KEYS[1]
local topic, expected = ARGV[1], ARGV[2]

-- Check. Refusals live here.
local current = redis.call("HGET", topics, topic)
if not current then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end
if current ~= expected then
  return { codes.TOPIC_CHANGED, -1 }
end

-- Write.
redis.call("HDEL", topics, topic)
return { codes.NONE, table_version.raise(topics) }
