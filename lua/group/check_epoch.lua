--- group.check_epoch  version 1  reads
--- Check the epoch of a KIP-848 member that fetches committed offsets.
---
--- KEYS     group             hash  state, generation, protocol, counters, votes
---          consumer_members  hash  KIP-848: member id -> epoch, subscription and partitions
---          deadlines         zset  member id or phase -> moment, ms
--- ARGV     member            text  the member id
---          epoch             int   the member epoch
--- RETURNS  error             int   a lib.codes value
--- REFUSES  TICK_FIRST UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH GROUP_ID_NOT_FOUND
--- COST     O(1), at most 5 calls
--- NOTES    NONE for a classic group, and for one that does not exist: members of these name no
---          epoch. GROUP_ID_NOT_FOUND for a share group: it has no committed offsets.
local codes = require("lib.codes")
local clock = require("lib.clock")
local partition_owners = require("lib.partition_owners")
local deadlines = require("lib.deadlines")

local group, members, moments = KEYS[1], KEYS[2], KEYS[3]
local id, epoch = ARGV[1], tonumber(ARGV[2])

local type = redis.call("HGET", group, "type")
if type ~= "consumer" and type ~= "streams" then
  return { type == "share" and codes.GROUP_ID_NOT_FOUND or codes.NONE }
end
if deadlines.passed(moments, clock.now_ms()) then
  return { codes.TICK_FIRST }
end
return { partition_owners.check_commit(members, nil, id, epoch, {}, 1) }
