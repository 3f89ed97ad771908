--- group.delete  version 4  writes
--- A group without members is gone with its committed offsets.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          profiles       hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
---          offsets        hash   `korvet:<topic>:<p>` -> what lib.commit says
---          waiting        hash   producer id -> its newest transaction here, and commits that wait
---          consumers      hash   member id -> its epoch, subscription and partitions
---          targets        hash   member id -> the partitions it should have
---          holders        hash   partition -> since when which member has it
--- RETURNS  error          int    a lib.codes value
---          fields         list   fields of the commits it had
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND NON_EMPTY_GROUP
--- COST     O(members + commits), at most 10 calls + 1 per waiting_commit
--- NOTES    Which transactions ended here is known for a day longer, as in group.tick; commits that wait
---          for theirs are gone.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local group = require("lib.group")
local kinds = require("lib.kinds")
local pending = require("lib.pending")

local offsets, waiting = KEYS[8], KEYS[9]

local g = group.load(KEYS)

-- Check. Refusals live here.
if group.overdue(g, clock.now_ms()) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, {} }
end
if not g.exists then
  return { codes.GROUP_ID_NOT_FOUND, {} }
end
if g.state ~= group.EMPTY then
  return { codes.NON_EMPTY_GROUP, {} }
end
local fields = redis.call("HKEYS", offsets)
kinds.hashes(KEYS, 9, 9)

-- Write.
redis.call("UNLINK", unpack(KEYS, 1, 8))
redis.call("UNLINK", unpack(KEYS, 10))
pending.leave(waiting)
return { codes.NONE, fields }
