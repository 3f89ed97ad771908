--- share.reset  version 1  writes
--- Move a share group to an offset of the partition, whatever its state (AlterShareGroupOffsets).
---
--- KEYS     log         hash  the partition's state
---          share       hash  share group -> end of its state, epoch, counters
---          share_runs  zset  the groups' available and acquired records
--- ARGV     group       id    the encoded group id
---          topic_id    text  the topic id the caller expects, 32 hex digits
---          offset      int   the first record that members get
--- RETURNS  error       int   a lib.codes value
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: the group's state is replaced
--- COST     O(runs of the group), at most 5 calls + 2 per page
--- NOTES    The caller checks that the group has no members. The state epoch rises by one. Dead
---          letters that are not copied yet remain.
local codes = require("lib.codes")
local share_clear = require("lib.share_clear")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, topic_id, offset = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Check.
local place = redis.call("HMGET", log, "topic_id", "start")
if place[1] ~= topic_id then
  return { place[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION }
end
local log_start = tonumber(place[2])
local state = share_runs.open(share, runs, group)
local epoch = state and state.epoch + 1 or 0
local fresh = share_runs.create(share, runs, group, math.max(offset, log_start), log_start, epoch)
if state then
  fresh.dead, fresh.copied, fresh.producer = state.dead, state.copied, state.producer
  fresh.ordered = state.ordered
end

-- Write.
share_clear.records(runs, group)
share_runs.save(fresh)
redis.call("PUBLISH", share, group)
return { codes.NONE }
