--- topic.create  version 1  writes
--- A topic exists: its definition is registered and each of its partitions has an empty log.
---
--- KEYS     topics      hash    topic -> definition
---          logs...     hash    the state of each new partition, here empty after this
---          streams...  stream  the records of each new partition
--- ARGV     topic       bytes   its name
---          definition  bytes   its definition, opaque here
---          topic_id    bytes   32 hex digits
---          format      bytes   record or batch
---          mode        bytes   time, dense or bytes; the last with format batch
---          bits        int     sequence bits of mode time
--- RETURNS  error       int     a lib.codes value
---          version     int     the topics table's version, -1 when refused
--- REFUSES  TOPIC_ALREADY_EXISTS
--- COST     O(partitions), at most 6 calls + 3 per key
--- NOTES    Redis Cluster takes `log.create` for each partition first, then this without partitions.
local codes = require("lib.codes")
local log_create = require("lib.log_create")
local table_version = require("lib.table_version")

local topics = KEYS[1]
local topic, definition, topic_id = ARGV[1], ARGV[2], ARGV[3]
local format, mode, bits = ARGV[4], ARGV[5], ARGV[6]

-- Check. Refusals live here.
if redis.call("HEXISTS", topics, topic) == 1 then
  return { codes.TOPIC_ALREADY_EXISTS, -1 }
end

local partitions = (#KEYS - 1) / 2
for i = 1, partitions do
  log_create.check(KEYS[2 * i + 1], KEYS[2 * i], mode)
end

-- Write.
for i = 1, partitions do
  log_create.open(KEYS[2 * i + 1], KEYS[2 * i], topic_id, format, mode, bits)
end
redis.call("HSET", topics, topic, definition)
return { codes.NONE, table_version.raise(topics) }
