--- topic.add_partitions  version 1  writes
--- Add partitions with empty logs to a topic, and replace its definition.
---
--- KEYS     topics      hash    topic -> definition
---          logs...     hash    the state of each new partition, created by this script
---          streams...  stream  the records of each new partition
--- ARGV     topic       text    the topic's name
---          expected    bytes   the definition the caller read
---          definition  bytes   the new definition
---          topic_id    text    32 hex digits
---          format      text    record or batch
---          mode        text    time, dense or bytes; bytes needs format batch
---          bits        int     sequence bits of mode time
---          dedupe      text=   for how many ms ids count, and how many: "ms:ids"; empty: none
---          table       int=0   1: it has a table of each key's newest value; 2: and offset
---          epoch       int=0   the leader epoch of the cluster
--- RETURNS  error       int     a lib.codes value
---          version     int     the new version of the topics table, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION TOPIC_CHANGED
--- COST     O(new partitions), at most 6 calls + 3 per key
--- NOTES    TOPIC_CHANGED: the definition is not the expected one. The caller reads it and
---          decides again.
local codes = require("lib.codes")
local log_create = require("lib.log_create")
local table_version = require("lib.table_version")

local topics = KEYS[1]
local topic, expected, definition = ARGV[1], ARGV[2], ARGV[3]
local topic_id, format, mode, bits = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local dedupe, has_table, epoch = ARGV[8], ARGV[9], ARGV[10]

-- Check.
local current = redis.call("HGET", topics, topic)
if current ~= expected then
  return { current and codes.TOPIC_CHANGED or codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end

local partitions = (#KEYS - 1) / 2
for i = 1, partitions do
  log_create.check(KEYS[2 * i + 1], KEYS[2 * i], mode)
end

-- Write.
for i = 1, partitions do
  local log, stream = KEYS[2 * i], KEYS[2 * i + 1]
  log_create.open(stream, log, topic_id, format, mode, bits, dedupe, has_table, epoch)
end
redis.call("HSET", topics, topic, definition)
return { codes.NONE, table_version.raise(topics) }
