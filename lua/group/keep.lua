--- group.keep  version 2  writes
--- Offsets are committed by a member of a group of the newer protocol.
---
--- KEYS     group      hash   state, generation, protocol, counters, votes
---          consumers  hash   epoch, topics and members
---          offsets    hash   `korvet:<topic>:<p>` -> what lib.commit says
--- ARGV     member     bytes  the member id
---          epoch      int    the member's epoch
---          field...   bytes  a partition's stream key
---          offset...  bytes  the offset, digits
---          leader...  bytes  leader epoch, digits, -1 for none
---          topic...   bytes  topic id, 32 hex digits
---          metadata...  bytes  the client's own words
--- RETURNS  error      int    a lib.codes value
--- REFUSES  GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH
--- COST     O(partitions), at most 8 calls + 1 per field
--- NOTES    Without rows it only checks.
local codes = require("lib.codes")
local clock = require("lib.clock")
local commit = require("lib.commit")
local consumers = require("lib.consumers")
local num = require("lib.num")

local group, store, offsets = KEYS[1], KEYS[2], KEYS[3]
local id, epoch = ARGV[1], tonumber(ARGV[2])
local ROWS = 3

-- Check. Refusals live here.
if redis.call("HGET", group, "type") ~= "consumer" then
  return { codes.GROUP_ID_NOT_FOUND }
end
local m = consumers.load(store).members[id]
if not m then
  return { codes.UNKNOWN_MEMBER_ID }
end
if m.epoch ~= epoch then
  return { codes.STALE_MEMBER_EPOCH }
end

-- Write.
local now_ms = clock.now_ms()
for i = ROWS, #ARGV, 5 do
  redis.call(
    "HSET", offsets, ARGV[i],
    commit.text(ARGV[i + 1], ARGV[i + 2], num.text(now_ms), "-1", ARGV[i + 3], ARGV[i + 4])
  )
end
return { codes.NONE }
