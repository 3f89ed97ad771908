--- group.keep  version 1  writes
--- Offsets are committed by a member of a group of the newer protocol.
---
--- KEYS     group             hash   state, generation, protocol, counters, votes
---          consumer_members  hash   member id -> its epoch, subscription and partitions
---          partition_owners  hash   partition -> since when which member has it
---          deadlines         zset   member id or phase -> moment, ms
---          offsets           hash   `korvet:<topic>:<p>` -> what lib.offset_commit says
--- ARGV     member            bytes  the member id
---          epoch             int    the member's epoch
---          stores            int    0: only look whether it may
---          field...          bytes  a partition's stream key
---          offset...         bytes  the offset, digits
---          leader...         bytes  leader epoch, digits, -1 for none
---          topic...          bytes  topic id, 32 hex digits
---          metadata...       bytes  the client's own words
--- RETURNS  error             int    a lib.codes value
--- REFUSES  GROUP_ID_NOT_FOUND COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH
--- COST     O(partitions), at most 8 calls + 2 per field
--- NOTES    Without rows it is a member that asks what is committed.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local offset_commit = require("lib.offset_commit")
local consumer_group = require("lib.consumer_group")
local num = require("lib.num")

local group, consumer_members, partition_owners, deadlines, offsets = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, epoch, stores = ARGV[1], tonumber(ARGV[2]), ARGV[3] == "1"
local ROWS = 4

-- Check. Refusals live here.
if redis.call("HGET", group, "type") ~= "consumer" then
  return { codes.GROUP_ID_NOT_FOUND }
end
local now_ms = clock.now_ms()
local first = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
if first[1] and tonumber(first[2]) <= now_ms then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS }
end
local verdict = consumer_group.check_commit(consumer_members, partition_owners, id, epoch, ARGV, ROWS)
if verdict ~= codes.NONE then
  return { verdict }
end

-- Write.
for i = ROWS, stores and #ARGV or 0, 5 do
  redis.call(
    "HSET", offsets, ARGV[i],
    offset_commit.text(ARGV[i + 1], ARGV[i + 2], num.text(now_ms), "-1", ARGV[i + 3], ARGV[i + 4])
  )
end
return { codes.NONE }
