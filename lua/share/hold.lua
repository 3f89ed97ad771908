--- share.hold  version 1  writes
--- Return which records a member of a share group has acquired, for a step that acknowledges them.
---
--- KEYS     log         hash    the partition's state
---          share       hash    share group -> end of its state, epoch, counters
---          share_runs  zset    the groups' available and acquired records
---          share_lost  string  empty; written if a member loses records that it had acquired
--- ARGV     group       id      the encoded group id
---          member      text    the member that has acquired the records
---          topic_id    text    the topic id the caller expects, 32 hex digits
---          ends_steps  int=0   1: a step that WATCHes `share_lost` fails from now on
---          lock_ms     int=0   renew the locks to this duration, in ms; 0: leave them
---          offset...   int     the records, ascending, at most 500
--- RETURNS  error       int     a lib.codes value
---          held        ints    those that the member has
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID
--- FULL     always: locks are renewed
--- COST     O(offsets), at most 10 calls + 1 per offset
--- NOTES    A record whose lock has expired is the member's until share.acquire or share.release
---          frees it, which write `share_lost`. A run of records that were acquired together is
---          renewed as a whole.
local codes = require("lib.codes")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, member, topic_id, lock_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
local OFFSETS = 6

-- Check.
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, {} }
end
local state = share_runs.open(share, runs, group)
if not state then
  return { codes.NONE, {} }
end
local until_ms = share_runs.now_ms(state) + lock_ms
local held, row = {}, nil
for i = OFFSETS, #ARGV do
  local offset = tonumber(ARGV[i])
  if not (row and row.first <= offset and offset <= row.last) then
    row = share_runs.covering(state, share_runs.ACQUIRED, offset)
    if row and row.member == member and lock_ms > 0 then
      share_runs.remove(state, row)
      share_runs.add_acquired(state, row.first, row.last, row.deliveries, until_ms, member)
    end
  end
  if row and row.member == member then
    held[#held + 1] = offset
  end
end

-- Write.
share_runs.save(state)
if ARGV[4] == "1" then
  redis.call("SET", KEYS[4], "")
end
return { codes.NONE, held }
