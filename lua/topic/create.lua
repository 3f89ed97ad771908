--- topic.create  version 1  writes
--- Create a topic: store its definition, and an empty log for each partition.
---
--- KEYS     topics      hash    topic -> definition
---          logs...     hash    the state of each new partition, created by this script
---          streams...  stream  the records of each new partition
--- ARGV     topic       text    the topic's name
---          definition  bytes   its definition, which no script parses
---          topic_id    text    32 hex digits
---          format      text    record or batch
---          mode        text    time, dense or bytes; bytes needs format batch
---          bits        int     sequence bits of mode time
---          dedupe      text=   for how many ms ids count, and how many: "ms:ids"; empty: none
---          table       int=0   1: it has a table of each key's newest value; 2: and offset
---          epoch       int=0   the leader epoch of the cluster
--- RETURNS  error       int     a lib.codes value
---          version     int     the new version of the topics table, -1 on an error
--- REFUSES  TOPIC_ALREADY_EXISTS
--- COST     O(partitions), at most 6 calls + 3 per key
--- NOTES    On Redis Cluster: first `log.create` per partition, then this without partitions.
local codes = require("lib.codes")
local log_create = require("lib.log_create")
local table_version = require("lib.table_version")

local topics = KEYS[1]
local topic, definition, topic_id = ARGV[1], ARGV[2], ARGV[3]
local format, mode, bits, dedupe = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local has_table, epoch = ARGV[8], ARGV[9]

-- Check.
if redis.call("HEXISTS", topics, topic) == 1 then
  return { codes.TOPIC_ALREADY_EXISTS, -1 }
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
