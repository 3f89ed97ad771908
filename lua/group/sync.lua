--- group.sync  version 1  writes
--- Handle a SyncGroup: store the leader's assignment, return the member's part of it.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          clients        hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
--- ARGV     member         text   the member id
---          instance       text   group instance id, empty for a dynamic member
---          generation     int    the member's generation
---          protocol_type  text   the protocol type of the request, empty for none
---          protocol       text   the protocol of the request, empty for none
---          target...      text   from the leader: a member id
---          assignment...  bytes  from the leader: that member's assignment
--- RETURNS  error          int    a lib.codes value
---          waiting        int    1: the leader has not sent the assignment, call again
---          protocol_type  bytes  the group's
---          protocol       bytes  the chosen protocol
---          assignment     bytes  the member's assignment
---          wait_ms        int    until the group's next deadline, -1 for none
--- REFUSES  TICK_FIRST UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
---          INCONSISTENT_GROUP_PROTOCOL REBALANCE_IN_PROGRESS
--- FULL     always: one assignment per member
--- COST     O(1), for the leader O(members), at most 14 calls + 3 per member
--- NOTES    Assignments of unknown members are ignored; members that the leader left out get an
---          empty one.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local deadlines = require("lib.deadlines")
local num = require("lib.num")

local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local protocol_type, protocol = ARGV[4], ARGV[5]
local TARGETS = 6

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()

-- Check.
if deadlines.passed(g.deadlines, now_ms) then
  return { codes.TICK_FIRST, 0, "", "", "", 0 }
end
local verdict = classic_group.check_member(g, id, instance)
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
local row = classic_group.get_member(g, id)
if not row.synced then
  row.synced = true
  classic_group.put_member(g, id, row)
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
  for _, pair in ipairs(classic_group.list_members(g)) do
    redis.call("HSET", g.assignments, pair[1], assigned[pair[1]] or "")
    if pair[2].synced then
      classic_group.renew_session(g, pair[1], pair[2], now_ms)
    end
  end
  assignment = assigned[id] or ""
  g.state, g.since, g.notify = classic_group.STABLE, now_ms, true
  classic_group.save(g)
elseif g.state == classic_group.COMPLETING then
  redis.call("ZREM", g.deadlines, id)
  return { codes.NONE, 1, "", "", "", deadlines.wait_ms(g.deadlines, now_ms) }
else
  classic_group.renew_session(g, id, row, now_ms)
end
return {
  codes.NONE, 0, g.protocol_type, g.protocol, assignment, deadlines.wait_ms(g.deadlines, now_ms),
}
