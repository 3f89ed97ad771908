--- share.acknowledge  version 1  writes
--- Acknowledge records that a member of a share group has acquired: all of a step, or none.
---
--- KEYS     log             hash   the partition's state
---          share           hash   share group -> end of its state, epoch, counters
---          share_runs      zset   the groups' available and acquired records
--- ARGV     group           id     the encoded group id
---          member          text   the member that has acquired the records
---          topic_id        text   the topic id the caller expects, 32 hex digits
---          lock_ms         int    how long the member may keep renewed records, in ms
---          delivery_limit  int    deliveries of a record at most
---          backoff_ms      int    delay of a record that is released after its first delivery
---          max_backoff_ms  int    the longest delay; it doubles with each delivery
---          dead_letters    int=0  1: archived records become dead letters
---          first...        int    the first offset of each range, ascending
---          last...         int    the last offset of the range
---          type...         int    0 gap, 1 accept, 2 release, 3 reject, 4 renew
--- RETURNS  error           int    a lib.codes value
---          dead_letters    int    dead letters that are not copied yet
---          next            int    the offset to continue from in another call; -1: all are done
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID INVALID_REQUEST INVALID_RECORD_STATE
--- FULL     always: runs of share.partition.max.record.locks records at most
--- COST     O(runs in the ranges), at most 9 calls + 2 per range + 2 per page
--- NOTES    A step is 1,000 runs: then `next` is the offset of the first record that is left.
---          INVALID_RECORD_STATE: a record is not acquired by the member, or its lock has expired.
---          INVALID_REQUEST: a range ends above the records with a state, if there are any.
---          UNKNOWN_TOPIC_OR_PARTITION too if the group has no state here. As in Kafka, offsets
---          below the start offset are passed. Publishes the group on the channel with the name of
---          `share` if records became available, if the group was full, or if an earlier record of
---          their key kept records from being acquired.
local codes = require("lib.codes")
local dead_letters = require("lib.dead_letters")
local share_runs = require("lib.share_runs")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, member, topic_id, lock_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local limit, backoff_ms, max_backoff_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local RANGES, STEP = 9, 1000
local ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

-- Check.
local before = -1
for i = RANGES, #ARGV, 3 do
  local first, last, type = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if not (first and last and type and before < first and first <= last and type <= RENEW) then
    error("share.acknowledge: the ranges are not ascending, or a type is not 0 to 4", 0)
  end
  before = last
end
local known = redis.call("HGET", log, "topic_id")
if known ~= topic_id then
  return { known and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1 }
end
local state = share_runs.open(share, runs, group, ARGV[8] == "1")
if not state then
  return { codes.UNKNOWN_TOPIC_OR_PARTITION, 0, -1 }
end
local now_ms, start = share_runs.now_ms(state), share_runs.start(state)

local function delay_of(deliveries)
  return math.min(max_backoff_ms, backoff_ms * 2 ^ (deliveries - 1))
end

-- Give the records first..last of an acquired row the state that the type asks for.
local released = false
local function acknowledge(row, first, last, type)
  local count = last - first + 1
  if type == RENEW then
    share_runs.add_acquired(state, first, last, row.deliveries, now_ms + lock_ms, member)
    return
  end
  state.acquired = state.acquired - count
  if type ~= RELEASE then
    share_runs.finish(state, first, last)
  end
  if type == ACCEPT then
    state.acknowledged = state.acknowledged + count
  elseif type == RELEASE then
    local delay_ms = delay_of(row.deliveries)
    local time = delay_ms > 0 and now_ms + delay_ms or nil
    share_runs.free(state, first, last, row.deliveries, limit, time)
    released = true
  elseif type == REJECT then
    share_runs.archive(state, first, last, row.deliveries, dead_letters.REJECTED)
  else
    state.archived = state.archived + count
  end
end

-- The acquired row at hand, of which the records from `at` on are not acknowledged yet.
local row, at, rows
local final = tonumber(ARGV[#ARGV - 1])
local function leave()
  if row then
    share_runs.add_acquired(state, at, row.last, row.deliveries, row.time, row.member)
  end
end
local function load(offset, follows)
  leave()
  rows = follows and rows or share_runs.overlapping(state, share_runs.ACQUIRED, offset, final)
  row = rows()
  if row then
    share_runs.remove(state, row)
    at = row.first
  end
end

local reached
local runs_done, next_offset = 0, -1
for i = RANGES, #ARGV, 3 do
  local first, last, type = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  first = math.max(first, start)
  if last >= state.ends then
    return { start < state.ends and codes.INVALID_REQUEST or codes.INVALID_RECORD_STATE, 0, -1 }
  end
  while first <= last and runs_done < STEP do
    if not (row and at <= first and first <= row.last) then
      load(first, rows ~= nil and reached == first)
    end
    if not (row and at <= first and row.member == member and row.time > now_ms) then
      return { codes.INVALID_RECORD_STATE, 0, -1 }
    end
    share_runs.add_acquired(state, at, first - 1, row.deliveries, row.time, member)
    local upto = math.min(last, row.last)
    acknowledge(row, first, upto, type)
    at, first = upto + 1, upto + 1
    reached = first
    runs_done = runs_done + 1
  end
  if first <= last then
    next_offset = first
    break
  end
end
leave()

-- Write.
local wakes = released or state.full == 1
state.full = 0
share_runs.save(state)
if wakes or state.found_head then
  redis.call("PUBLISH", share, group)
end
return { codes.NONE, state.dead - state.copied, next_offset }
