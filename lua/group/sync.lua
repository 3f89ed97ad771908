--- group.sync  version 1  writes
--- The leader's assignment is everybody's; a member has its part of it, or waits for the leader.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          clients        hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
--- ARGV     member         bytes  the member id
---          instance       bytes  group instance id, empty for a dynamic member
---          generation     int    the generation the member joined
---          protocol_type  bytes  what the member believes, empty for nothing
---          protocol       bytes  the same for the protocol
---          target...      bytes  from the leader: a member id
---          assignment...  bytes  and what that member is assigned
--- RETURNS  error          int    a lib.codes value
---          waiting        int    1: the leader has not spoken yet, ask again
---          protocol_type  bytes  the group's
---          protocol       bytes  the chosen protocol
---          assignment     bytes  the member's part
---          wait_ms        int    until the group's next deadline, -1 for none
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
---          INCONSISTENT_GROUP_PROTOCOL REBALANCE_IN_PROGRESS
--- COST     O(1), for the leader O(members), at most 13 calls + 3 per member
--- NOTES    Assignments for strangers are ignored; members the leader forgot get an empty one.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local num = require("lib.num")

local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local protocol_type, protocol = ARGV[4], ARGV[5]
local TARGETS = 6

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()

-- Check. Refusals live here.
if classic_group.overdue(g, now_ms) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0, "", "", "", 0 }
end
local verdict = classic_group.validate(g, id, instance)
if verdict ~= codes.NONE then
  return { verdict, 0, "", "", "", -1 }
end
if generation ~= g.generation then
  return { codes.ILLEGAL_GENERATION, 0, "", "", "", -1 }
end
if protocol_type ~= "" and protocol_type ~= g.protocol_type
  or protocol ~= "" and protocol ~= g.protocol then
  return { codes.INCONSISTENT_GROUP_PROTOCOL, 0, "", "", "", -1 }
end
if g.state == classic_group.PREPARING then
  return { codes.REBALANCE_IN_PROGRESS, 0, "", "", "", -1 }
end

local assignment = redis.call("HGET", g.assignments, id) or ""

-- Write.
local row = classic_group.row(g, id)
if not row.synced then
  row.synced = true
  classic_group.put(g, id, row)
  g.unsynced = g.unsynced - 1
  if g.unsynced == 0 then
    redis.call("ZREM", g.deadlines, ":sync")
  end
  redis.call("HSET", g.group, "unsynced", num.text(g.unsynced))
end
if g.state == classic_group.COMPLETING and g.leader == id then
  local assigned = {}
  for i = TARGETS, #ARGV, 2 do
    assigned[ARGV[i]] = ARGV[i + 1]
  end
  for _, pair in ipairs(classic_group.rows(g)) do
    redis.call("HSET", g.assignments, pair[1], assigned[pair[1]] or "")
    if pair[2].synced then
      classic_group.restart(g, pair[1], pair[2], now_ms)
    end
  end
  assignment = assigned[id] or ""
  g.state, g.since, g.ring = classic_group.STABLE, now_ms, true
  classic_group.save(g)
elseif g.state == classic_group.COMPLETING then
  redis.call("ZREM", g.deadlines, id)
  return { codes.NONE, 1, "", "", "", classic_group.wait_ms(g, now_ms) }
else
  classic_group.restart(g, id, row, now_ms)
end
return {
  codes.NONE, 0, g.protocol_type, g.protocol, assignment, classic_group.wait_ms(g, now_ms),
}
