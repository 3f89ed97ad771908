--- group.list_share_topics  version 1  reads
--- Return the topics of a share group: those with state of the group in their partitions.
---
--- KEYS     group         hash   state, generation, protocol, counters, votes
---          share_topics  hash   topic -> topic id
---          deadlines     zset   member id or phase -> moment, ms
--- RETURNS  error         int    a lib.codes value
---          state         bytes  Empty or Stable
---          topics        list   topic, topic id, flat, in any order
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND
--- COST     O(topics), at most 5 calls
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")

local group, share_topics, moments = KEYS[1], KEYS[2], KEYS[3]

local row = redis.call("HMGET", group, "type", "state")
if row[1] ~= "share" then
  return { codes.GROUP_ID_NOT_FOUND, "", {} }
end
if deadlines.passed(moments, clock.now_ms()) then
  return { codes.TICK_FIRST, "", {} }
end
return { codes.NONE, row[2], redis.call("HGETALL", share_topics) }
