--- log.create  version 1  writes
--- A partition has its empty log, as topic.create makes it; a log of the same topic stays as it is.
---
--- KEYS     log       hash    the partition's state
---          stream    stream  the partition's records
--- ARGV     topic_id  bytes   32 hex digits
---          format    bytes   record or batch
---          mode      bytes   time, dense or bytes; the last with format batch
---          bits      int     sequence bits of mode time
--- RETURNS  error     int     a lib.codes value
---          opened    int     1 made now, 0 it was there
--- REFUSES  TOPIC_ALREADY_EXISTS
--- COST     O(1), at most 7 calls
--- NOTES    For Redis Cluster, where a topic is made slot by slot. Refused when another topic's log
---          is there: its deletion is not finished.
local codes = require("lib.codes")
local log_create = require("lib.log_create")

local log, stream = KEYS[1], KEYS[2]
local topic_id, format, mode, bits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- Check. Refusals live here.
local there = redis.call("HGET", log, "topic_id")
if there == topic_id then
  return { codes.NONE, 0 }
end
if there then
  return { codes.TOPIC_ALREADY_EXISTS, 0 }
end
log_create.check(stream, log, mode)

-- Write.
log_create.open(stream, log, topic_id, format, mode, bits)
return { codes.NONE, 1 }
