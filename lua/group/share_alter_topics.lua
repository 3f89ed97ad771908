--- group.share_alter_topics  version 1  writes
--- Add topics to a share group without members, or remove them; create the group if it is missing.
---
--- KEYS     group              hash  state, generation, protocol, counters, votes
---          consumer_members   hash  member id -> epoch, subscription and partitions
---          target_assignment  hash  member id -> the partitions it should own
---          share_topics       hash  topic -> topic id
---          deadlines          zset  member id or phase -> moment, ms
--- ARGV     creates            int   1: create the group if it is missing and there are topics
---          is_registered      int   1: the group is in the registry
---          topic...           text  a topic's name
---          topic_id...        text  32 hex digits; empty: remove the topic
--- RETURNS  error              int   a lib.codes value
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND NON_EMPTY_GROUP REGISTER_FIRST
--- FULL     is_bounded: one field per topic of a group that exists
--- COST     O(topics), at most 11 calls + 1 per topic
--- NOTES    GROUP_ID_NOT_FOUND: the group is of another type, or missing and not to be created.
local codes = require("lib.codes")
local clock = require("lib.clock")
local modern_group = require("lib.modern_group")
local deadlines = require("lib.deadlines")
local key_types = require("lib.key_types")

local share_topics, moments = KEYS[4], KEYS[5]
local creates, is_registered = ARGV[1] == "1", ARGV[2] == "1"
local ROWS = 3

local now_ms = clock.now_ms()
local g = modern_group.load(
  { KEYS[1], KEYS[2], KEYS[3], "", "", moments }, modern_group.SHARE
)

-- Check.
if deadlines.passed(moments, now_ms) then
  return { codes.TICK_FIRST }
end
if g.type ~= modern_group.SHARE and (g.type or not creates) then
  return { codes.GROUP_ID_NOT_FOUND }
end
if g.size > 0 then
  return { codes.NON_EMPTY_GROUP }
end
local adds_group = not g.type and #ARGV >= ROWS
if adds_group and not is_registered then
  return { codes.REGISTER_FIRST }
end
key_types.hashes(KEYS, 4, 4)
local is_bounded = not adds_group

-- Write.
if adds_group then
  modern_group.save(g, now_ms)
end
for i = ROWS, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    redis.call("HDEL", share_topics, ARGV[i])
  else
    redis.call("HSET", share_topics, ARGV[i], ARGV[i + 1])
  end
end
return { codes.NONE }
