--- group.commit  version 1  writes
--- Commit offsets for a member, or for a group without members.
---
--- KEYS     group               hash   state, generation, protocol, counters, votes
---          members             hash   member id -> timeouts and flags
---          clients             hash   member id -> client id, host, instance
---          protocols           hash   member id -> protocols and metadata
---          instances           hash   group instance id -> member id
---          assignments         hash   member id -> assignment
---          deadlines           zset   member id or phase -> moment, ms
---          offsets             hash   `korvet:<topic>:<p>` -> commit (lib.offset_commit)
---          consumer_members    hash   KIP-848: member id -> epoch, subscription and partitions
---          partition_owners    hash   KIP-848: partition -> epoch and member id of its owner
--- ARGV     member              text   the member id, empty for none
---          instance            text   group instance id, empty for none
---          generation          int    the member's generation or member epoch, negative without
---                                     membership
---          allow_member_epoch  int    0: the version has no member epochs (KIP-848)
---          is_registered       int    1: the group is in the registry
---          retention_ms        int    retention of these commits, -1: the broker's
---          field...            text   a partition's stream key
---          offset...           bytes  the offset, digits
---          epoch...            bytes  leader epoch, digits, -1 for none
---          topic...            text   topic id, 32 hex digits
---          metadata...         text   the client's metadata
--- RETURNS  error               int    a lib.codes value
---          wait_ms             int    until the group's next deadline, -1 for none
--- REFUSES  TICK_FIRST GROUP_ID_NOT_FOUND UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH UNSUPPORTED_VERSION
---          FENCED_INSTANCE_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS REGISTER_FIRST
--- FULL     always: one commit per partition of a group that exists, or that group.register added
--- COST     O(partitions), at most 10 calls + 2 per field
--- NOTES    Does not load the group: a busy group runs this script more than any other.
---          GROUP_ID_NOT_FOUND: the request has a generation and the group does not exist, or it is
---          a share group. Without rows it only checks, and renews the session of a classic member.
---          A classic member's session is renewed exactly, not up to a tenth longer as by a
---          heartbeat: a commit is the last request of a static member that stops. A KIP-848
---          member's session is renewed by ConsumerGroupHeartbeat alone; wait_ms is -1.
local codes = require("lib.codes")
local clock = require("lib.clock")
local deadlines = require("lib.deadlines")
local num = require("lib.num")

local group, members, instances, moments, offsets = KEYS[1], KEYS[2], KEYS[5], KEYS[7], KEYS[8]
local id, instance, generation = ARGV[1], ARGV[2], tonumber(ARGV[3])
local allow_member_epoch, is_registered = ARGV[4] == "1", ARGV[5] == "1"
local retention_ms = tonumber(ARGV[6])
local ROWS = 7

-- Check.
local now_ms = clock.now_ms()
local first, moment = deadlines.first(moments)
local wait_ms = moment and moment - now_ms or -1
if moment and wait_ms <= 0 or deadlines.ahead_ms(moments, now_ms) > 0 then
  return { codes.TICK_FIRST, 0 }
end
local row = redis.call("HMGET", group, "type", "state", "generation")
local kind, state = row[1], row[2] or "Empty"
if kind == "share" or not kind and generation >= 0 then
  return { codes.GROUP_ID_NOT_FOUND, -1 }
end
local simple = generation < 0 and state == "Empty"
local me
if not simple and (kind == "consumer" or kind == "streams") then
  local partition_owners = require("lib.partition_owners")
  local topology_of = kind == "streams" and group
  local verdict = partition_owners.check_commit(
    KEYS[9], KEYS[10], id, generation, ARGV, ROWS, topology_of
  )
  if verdict ~= codes.UNKNOWN_MEMBER_ID and not allow_member_epoch then
    verdict = codes.UNSUPPORTED_VERSION
  end
  if verdict ~= codes.NONE then
    return { verdict, -1 }
  end
elseif not simple then
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
  if generation ~= tonumber(row[3]) then
    return { codes.ILLEGAL_GENERATION, -1 }
  end
end
if state == "CompletingRebalance" then
  return { codes.REBALANCE_IN_PROGRESS, -1 }
end
if simple and #ARGV < ROWS then
  return { codes.NONE, wait_ms }
end
if not kind and not is_registered then
  return { codes.REGISTER_FIRST, -1 }
end

-- Write.
local now_text = num.text(now_ms)
local expires = retention_ms >= 0 and num.text(now_ms + retention_ms) or "-1"
local offset_commit = require("lib.offset_commit")
for i = ROWS, #ARGV, 5 do
  redis.call(
    "HSET", offsets, ARGV[i],
    offset_commit.format(ARGV[i + 1], ARGV[i + 2], now_text, expires, ARGV[i + 3], ARGV[i + 4])
  )
end
if me then
  if not me.awaiting then
    deadlines.set(moments, id, now_ms + me.session)
    wait_ms = wait_ms < 0 and me.session or math.min(wait_ms, me.session)
  end
  return { codes.NONE, wait_ms }
end
if not simple then
  return { codes.NONE, -1 }
end
if first ~= deadlines.OFFSETS then
  deadlines.check_offsets(moments, now_ms)
  local check_ms = deadlines.OFFSETS_CHECK_MS
  wait_ms = wait_ms < 0 and check_ms or math.min(wait_ms, check_ms)
end
if not kind then
  local classic_group = require("lib.classic_group")
  local g = classic_group.load(KEYS)
  g.since = now_ms
  classic_group.save(g)
end
return { codes.NONE, wait_ms }
