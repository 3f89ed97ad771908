--- group.poll_join  version 1  reads
--- Return the generation of a member whose JoinGroup waits, if the join phase is complete.
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
--- RETURNS  error          int    a lib.codes value
---          waiting        int    1: the join phase is not complete
---          generation     int    the generation, -1 on an error or while waiting
---          protocol_type  bytes  the group's
---          protocol       bytes  the chosen protocol
---          leader         bytes  the leader's member id
---          member         bytes  the member's id
---          skip           int    always 0
---          members        list   for the leader: id, instance, metadata of each member, flat
---          wait_ms        int    until the group's next deadline, -1 for none
---          rebalances     int    always 0
--- REFUSES  TICK_FIRST UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
--- COST     O(1), for the leader O(members), at most 9 calls + 2 per member
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")
local deadlines = require("lib.deadlines")

local id, instance = ARGV[1], ARGV[2]

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()
local wait_ms = deadlines.wait_ms(g.deadlines, now_ms)
if wait_ms == 0 or deadlines.ahead_ms(g.deadlines, now_ms) > 0 then
  return { codes.TICK_FIRST, 0, -1, "", "", "", id, 0, {}, 0, 0 }
end
local verdict = classic_group.check_member(g, id, instance)
if verdict ~= codes.NONE then
  return { verdict, 0, -1, "", "", "", id, 0, {}, -1, 0 }
end
if classic_group.get_member(g, id).awaiting then
  return { codes.NONE, 1, -1, "", "", "", id, 0, {}, wait_ms, 0 }
end
return {
  codes.NONE, 0, g.generation, g.protocol_type, g.protocol, g.leader, id, 0,
  classic_group.list_for_leader(g, id), wait_ms, 0,
}
