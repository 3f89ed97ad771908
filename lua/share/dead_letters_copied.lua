--- share.dead_letters_copied  version 1  writes
--- Remove dead letters of a share group that are in its dead letter queue.
---
--- KEYS     log           hash  the partition's state
---          share         hash  share group -> end of its state, epoch, counters
---          share_runs    zset  the groups' available and acquired records
--- ARGV     group         id    the encoded group id
---          topic_id      text  the topic id the caller expects, 32 hex digits
---          to            int   the number of the first dead letter that is not copied
--- RETURNS  error         int   a lib.codes value
---          dead_letters  int   dead letters that are not copied yet
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: dead letters are removed
--- COST     O(runs removed), at most 5 calls + 1 per page
--- NOTES    May be repeated, and a call with a lower number changes nothing.
local codes = require("lib.codes")
local dead_letters = require("lib.dead_letters")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, topic_id, to = ARGV[1], ARGV[2], tonumber(ARGV[3])
local PAGE = 1000

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0 }
end
local state = share_runs.open(share, runs, group)
if not state or to <= state.copied then
  return { codes.NONE, state and state.dead - state.copied or 0 }
end

-- Write.
to = math.min(to, state.dead)
dead_letters.remove(state, to, PAGE)
state.copied = to
share_runs.save(state)
return { codes.NONE, state.dead - state.copied }
