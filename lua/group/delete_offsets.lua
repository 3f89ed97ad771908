--- group.delete_offsets  version 1  writes
--- Committed offsets of some partitions are gone, provided the group is still as the caller saw it.
---
--- KEYS     group        hash   state, generation, protocol, counters, votes
---          members      hash   member id -> timeouts and flags
---          clients      hash   member id -> client id, host, instance
---          protocols    hash   member id -> protocols and metadata
---          instances    hash   group instance id -> member id
---          assignments  hash   member id -> assignment
---          deadlines    zset   member id or phase -> moment, ms
---          offsets      hash   `korvet:<topic>:<p>` -> what lib.offset_commit says
--- ARGV     state        bytes  the state the caller saw
---          generation   int    the generation the caller saw
---          field...     bytes  a partition's stream key
--- RETURNS  error        int    a lib.codes value
---          removed      int    commits that were there
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND CONCURRENT_TRANSACTIONS
--- COST     O(fields), at most 3 calls + 1 per field
--- NOTES    CONCURRENT_TRANSACTIONS: the group moved; look again, call again. Never reaches a client.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")

local offsets = KEYS[8]
local state, generation = ARGV[1], tonumber(ARGV[2])
local FIELDS = 3

local g = classic_group.load(KEYS)

-- Check. Refusals live here.
if classic_group.overdue(g, clock.now_ms()) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0 }
end
if not g.exists then
  return { codes.GROUP_ID_NOT_FOUND, 0 }
end
if g.state ~= state or g.generation ~= generation then
  return { codes.CONCURRENT_TRANSACTIONS, 0 }
end

-- Write.
local removed = 0
for i = FIELDS, #ARGV do
  removed = removed + redis.call("HDEL", offsets, ARGV[i])
end
return { codes.NONE, removed }
