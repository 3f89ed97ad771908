--- group.commit  version 1  writes
--- Offsets are committed by a member of this generation, or to a group without members.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          profiles       hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
---          offsets        hash   `korvet:<topic>:<p>` -> what lib.commit says
--- ARGV     member         bytes  the member id, empty for none
---          instance       bytes  group instance id, empty for none
---          generation     int    the generation the member believes in, negative without membership
---          registered     int    1: the group stands in the registry
---          retention_ms   int    keep these commits so long, -1: as the broker has it
---          field...       bytes  a partition's stream key
---          offset...      bytes  the offset, digits
---          epoch...       bytes  leader epoch, digits, -1 for none
---          topic...       bytes  topic id, 32 hex digits
---          metadata...    bytes  the client's own words
--- RETURNS  error          int    a lib.codes value
---          wait_ms        int    until the group's next deadline, -1 for none
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
---          ILLEGAL_GENERATION REBALANCE_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
--- COST     O(partitions), at most 9 calls + 1 per field
--- NOTES    GROUP_ID_NOT_FOUND: a generation was named and there is no group.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first. COORDINATOR_NOT_AVAILABLE neither: register the group first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local commit = require("lib.commit")
local group = require("lib.group")
local num = require("lib.num")

local offsets = KEYS[8]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local registered, retention_ms = ARGV[4] == "1", tonumber(ARGV[5])
local ROWS = 6

local g = group.load(KEYS)
local now_ms = clock.now_ms()

-- Check. Refusals live here.
if group.overdue(g, now_ms) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0 }
end
if not g.exists and generation >= 0 then
  return { codes.GROUP_ID_NOT_FOUND, -1 }
end
local simple = generation < 0 and g.state == group.EMPTY
if not simple and (generation >= 0 or id ~= "" or instance ~= "") then
  local verdict = group.validate(g, id, instance)
  if verdict ~= codes.NONE then
    return { verdict, -1 }
  end
  if generation ~= g.generation then
    return { codes.ILLEGAL_GENERATION, -1 }
  end
elseif not simple then
  return { codes.UNKNOWN_MEMBER_ID, -1 }
end
if g.state == group.COMPLETING then
  return { codes.REBALANCE_IN_PROGRESS, -1 }
end
if not g.exists and not registered then
  return { codes.COORDINATOR_NOT_AVAILABLE, -1 }
end

-- Write.
local expires_ms = retention_ms >= 0 and now_ms + retention_ms or -1
for i = ROWS, #ARGV, 5 do
  redis.call(
    "HSET", offsets, ARGV[i],
    commit.text(ARGV[i + 1], ARGV[i + 2], num.text(now_ms), num.text(expires_ms), ARGV[i + 3], ARGV[i + 4])
  )
end
if g.state == group.EMPTY then
  group.look_later(g, now_ms)
  if not g.exists then
    g.since = now_ms
    group.save(g)
  end
else
  local row = group.row(g, id)
  if not row.awaiting then
    group.restart(g, id, row, now_ms)
  end
end
return { codes.NONE, group.wait_ms(g, now_ms) }
