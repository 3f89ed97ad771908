--- group.commit  version 1  writes
--- Offsets are committed by a member of this generation, or to a group without members.
---
--- KEYS     group          hash   state, generation, protocol, counters, votes
---          members        hash   member id -> timeouts and flags
---          clients        hash   member id -> client id, host, instance
---          protocols      hash   member id -> protocols and metadata
---          instances      hash   group instance id -> member id
---          assignments    hash   member id -> assignment
---          deadlines      zset   member id or phase -> moment, ms
---          offsets        hash   `korvet:<topic>:<p>` -> what lib.offset_commit says
--- ARGV     member         bytes  the member id, empty for none
---          instance       bytes  group instance id, empty for none
---          generation     int    the generation the member believes in, negative without membership
---          is_registered  int    1: the group stands in the registry
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
--- NOTES    Does not load the group: this is what a busy group does all day.
---          GROUP_ID_NOT_FOUND: a generation was named and there is no group.
---          Without rows it only says what would be refused; a member is alive all the same, and not
---          a tenth longer as by a heartbeat: a commit is the last that is heard of static members.
---          COORDINATOR_LOAD_IN_PROGRESS never reaches a client: a deadline has passed, run group.tick
---          first. COORDINATOR_NOT_AVAILABLE neither: register the group first.
local codes = require("lib.codes")
local clock = require("lib.clock")
local num = require("lib.num")

local group, members, instances, deadlines, offsets = KEYS[1], KEYS[2], KEYS[5], KEYS[7], KEYS[8]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local is_registered, retention_ms = ARGV[4] == "1", tonumber(ARGV[5])
local ROWS = 6

-- Check. Refusals live here.
local now_ms = clock.now_ms()
local first = redis.call("ZRANGE", deadlines, 0, 0, "WITHSCORES")
local wait_ms = first[1] and tonumber(first[2]) - now_ms or -1
if first[1] and wait_ms <= 0 then
  return { codes.COORDINATOR_LOAD_IN_PROGRESS, 0 }
end
local row = redis.call("HMGET", group, "state", "generation")
local exists, state = row[1], row[1] or "Empty"
if not exists and generation >= 0 then
  return { codes.GROUP_ID_NOT_FOUND, -1 }
end
local simple = generation < 0 and state == "Empty"
local me
if not simple then
  if generation < 0 and id == "" and instance == "" then
    return { codes.UNKNOWN_MEMBER_ID, -1 }
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
  local classic_member = require("lib.classic_member")
  me = classic_member.parse(redis.call("HGET", members, id))
  if not me then
    return { codes.UNKNOWN_MEMBER_ID, -1 }
  end
  if generation ~= tonumber(row[2]) then
    return { codes.ILLEGAL_GENERATION, -1 }
  end
end
if state == "CompletingRebalance" then
  return { codes.REBALANCE_IN_PROGRESS, -1 }
end
if simple and #ARGV < ROWS then
  return { codes.NONE, wait_ms }
end
if not exists and not is_registered then
  return { codes.COORDINATOR_NOT_AVAILABLE, -1 }
end

-- Write.
local now_text = num.text(now_ms)
local expires = retention_ms >= 0 and num.text(now_ms + retention_ms) or "-1"
local offset_commit = require("lib.offset_commit")
for i = ROWS, #ARGV, 5 do
  redis.call(
    "HSET", offsets, ARGV[i],
    offset_commit.text(ARGV[i + 1], ARGV[i + 2], now_text, expires, ARGV[i + 3], ARGV[i + 4])
  )
end
if me then
  if not me.awaiting then
    redis.call("ZADD", deadlines, now_ms + me.session, id)
    wait_ms = wait_ms < 0 and me.session or math.min(wait_ms, me.session)
  end
  return { codes.NONE, wait_ms }
end
if first[1] ~= ":offsets" then
  local classic_group = require("lib.classic_group")
  local look_ms = classic_group.LOOK_MS
  redis.call("ZADD", deadlines, "NX", now_ms + look_ms, ":offsets")
  wait_ms = wait_ms < 0 and look_ms or math.min(wait_ms, look_ms)
end
if not exists then
  local classic_group = require("lib.classic_group")
  local g = classic_group.load(KEYS)
  g.since = now_ms
  classic_group.save(g)
end
return { codes.NONE, wait_ms }
