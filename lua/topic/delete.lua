--- topic.delete  version 1  writes
--- Delete a topic with its logs, its Redis groups and its committed offsets.
---
--- KEYS     topics            hash    topic -> definition
---          groups            hash    the group registry
---          deleted_topics    zset    ids of deleted topics by the time of deletion, ms
---          parts...          string  the 19 keys of each partition, in any order, which begin with
---                                    the stream's name, plain or in braces; then the committed
---                                    offsets of each group
--- ARGV     topic             text    the topic's name
---          expected          bytes   the definition the caller read
---          registry_version  bytes   the group registry's version the caller read, empty for none
---          remote_id         text    the topic's id if it may have segments, empty if not
---          partitions        int     the number of partitions in KEYS
---          fields...         text    the topic's field names in a group's offsets
--- RETURNS  error             int     a lib.codes value
---          version           int     the new version of the topics table, -1 on an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION TOPIC_CHANGED
--- FULL     always: the topic is removed
--- COST     O(partitions + groups), at most 10 calls + 1 per key + 1 per arg
--- NOTES    TOPIC_CHANGED: the definition or the registry changed after the caller read them. The
---          caller reads them and calls again.
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local clock = require("lib.clock")
local key_types = require("lib.key_types")
local num = require("lib.num")
local table_version = require("lib.table_version")

local topics, groups, deleted_topics = KEYS[1], KEYS[2], KEYS[3]
local topic, expected, registry_version = ARGV[1], ARGV[2], ARGV[3]
local remote_id, partitions = ARGV[4], tonumber(ARGV[5])
local PARTS, OF_EACH, FIELDS = 3, 19, 6
if not (partitions >= 0 and PARTS + OF_EACH * partitions <= #KEYS) then
  error("topic.delete: KEYS are not those of " .. ARGV[5] .. " partitions", 0)
end

-- Check.
local current = redis.call("HGET", topics, topic)
if not current then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, -1 }
end
if current ~= expected or (redis.call("HGET", groups, ":version") or "") ~= registry_version then
  return { codes.TOPIC_CHANGED, -1 }
end
key_types.hashes(KEYS, PARTS + OF_EACH * partitions + 1, #KEYS)
redis.call("ZCARD", deleted_topics)
local now_ms = clock.now_ms()

-- Write. UNLINK of a stream removes its Redis groups too.
for i = 0, partitions - 1 do
  local at = PARTS + OF_EACH * i
  redis.call("UNLINK", unpack(KEYS, at + 1, at + OF_EACH))
end
for i = PARTS + OF_EACH * partitions + 1, #KEYS do
  chunks.call("HDEL", KEYS[i], ARGV, FIELDS)
end
redis.call("HDEL", topics, topic)
if remote_id ~= "" then
  redis.call("ZADD", deleted_topics, num.text(now_ms), remote_id)
end
return { codes.NONE, table_version.raise(topics) }
