--- share.acquire  version 1  writes
--- Acquire records that a broker has read, for a member of a share group (KIP-932).
---
--- KEYS     log             hash    the partition's state
---          share           hash    share group -> end of its state, epoch, counters
---          share_runs      zset    the groups' available and acquired records
---          share_lost      string  empty; written if a member loses records that it had acquired
--- ARGV     group           id      the encoded group id
---          member          text    the member that acquires
---          topic_id        text    the topic id the caller expects, 32 hex digits
---          start           int     the first record of a group without state; -1: unknown
---          read_from       int     the first offset the broker has read; -1: it has read none
---          read_to         int     the last offset
---          most            int     records at most
---          exact           int     1: no more than `most`; 0: whole ranges until there are as many
---          lock_ms         int     how long the member may keep the records, in ms
---          delivery_limit  int     deliveries of a record at most
---          max_locks       int     records that are available or acquired at most
---          dead_letters    int=0   1: archived records become dead letters
---          ordered         int=0   1: records of one key are delivered one after another
---          has_keys        int=0   1: an offset and its key follow for each record that was read
---          first...        int     the first offset of each run of records read, ascending: in
---                                  layout `batch` of each batch
---          last...         bytes   the last offset of the run, or with `has_keys` the key's digest
--- RETURNS  error           int     a lib.codes value
---          next            int     the offset to read from for the next call
---          room            int     records above the end of the group's state that a call can
---                                  acquire
---          wait_ms         int     time to the next expired lock or ended delay; -1: there is none
---          dead_letters    int     dead letters that are not copied yet
---          ordered         int     1: calls of this group need keys
---          runs            ints    first offset, last offset and deliveries of each acquired run
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID START_FIRST
--- FULL     always: runs of share.partition.max.record.locks records at most
--- COST     O(runs read, acquired and freed), at most 24 calls + 2 per freed_run + 2 per page
--- NOTES    Offsets of read_from..read_to in no run hold no record for the group: it never gets
---          them. With `read_to` above the log's end nothing is acquired. First frees records whose
---          lock has expired, 100 runs per call, and drops those below the log start, 1,000 runs
---          per call: while there are more it acquires nothing, and `wait_ms` is 0. START_FIRST:
---          the group has no state; the caller resolves share.auto.offset.reset and calls with
---          `start`. If `next` is the end of the log, there is nothing to acquire before an append.
---          By key a call acquires 1,000 records at most.
---          As in Kafka, records that were delivered half as often as the limit are acquired alone
---          and half as many at once with each delivery, for the last one by one. `ordered` changes
---          only while no record is available or acquired; a call whose ranges have keys, if they
---          must not, or have none acquires nothing.
local clock = require("lib.clock")
local codes = require("lib.codes")
local share_runs = require("lib.share_runs")
local share_take = require("lib.share_take")

local log, share, runs = KEYS[1], KEYS[2], KEYS[3]
local group, member, topic_id, start = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local from, to, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local exact = ARGV[8] == "1"
local lock_ms, limit, max_locks = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local RANGES, FREED, STEP = 15, 100, 1000
local wants_order, has_keys = tonumber(ARGV[13]), ARGV[14] == "1"

-- Check.
local before = from
for i = RANGES, #ARGV, 2 do
  local first = tonumber(ARGV[i])
  local last = has_keys and first or tonumber(ARGV[i + 1])
  if not (first and last and before <= first and first <= last and last <= to) then
    error("share.acquire: the runs are not ascending, or not between from and to", 0)
  end
  before = last + 1
end
local place = redis.call("HMGET", log, "topic_id", "start", "next")
if place[1] ~= topic_id then
  local refusal = place[1] and codes.UNKNOWN_TOPIC_ID or codes.UNKNOWN_TOPIC_OR_PARTITION
  return { refusal, -1, 0, -1, 0, 0, {} }
end
local log_start = tonumber(place[2])
local state = share_runs.open(share, runs, group, ARGV[12] == "1")
if not state then
  if start < 0 then
    return { codes.START_FIRST, -1, 0, -1, 0, 0, {} }
  end
  state = share_runs.create(share, runs, group, math.max(start, log_start), log_start, 0)
end

-- A server that was promoted may lack records that the broker has read from another one.
local function has_read_more()
  return to >= tonumber(place[3])
end
local reads = from >= 0 and to >= from and not has_read_more()

-- Write.
share_runs.follow_clock(state)
local now_ms = clock.now_ms()
local more = share_runs.free_expired(state, now_ms, limit, FREED)
local drops_more = share_runs.drop_below(state, log_start, STEP)
if state.available + state.acquired == 0 then
  state.ordered = wants_order
end
local taken = {}
if reads and not drops_more and has_keys == (state.ordered == 1) then
  local room = max_locks - state.available - state.acquired
  if has_keys then
    taken = share_take.in_order(
      state, ARGV, RANGES, from, to, math.min(most, STEP), room, limit
    )
  else
    taken = share_take.from_ranges(state, ARGV, RANGES, from, to, most, room, exact, limit)
  end
  for _, run in ipairs(taken) do
    share_runs.add_acquired(state, run[1], run[2], run[3], now_ms + lock_ms, member)
    state.acquired = state.acquired + run[2] - run[1] + 1
  end
end
local room = math.max(0, max_locks - state.available - state.acquired)
state.full = room == 0 and 1 or 0
share_runs.save(state)
if state.has_expired then
  redis.call("SET", KEYS[4], "")
end

local reply = {}
for _, run in ipairs(taken) do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = run[1], run[2], run[3]
end
local available = share_runs.first_available(state)
local time = share_runs.next_time(state)
local wait_ms = time and math.max(0, time - now_ms) or -1
if more or drops_more then
  wait_ms = 0
end
return {
  codes.NONE, available or state.ends, room, wait_ms, state.dead - state.copied,
  state.ordered, reply,
}
