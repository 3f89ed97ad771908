--- group.heartbeat  version 1  writes
--- Members of one group or several are alive for another session timeout.
---
--- KEYS     group...       hash   state, generation, protocol, counters, votes
---          members...     hash   member id -> timeouts and flags
---          instances...   hash   group instance id -> member id
---          deadlines...   zset   member id or phase -> moment, ms
--- ARGV     place...       int    which of the groups the member is in, 1 for the first
---          member...      bytes  the member id
---          instance...    bytes  group instance id, empty for a dynamic member
---          generation...  int    the generation the member believes in
--- RETURNS  errors         list   a lib.codes value for each member
---          waits          list   for each group: ms until its next deadline, -1 for none
--- REFUSES  COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
--- SIGNALS  REBALANCE_IN_PROGRESS
--- COST     O(members given), at most 1 call + 3 per group + 2 per member
--- NOTES    Does not load the group: this is what a quiet group does all day. A member whose JoinGroup
---          waits has no deadline and gets none here. A deadline that stands already is not written
---          again (lib.clock), so many heartbeats write nothing.
---          Each member is judged by itself: the refusal of one changes nothing for the others.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline of that group has passed,
---          run group.tick first. In a cluster the groups of a call share a slot.
local codes = require("lib.codes")
local clock = require("lib.clock")

local WIDTH, ROW = 4, 4

-- Check. Refusals live here.
local now_ms = clock.now_ms()
local states, generations, waits, due = {}, {}, {}, {}
for at = 1, #KEYS, WIDTH do
  local place = #waits + 1
  local first = redis.call("ZRANGE", KEYS[at + 3], 0, 0, "WITHSCORES")
  waits[place] = first[1] and math.max(tonumber(first[2]) - now_ms, 0) or -1
  local row = redis.call("HMGET", KEYS[at], "state", "generation")
  states[place], generations[place], due[place] = row[1], row[2], {}
end

local function judge(place, id, instance, generation)
  if waits[place] == 0 then
    return codes.COORDINATOR_LOAD_IN_PROGRESS
  end
  local at = (place - 1) * WIDTH
  if instance ~= "" then
    local known = redis.call("HGET", KEYS[at + 3], instance)
    if known ~= id then
      return known and codes.FENCED_INSTANCE_ID or codes.UNKNOWN_MEMBER_ID
    end
  end
  -- As lib.classic_member stores it; the library is not loaded for two of its words.
  local session, flags = string.match(redis.call("HGET", KEYS[at + 2], id) or "", "^(%d+) %d+ (%S+)$")
  if not session then
    return codes.UNKNOWN_MEMBER_ID
  end
  if generation ~= generations[place] then
    return codes.ILLEGAL_GENERATION
  end
  if not string.find(flags, "a", 1, true) then
    local list = due[place]
    list[#list + 1] = clock.about(now_ms, tonumber(session))
    list[#list + 1] = id
  end
  return states[place] == "PreparingRebalance" and codes.REBALANCE_IN_PROGRESS or codes.NONE
end

local errors = {}
for i = 1, #ARGV, ROW do
  errors[#errors + 1] = judge(tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end

-- Write.
for place, list in ipairs(due) do
  if list[1] then
    redis.call("ZADD", KEYS[place * WIDTH], unpack(list))
  end
end
return { errors, waits }
