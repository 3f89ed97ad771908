--- topic.alter  version 1  writes
--- Replace a topic's definition if it is still the one the caller read.
---
--- KEYS     topics      hash   topic -> definition
--- ARGV     topic       text   the topic's name
---          expected    bytes  the definition the caller read
---          definition  bytes  the new definition
--- RETURNS  error       int    a lib.codes value
---          version     int    the new version of the topics table, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION TOPIC_CHANGED
--- FULL     always: definitions are replaced: a shorter retention frees memory, and a deletion on
---          Redis Cluster begins here
--- COST     O(1), at most 7 calls
--- NOTES    TOPIC_CHANGED: as in topic.add_partitions.
local codes = require("lib.codes")
local table_version = require("lib.table_version")

local topics = KEYS[1]
local topic, expected, definition = ARGV[1], ARGV[2], ARGV[3]

-- Check.
local current = redis.call("HGET", topics, topic)
if current ~= expected then
  return { current and codes.TOPIC_CHANGED or codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end

-- Write.
redis.call("HSET", topics, topic, definition)
return { codes.NONE, table_version.raise(topics) }
