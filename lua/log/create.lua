--- log.create  version 1  writes
--- Create a partition's empty log, as topic.create does, unless the topic has it.
---
--- KEYS     log       hash    the partition's state
---          stream    stream  the partition's records
--- ARGV     topic_id  text    32 hex digits
---          format    text    record or batch
---          mode      text    time, dense or bytes; bytes needs format batch
---          bits      int     sequence bits of mode time
---          dedupe    text=   for how many ms ids count, and how many: "ms:ids"; empty: none
---          table     int=0   1: it has a table of each key's newest value; 2: and offset
---          epoch     int=0   the leader epoch of the cluster
--- RETURNS  error     int     a lib.codes value
---          opened    int     1: created now; 0: it existed
--- REFUSES  TOPIC_ALREADY_EXISTS
--- COST     O(1), at most 8 calls
--- NOTES    For Redis Cluster, where a topic's creation takes one call per slot. Refused if another
---          topic's log exists: that topic's deletion is not finished.
local codes = require("lib.codes")
local log_create = require("lib.log_create")

local log, stream = KEYS[1], KEYS[2]
local topic_id, format, mode, bits = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local dedupe, has_table, epoch = ARGV[5], ARGV[6], ARGV[7]

-- Check.
local there = redis.call("HGET", log, "topic_id")
if there == topic_id then
  return { codes.NONE, 0 }
end
if there then
  return { codes.TOPIC_ALREADY_EXISTS, 0 }
end
log_create.check(stream, log, mode)

-- Write.
log_create.open(stream, log, topic_id, format, mode, bits, dedupe, has_table, epoch)
return { codes.NONE, 1 }
