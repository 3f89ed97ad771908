--- share.release  version 1  writes
--- Make all records that a member of a share group has acquired available again.
---
--- KEYS     log             hash    the partition's state
---          share           hash    share group -> end of its state, epoch, counters
---          share_runs      zset    the groups' available and acquired records
---          share_lost      string  empty; written if a member loses records that it had acquired
--- ARGV     group           id      the encoded group id
---          member          text    the member whose share session ends
---          topic_id        text    the topic id the caller expects, 32 hex digits
---          delivery_limit  int     deliveries of a record at most
---          dead_letters    int=0   1: archived records become dead letters
---          first           int=0   the offset to continue from
--- RETURNS  error           int     a lib.codes value
---          released        int     the number of records that the member had
---          next            int     the offset to continue from in another call; -1: all are done
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: runs of records that are acquired
--- COST     O(1000), at most 27 calls + 2 per expired_run + 1 per page
--- NOTES    A call looks at 1,000 acquired runs of the group, and frees 1,000 whose locks have
---          expired. The delivery counts: a record delivered as often as the limit is archived, as
---          in Kafka. Publishes the group on the channel with the name of `share`.
local clock = require("lib.clock")
local codes = require("lib.codes")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, member, topic_id, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local first = tonumber(ARGV[6])
local STEP, FREED = 1000, 100

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1 }
end
local state = share_runs.open(share, runs, group, ARGV[5] == "1")
if not state then
  return { codes.NONE, 0, -1 }
end

-- Write.
share_runs.follow_clock(state)
local now_ms = clock.now_ms()
local freed, more = 0, nil
repeat
  more = share_runs.free_expired(state, now_ms, limit, FREED)
  freed = freed + FREED
until not more or freed == STEP
if more then
  share_runs.save(state)
  redis.call("SET", KEYS[4], "")
  return { codes.NONE, 0, first }
end
local released, looked, next_offset = 0, 0, -1
for row in share_runs.overlapping(state, share_runs.ACQUIRED, first, state.ends) do
  if looked == STEP then
    next_offset = row.first
    break
  end
  looked = looked + 1
  if row.member == member then
    share_runs.remove(state, row)
    share_runs.free(state, row.first, row.last, row.deliveries, limit)
    released = released + row.last - row.first + 1
  end
end
state.acquired = state.acquired - released
share_runs.save(state)
if state.has_expired or released > 0 then
  redis.call("SET", KEYS[4], "")
end
if released > 0 then
  redis.call("PUBLISH", share, group)
end
return { codes.NONE, released, next_offset }
