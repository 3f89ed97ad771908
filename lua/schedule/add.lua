--- schedule.add  version 1  writes
--- Append a batch's ordinary records, store its scheduled ones, cancel those that it names.
---
--- KEYS     stream             stream  the partition's records
---          log                hash    the partition's state
---          index              zset    sparse index
---          producers          hash    producer states
---          open_txns          zset    open transactions
---          scheduled          zset    number of a scheduled record -> due time
---          scheduled_records  hash    number -> row
---          scheduled_ids      hash    schedule id -> number
--- ARGV     topic_id           bytes   the topic's id as the caller knows it, 32 hex digits
---          stamp              int     1: LogAppendTime, as in log.append
---          count              int     records of the batch, of all kinds: the sequences it takes
---          size               int     bytes that the ordinary records add to the log's size
---          max_timestamp      int     ms, the max timestamp of the ordinary records
---          producer_id        int     -1 without idempotence
---          producer_epoch     int     -1 without idempotence
---          base_sequence      int     -1 without idempotence
---          transaction        int     -1; -2 as in log.append
---          max_count          int     max scheduled records of the partition
---          max_bytes          int     max bytes of their rows
---          channel            bytes   channel for the stream's name, if the first due time changed
---          ordinary           int     number of ordinary records
---          rows               int     number of rows
---          rest...            bytes   For each row seven arguments: its kind (`at`: due at that
---                                     time, ms; `in`: due after that delay, ms; `cancel`), the
---                                     time, the schedule id or empty, the records, their size,
---                                     their max timestamp, the payload of lib.schedule. Then the
---                                     fields of the ordinary records, as in log.append
--- RETURNS  error              int     a lib.codes value
---          base               int     -1: the batch's records have no consecutive offsets
---          previous           int     -1
---          start              int     log start offset
---          append_time        int     ms of Redis's clock, -1 without LogAppendTime
---          stored             int     1 stored now, 0 a duplicate of a stored batch, or an error
--- REFUSES  UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID UNKNOWN_PRODUCER_ID INVALID_PRODUCER_EPOCH
---          DUPLICATE_SEQUENCE_NUMBER OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_TXN_STATE
---          POLICY_VIOLATION
--- COST     O(records), at most 38 calls + 5 per arg
--- NOTES    A delay counts by the partition's own clock (lib.schedule).
---          POLICY_VIOLATION: with this batch the partition would have more scheduled records than
---          max_count, or more bytes than max_bytes, less what it replaces. A record with the
---          schedule id of a waiting one replaces it. A record that is due already is stored as
---          well; schedule.append_due moves it at once. A retried batch of an idempotent producer
---          is a duplicate, as in log.append.
local append = require("lib.append")
local clock = require("lib.clock")
local chunks = require("lib.chunks")
local codes = require("lib.codes")
local num = require("lib.num")
local schedules = require("lib.schedule")

local find = string.find
local FIXED, OF_ROW = 14, 7
local ordinary, rows = tonumber(ARGV[13]), tonumber(ARGV[14])
local fields = FIXED + OF_ROW * rows + 1
if rows < 0 or ordinary < 0 or fields - 1 > #ARGV or (ordinary == 0 and fields <= #ARGV) then
  error("schedule.add: ARGV are not those of " .. ARGV[14] .. " rows", 0)
end
for at = FIXED + 1, fields - 1, OF_ROW do
  local kind = ARGV[at]
  if kind ~= "at" and kind ~= "in" and kind ~= "cancel" then
    error("schedule.add: a row's kind is at, in or cancel", 0)
  end
  if find(ARGV[at + 1], "%D") or find(ARGV[at + 3], "%D") or find(ARGV[at + 4], "%D")
    or not find(ARGV[at + 5], "^%-?%d+$") or ARGV[at + 1] == "" or ARGV[at + 3] == ""
    or ARGV[at + 4] == "" then
    error("schedule.add: time, count, size and max timestamp of a row are integers", 0)
  end
end

-- Check.
local now_ms = clock.now_ms()
local log, refusal = append.open(KEYS, 1, ARGV[1], ARGV[2] == "1", now_ms)
if not log then
  return { refusal, -1, -1, -1, -1, 0 }
end
local idempotent, text, known = tonumber(ARGV[8]) >= 0, nil, nil
if idempotent then
  local rejected
  rejected, text, known = append.check_producer(log, ARGV, 3)
  if rejected then
    rejected[2] = -1
    return rejected
  end
end
local schedule = schedules.open(KEYS[2], KEYS, 6)
local new_count, new_bytes = 0, 0
for at = FIXED + 1, fields - 1, OF_ROW do
  if ARGV[at] ~= "cancel" then
    new_count = new_count + tonumber(ARGV[at + 3])
    new_bytes = new_bytes + #ARGV[at + 6]
  end
end
local function is_full()
  return new_count > 0 and schedule.count + new_count > tonumber(ARGV[10])
    or new_bytes > 0 and schedule.bytes + new_bytes > tonumber(ARGV[11])
end
-- Only near the limits: subtract what the batch's ids replace or cancel.
local seen = {}
for at = FIXED + 1, is_full() and fields - 1 or 0, OF_ROW do
  local id = ARGV[at + 2]
  if id ~= "" then
    local earlier = seen[id]
    local number = not earlier and redis.call("HGET", schedule.ids, id)
    local row = number and redis.call("HGET", schedule.rows, number)
    if earlier and ARGV[earlier] ~= "cancel" then
      new_count = new_count - tonumber(ARGV[earlier + 3])
      new_bytes = new_bytes - #ARGV[earlier + 6]
    elseif row then
      local count, _, _, _, payload = schedules.parse(row)
      new_count, new_bytes = new_count - count, new_bytes - (#row - payload + 1)
    end
    seen[id] = at
  end
end
if is_full() then
  return { codes.POLICY_VIOLATION, -1, -1, log.start, -1, 0 }
end
local first_due = schedules.first_due(schedule)

-- Write.
local base = log.next
if ordinary > 0 then
  local batch = { num.text(ordinary), ARGV[4], ARGV[5], "-1", "-1", "-1", "-1" }
  for i = fields, #ARGV do
    batch[#batch + 1] = ARGV[i]
  end
  base = append.put(log, batch, 1, #batch)[2]
end
if idempotent then
  append.update_producer(log, ARGV, 3, base, text, known)
end
append.close(log)

-- Rows by their position; false for one that a later row of this batch replaces or cancels.
local added, position_of = {}, {}
for at = FIXED + 1, fields - 1, OF_ROW do
  local id, count = ARGV[at + 2], tonumber(ARGV[at + 3])
  if id ~= "" then
    local position = position_of[id]
    if position then
      schedules.subtract(schedule, added[position][3])
      added[position] = false
    else
      local number = redis.call("HGET", schedule.ids, id)
      if number then
        schedules.remove(schedule, number)
        redis.call("HDEL", schedule.ids, id)
      end
    end
    position_of[id] = nil
  end
  if ARGV[at] ~= "cancel" then
    local due = schedules.score(schedule, ARGV[at], tonumber(ARGV[at + 1]))
    local row = schedules.row(ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], id, ARGV[at + 6])
    added[#added + 1] = { due, num.padded(schedule.number), row }
    schedule.number = schedule.number + 1
    schedule.count, schedule.bytes = schedule.count + count, schedule.bytes + #row
    if id ~= "" then
      position_of[id] = #added
    end
  end
end
local dues, records, ids = {}, {}, {}
for _, each in ipairs(added) do
  if each then
    dues[#dues + 1], dues[#dues + 2] = each[1], each[2]
    records[#records + 1], records[#records + 2] = each[2], each[3]
  end
end
for id, position in pairs(position_of) do
  ids[#ids + 1], ids[#ids + 2] = id, added[position][2]
end
chunks.call("ZADD", schedule.due, dues)
chunks.call("HSET", schedule.rows, records)
chunks.call("HSET", schedule.ids, ids)
schedules.close(schedule)
local due = #dues > 0 and schedules.first_due(schedule)
if due and (not first_due or due < first_due) then
  redis.call("PUBLISH", ARGV[12], KEYS[1])
end
return { codes.NONE, -1, -1, log.start, log.stamp and now_ms or -1, 1 }
