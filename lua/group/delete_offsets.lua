--- group.delete_offsets  version 1  writes
--- Delete committed offsets of some partitions, if the group is unchanged.
---
--- KEYS     group        hash  state, generation, protocol, counters, votes
---          members      hash  member id -> timeouts and flags
---          clients      hash  member id -> client id, host, instance
---          protocols    hash  member id -> protocols and metadata
---          instances    hash  group instance id -> member id
---          assignments  hash  member id -> assignment
---          deadlines    zset  member id or phase -> moment, ms
---          offsets      hash  `korvet:<topic>:<p>` -> commit (lib.offset_commit)
--- ARGV     state        text  the state that the caller read
---          generation   int   the generation that the caller read
---          field...     text  a partition's stream key
--- RETURNS  error        int   a lib.codes value
---          removed      int   number of deleted commits
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND GROUP_CHANGED
--- FULL     always: commits are removed
--- COST     O(fields), at most 4 calls + 1 per field
--- NOTES    GROUP_CHANGED: describe the group, then call again.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local deadlines = require("lib.deadlines")

local offsets = KEYS[8]
local state, generation = ARGV[1], tonumber(ARGV[2])
local FIELDS = 3

local g = classic_group.load(KEYS)

-- Check.
if deadlines.passed(g.deadlines, clock.now_ms()) then
  return { codes.TICK_FIRST, 0 }
end
if not g.exists or g.type == "share" then
  return { codes.GROUP_ID_NOT_FOUND, 0 }
end
if g.state ~= state or g.generation ~= generation then
  return { codes.GROUP_CHANGED, 0 }
end

-- Write.
local removed = 0
for i = FIELDS, #ARGV do
  removed = removed + redis.call("HDEL", offsets, ARGV[i])
end
return { codes.NONE, removed }
