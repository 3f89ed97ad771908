--- group.heartbeat  version 1  writes
--- One member is alive for another session timeout.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          profiles       hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
--- ARGV     member         bytes  the member id
---          instance       bytes  group instance id, empty for a dynamic member
---          generation     int    the generation the member believes in
--- RETURNS  error          int    a lib.codes value
---          wait_ms        int    until the group's next deadline, -1 for none
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
--- SIGNALS  REBALANCE_IN_PROGRESS
--- COST     O(log members), at most 6 calls
--- NOTES    Does not load the group: this is what a quiet group does all day. A member whose JoinGroup
---          waits has no deadline and gets none here.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local member = require("lib.member")
local num = require("lib.num")

local group, members, instances, deadlines = KEYS[1], KEYS[2], KEYS[5], KEYS[7]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Check. Refusals live here.
local now_ms = clock.now_ms()
local first = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
local wait_ms = first[1] and tonumber(first[2]) - now_ms or -1
if first[1] and wait_ms <= 0 then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0 }
end
if instance ~= "" then
  local known = redis.call("HGET", instances, instance)
  if not known then
    return { codes.UNKNOWN_MEMBER_ID, -1 }
  end
  if known ~= id then
    return { codes.FENCED_INSTANCE_ID, -1 }
  end
end
local row = member.parse(redis.call("HGET", members, id))
if not row then
  return { codes.UNKNOWN_MEMBER_ID, -1 }
end
local state = redis.call("HMGET", group, "state", "generation")
if tonumber(state[2]) ~= generation then
  return { codes.ILLEGAL_GENERATION, -1 }
end

-- Write.
if not row.awaiting then
  redis.call("ZADD", deadlines, num.text(now_ms + row.session), id)
end
if state[1] == "PreparingRebalance" then
  return { codes.REBALANCE_IN_PROGRESS, wait_ms }
end
return { codes.NONE, wait_ms }
