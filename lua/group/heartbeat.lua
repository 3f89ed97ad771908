--- group.heartbeat  version 1  writes
--- Renew the sessions of classic members, of one group or several.
---
--- KEYS     group...        hash  state, generation, protocol, counters, votes
---          members...      hash  member id -> timeouts and flags
---          instances...    hash  group instance id -> member id
---          deadlines...    zset  member id or phase -> moment, ms
--- ARGV     group_index...  int   the member's group among KEYS, 1 for the first
---          member...       text  the member id
---          instance...     text  group instance id, empty for a dynamic member
---          generation...   int   the member's generation
--- RETURNS  errors          ints  a lib.codes value per member
---          waits           ints  per group: ms until its next deadline, -1 for none
--- REFUSES  TICK_FIRST UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION
--- SIGNALS  REBALANCE_IN_PROGRESS
--- FULL     always: deadlines are replaced
--- COST     O(members given), at most 1 call + 4 per group + 2 per member
--- NOTES    Does not load the group: a quiet group runs this script more than any other.
---          A member whose JoinGroup waits has no deadline and gets none here. A deadline is
---          written in steps of a tenth of the session timeout (lib.clock), so most heartbeats
---          write nothing. Each member has its own answer: one refusal changes nothing for other
---          members. In a cluster the groups of a call share a slot.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")

local WIDTH, ROW = 4, 4

-- Check.
local now_ms = clock.now_ms()
local states, generations, waits, renewals = {}, {}, {}, {}
for at = 1, #KEYS - WIDTH + 1, WIDTH do
  local index = #waits + 1
  waits[index] = deadlines.wait_ms(KEYS[at + 3], now_ms)
  if deadlines.ahead_ms(KEYS[at + 3], now_ms) > 0 then
    waits[index] = 0
  end
  local row = redis.call("HMGET", KEYS[at], "state", "generation")
  states[index], generations[index], renewals[index] = row[1], row[2], {}
end

local function check(index, id, instance, generation)
  if waits[index] == 0 then
    return codes.TICK_FIRST
  end
  local at = (index - 1) * WIDTH
  if instance ~= "" then
    local known = redis.call("HGET", KEYS[at + 3], instance)
    if known ~= id then
      return known and codes.FENCED_INSTANCE_ID or codes.UNKNOWN_MEMBER_ID
    end
  end
  -- The format of lib.classic_member, which is too large to load for two fields.
  local row = redis.call("HGET", KEYS[at + 2], id) or ""
  local session, flags = string.match(row, "^(%d+) %d+ (%S+)$")
  if not session then
    return codes.UNKNOWN_MEMBER_ID
  end
  if generation ~= generations[index] then
    return codes.ILLEGAL_GENERATION
  end
  if not string.find(flags, "a", 1, true) then
    local list = renewals[index]
    list[#list + 1] = clock.about(now_ms, tonumber(session))
    list[#list + 1] = id
  end
  return states[index] == "PreparingRebalance" and codes.REBALANCE_IN_PROGRESS or codes.NONE
end

local errors = {}
for i = 1, #ARGV, ROW do
  errors[#errors + 1] = check(tonumber(ARGV[i]), ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end

-- Write.
for index, list in ipairs(renewals) do
  if list[1] then
    redis.call("ZADD", KEYS[index * WIDTH], deadlines.mark(), deadlines.CLOCK, unpack(list))
  end
end
return { errors, waits }
