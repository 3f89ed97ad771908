--- group.poll_join  version 1  reads
--- Whether a member whose JoinGroup waits has its place in a generation now.
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
--- RETURNS  error          int    a lib.codes value
---          waiting        int    1: not yet
---          generation     int    the generation, -1 when refused or waiting
---          protocol_type  bytes  the group's
---          protocol       bytes  the chosen protocol
---          leader         bytes  the leader's member id
---          member         bytes  the member's id
---          skip           int    always 0
---          members        list   for the leader: id, instance, metadata of each member, flat
---          wait_ms        int    until the group's next deadline, -1 for none
---          began          int    always 0
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID
--- COST     O(1), for the leader O(members), at most 8 calls + 2 per member
--- NOTES    COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local classic_group = require("lib.classic_group")

local id, instance = ARGV[1], ARGV[2]

local g = classic_group.load(KEYS)
local now_ms = clock.now_ms()
if classic_group.overdue(g, now_ms) then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0, -1, "", "", "", id, 0, {}, 0, 0 }
end
local verdict = classic_group.validate(g, id, instance)
if verdict ~= codes.NONE then
  return { verdict, 0, -1, "", "", "", id, 0, {}, -1, 0 }
end
if classic_group.row(g, id).awaiting then
  return { codes.NONE, 1, -1, "", "", "", id, 0, {}, classic_group.wait_ms(g, now_ms), 0 }
end
return {
  codes.NONE, 0, g.generation, g.protocol_type, g.protocol, g.leader, id, 0,
  classic_group.roster(g, id), classic_group.wait_ms(g, now_ms), 0,
}
